"""Models whose lines hold lists, old values and several results. Each function gives a module and what it is called with."""
import torch
import torch.nn.functional as F
from torch import nn


def stage(channels, width, stride=1):
    return nn.Sequential(nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())


class Perceptual(nn.Module):
    """A helper returns a list, of whose members the target's are not all read."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1))
        self.judge = nn.ModuleList([nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1), nn.Conv2d(32, 64, 3, 2, 1)])
        self.judge.requires_grad_(False)

    def seen(self, x):
        found = []
        for layer in self.judge:
            x = layer(x)
            found.append(x)
        return found

    def forward(self, x, goal):
        made = self.net(x)
        mine, theirs = self.seen(made), self.seen(goal)
        loss = F.mse_loss(mine[1], theirs[1])
        for level in mine:
            loss = loss + level.abs().mean() * 0.1
        return loss


class Windows(nn.Module):
    """A name that holds a list gets the next one by a comprehension over it."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(500, 64)
        self.convs = nn.ModuleList([nn.Conv1d(64, 128, k, padding=k // 2) for k in (3, 5, 7)])
        self.out = nn.Linear(384, 4)

    def forward(self, ids):
        h = self.table(ids).transpose(1, 2)
        h = [F.gelu(conv(h)) for conv in self.convs]
        h = [F.max_pool1d(level, level.size(2)).squeeze(2) for level in h]
        return self.out(torch.cat(h, 1))


class Nested(nn.Module):
    """One line calls stages of one class, each inside of the next."""

    def __init__(self):
        super().__init__()
        self.stem, self.low, self.middle, self.high = stage(3, 32), stage(32, 32), stage(32, 64, 2), stage(64, 128, 2)
        self.out = nn.Linear(128, 10)

    def forward(self, x):
        x = self.stem(x)
        x = self.high(self.middle(self.low(x)))
        return self.out(x.mean((2, 3)))


class Views(nn.Module):
    """Two views of the same images, whose batches torch.export names apart."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(stage(3, 32, 2), stage(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 32))

    def forward(self, one, other):
        z = F.normalize(torch.cat([self.net(one), self.net(other)]), dim=1)
        return (z @ z.t() / 0.1).logsumexp(1).mean()


class Share(nn.Module):
    """Its accuracy is a quotient by the batch's size, and its loss wants probabilities."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Dropout(0.1), nn.Linear(256, 1), nn.Sigmoid())

    def forward(self, x, y):
        p = self.net(x).squeeze(1)
        with torch.no_grad():
            right = (p.round() == y).float().sum() / y.size(0)
        return F.binary_cross_entropy(p.float(), y), right


def perceptual(batch):
    return Perceptual(), (torch.rand(batch, 3, 32, 32), torch.rand(batch, 3, 32, 32))


def windows(batch):
    return Windows(), (torch.randint(0, 500, (batch, 40)),)


def nested(batch):
    return Nested(), (torch.rand(batch, 3, 32, 32),)


def views(batch):
    return Views(), (torch.rand(batch, 3, 32, 32), torch.rand(batch, 3, 32, 32))


def share(batch):
    return Share(), (torch.randn(batch, 64), torch.randint(0, 2, (batch,)).float())
