import torch

x = torch.randn(1000, device="cuda")
print("kept", x[x > 0].numel())
