"""The model of make.py. Not to be edited: traces name lines of this file."""
import torch
from torch import nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.norm = nn.BatchNorm1d(16)
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(2)])
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.norm(self.words(x).transpose(1, 2)).transpose(1, 2)
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.head(self.drop(x).mean(1))
