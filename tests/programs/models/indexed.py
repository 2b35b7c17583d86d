"""Advanced indices that exporters turn around, and helpers that modules of several classes call. Each function gives a module and what it is called with."""
import torch
from torch import nn
from torch.nn import functional as F


class SampledAttention(nn.Module):
    """Scores of each query against a few keys at random choose the queries that attend to all of them."""

    def __init__(self, heads=4, width=32, samples=20, queries=16):
        super().__init__()
        self.heads, self.samples, self.queries = heads, samples, queries
        self.qkv = nn.Linear(heads * width, 3 * heads * width)
        self.out = nn.Linear(heads * width, heads * width)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        expanded = k.unsqueeze(-3).expand(b, self.heads, n, n, k.shape[-1])
        at = torch.randint(n, (n, self.samples), device=x.device)
        sampled = expanded[:, :, torch.arange(n, device=x.device).unsqueeze(1), at, :]
        scores = torch.matmul(q.unsqueeze(-2), sampled.transpose(-2, -1)).squeeze(-2)
        best = (scores.max(-1)[0] - scores.sum(-1) / n).topk(self.queries, sorted=False)[1]
        batch = torch.arange(b, device=x.device)[:, None, None]
        head = torch.arange(self.heads, device=x.device)[None, :, None]
        attention = torch.softmax(torch.matmul(q[batch, head, best, :], k.transpose(-2, -1)) / k.shape[-1] ** 0.5, dim=-1)
        context = v.mean(dim=-2, keepdim=True).expand(b, self.heads, n, v.shape[-1]).clone()
        context[batch, head, best, :] = torch.matmul(attention, v).type_as(context)
        return self.out(context.transpose(1, 2).reshape(b, n, c))


class Sampled(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.layers = nn.ModuleList(SampledAttention() for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(128) for _ in range(layers))

    def forward(self, x):
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return x


def distances(a, b):
    d = -2 * torch.matmul(a, b.transpose(1, 2))
    d += torch.sum(a**2, -1).unsqueeze(-1)
    d += torch.sum(b**2, -1).unsqueeze(1)
    return d


def rows(points, at):
    batch = torch.arange(points.shape[0], dtype=torch.long).to(points.device).view(-1, *[1] * (at.dim() - 1)).expand_as(at)
    return points[batch, at, :]


class Gathering(nn.Module):
    def __init__(self, channels, width, centers, around=16):
        super().__init__()
        self.centers, self.around = centers, around
        self.mlp = nn.Sequential(nn.Linear(channels + 3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())

    def forward(self, xyz, features):
        to_self = distances(xyz, xyz)
        _, chosen = to_self.topk(4, dim=-1, largest=False)[0].mean(-1).topk(self.centers, dim=-1)
        centers = rows(xyz, chosen)
        _, near = torch.topk(distances(centers, xyz), self.around, dim=-1, largest=False)
        offsets = rows(xyz, near) - centers.unsqueeze(2)
        return centers, self.mlp(torch.cat([offsets, rows(features, near)], dim=-1)).max(2)[0]


class Spreading(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(channels, width), nn.ReLU())

    def forward(self, xyz, centers, features):
        d = distances(xyz, centers)
        d, at = d.sort(dim=-1)
        d, at = d[:, :, :3], at[:, :, :3]
        weight = 1.0 / (d + 1e-4)
        weight = weight / torch.sum(weight, dim=2, keepdim=True)
        return self.mlp(torch.sum(rows(features, at) * weight.unsqueeze(-1), dim=2))


class Points(nn.Module):
    """Points that are gathered around centers and spread again: modules of two classes measure the same distances."""

    def __init__(self):
        super().__init__()
        self.gather = Gathering(16, 64, centers=128)
        self.spread = Spreading(64, 64)
        self.embed, self.head = nn.Linear(3, 16), nn.Linear(64, 10)

    def forward(self, xyz):
        centers, features = self.gather(xyz, self.embed(xyz))
        return self.head(self.spread(xyz, centers, features))


def sampled(batch):
    return Sampled(), (torch.randn(batch, 96, 128),)


def points(batch):
    return Points(), (torch.randn(batch, 512, 3),)
