"""Models that checkpoint activations by themselves, and layers whose results are written into. Each function gives a module and what it is called with."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Blocks(nn.Module):
    """One line for each block."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(64, 64)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


class Steps(nn.Module):
    """A method that is checkpointed, with code of its own."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.gate, self.head = nn.Linear(64, 64), nn.Linear(64, 10)

    def step(self, block, x):
        y = block(x)
        return y * torch.sigmoid(self.gate(y))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(self.step, block, x, use_reentrant=False)
        return self.head(x)


def checkpointed_blocks(batch):
    return Blocks(), (torch.randn(batch, 256, 64),)


def checkpointed_steps(batch):
    return Steps(), (torch.randn(batch, 256, 64),)


def one_dimensional(batch):
    """An activation in place behind nn.Conv1d."""
    layers = [nn.Conv1d(3, 64, 1), nn.ReLU(inplace=True), nn.Conv1d(64, 64, 3, padding=2, dilation=2), nn.ReLU(inplace=True), nn.Conv1d(64, 10, 1)]
    return nn.Sequential(*layers), (torch.randn(batch, 3, 3200),)
