"""A model whose structure follows from values on the device, as torchvision's RegNet when it is built there."""
import torch

widths = torch.linspace(8, 64, 4, device="cuda")
layers = []
for width in widths.tolist():
    layers.append(torch.nn.Linear(int(width), 8, device="cuda"))
print(len(layers), "layers of", [layer.in_features for layer in layers])
