"""Tensors that attributes hold beside the module tree, and steps that several modules have alike. Each function gives a module and what it is called with."""
import torch
from torch import nn
from torch.nn import functional as F


class Regularized(nn.Module):
    """A recommender whose penalty reads the embeddings by a list of its own, which is no part of the module tree."""

    def __init__(self, rows=(20000, 3000), width=32):
        super().__init__()
        self.embeddings = nn.ModuleDict({f"field{i}": nn.Embedding(n, width) for i, n in enumerate(rows)})
        self.deep = nn.Sequential(nn.Linear(width * len(rows), 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 1))
        self.penalized = [(list(self.embeddings.parameters()), 1e-5)]

    def forward(self, fields, label):
        rows = torch.cat([table(fields[:, i]) for i, table in enumerate(self.embeddings.values())], dim=-1)
        logits = self.deep(rows).squeeze(1)
        loss = F.mse_loss(logits, label)
        for weights, strength in self.penalized:
            for w in weights:
                loss = loss + torch.sum(strength * torch.square(w))
        return loss


class Trend(nn.Module):
    """A polynomial of a table that is no buffer, worked out on the CPU in each step."""

    def __init__(self, steps=4096, width=256, degree=4):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, degree))
        self.times = torch.arange(0, steps) / steps
        self.degree = degree

    def forward(self, x):
        powers = torch.stack([self.times**i for i in range(self.degree)]).float()
        return self.fc(x).mm(powers.to(x.device))


class Timed(nn.Module):
    """A residual block of a diffusion model: the embedding of the time in the type of what it meets."""

    def __init__(self, width, time):
        super().__init__()
        self.into = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, width))
        self.out = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))

    def forward(self, x, t):
        h = self.into(x)
        shift = self.time(t).type(h.dtype)
        h = h + shift[..., None, None]
        h = self.out(h)
        return x + h


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(Timed(width, 128) for _ in range(3))
        self.head = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, t)
        return self.head(x)


class Forced(nn.Module):
    """An LSTM that is called for each step, with its own state."""

    def __init__(self, features=24, width=192):
        super().__init__()
        self.into = nn.Linear(features, features)
        self.decoder = nn.LSTM(features, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, features)

    def forward(self, x):
        x = self.into(x)
        state = (x.new_zeros(2, x.shape[0], 192), x.new_zeros(2, x.shape[0], 192))
        outs = []
        for i in range(8):
            out, state = self.decoder(x[:, i : i + 1], state)
            state = tuple(s.view(2, -1, 192) for s in state)
            outs.append(self.out(out))
        return torch.cat(outs, dim=1)


class Masked(nn.Module):
    def __init__(self, inside, width):
        super().__init__()
        self.own, self.others = nn.Linear(inside, width), nn.Linear(inside, width, bias=False)

    def forward(self, x, near, mask):
        n = x.shape[1]
        out = self.others(torch.matmul(near, x)) + self.own(x)
        out = out * mask.view(-1, n, 1).to(x.dtype)
        return out


class Graphs(nn.Module):
    """Each layer converts the mask for itself, and the frame that calls them does so as well."""

    def __init__(self, width=160):
        super().__init__()
        self.first, self.second = Masked(48, width), Masked(width, width)
        self.head = nn.Linear(width, 10)

    def forward(self, x, near, mask):
        x = F.relu(self.first(x, near, mask))
        x = F.relu(self.second(x, near, mask))
        weights = mask.view(-1, 96, 1).to(x.dtype)
        x = x * weights
        x = x.sum(1) / weights.sum(1)
        return self.head(x)


def regularized(batch):
    return Regularized(), (torch.stack([torch.randint(0, 20000, (batch,)), torch.randint(0, 3000, (batch,))], 1), torch.randint(0, 2, (batch,)).float())


def trend(batch):
    return Trend(), (torch.randn(batch, 64),)


def denoiser(batch):
    return Denoiser(), (torch.randn(batch, 3, 32, 32), torch.randn(batch, 128))


def forced(batch):
    return Forced(), (torch.randn(batch, 8, 24),)


def graphs(batch):
    return Graphs(), (torch.randn(batch, 96, 48), (torch.rand(batch, 96, 96) < 0.1).float(), torch.rand(batch, 96) < 0.8)
