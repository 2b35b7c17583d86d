import torch

x = torch.zeros(64, 64, device="cuda")
torch.fft.fft(x)
torch.nn.LSTM(64, 64, device="cuda")(x)
torch.nn.BatchNorm2d(8, device="cuda")(torch.zeros(2, 8, 4, 4, device="cuda").to(memory_format=torch.channels_last))
