"""More models of tables, graphs and pairs. Each function gives a module and what it is called with."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.u, self.i = (nn.Embedding(2000, 64), nn.Embedding(5000, 64))
        self.ut, self.it = (nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)), nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)))
        self.temp = nn.Parameter(torch.tensor(0.07).log())

    def forward(self, u, i):
        a = F.normalize(self.ut(self.u(u)), dim=-1)
        c = F.normalize(self.it(self.i(i).mean(1)), dim=-1)
        logits = a @ c.t() / self.temp.exp()
        labels = torch.arange(logits.shape[0], device=logits.device)
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


class DCN(nn.Module):
    def __init__(self, d=160):
        super().__init__()
        self.e = nn.Embedding(5000, 16)
        self.w = nn.ParameterList([nn.Parameter(torch.randn(d, 1) * 0.01) for _ in range(3)])
        self.bb = nn.ParameterList([nn.Parameter(torch.zeros(d)) for _ in range(3)])
        self.deep = nn.Sequential(nn.Linear(d, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64), nn.ReLU())
        self.o = nn.Linear(d + 64, 1)

    def cross(self, x0):
        x = x0
        for w, c in zip(self.w, self.bb):
            x = x0 * (x @ w) + c + x
        return x

    def forward(self, x, y):
        x0 = self.e(x).flatten(1)
        out = self.o(torch.cat([self.cross(x0), self.deep(x0)], dim=1)).squeeze(-1)
        return F.binary_cross_entropy(torch.sigmoid(out.float()), y) if not torch.is_autocast_enabled() else F.binary_cross_entropy_with_logits(out, y)


class DIN(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.e = nn.Embedding(3000, d, padding_idx=0)
        self.att = nn.Sequential(nn.Linear(4 * d, 64), nn.PReLU(), nn.Linear(64, 1))
        self.mlp = nn.Sequential(nn.Linear(2 * d, 64), nn.PReLU(), nn.Linear(64, 2))

    def attend(self, q, k, mask):
        q = q.unsqueeze(1).expand(-1, k.shape[1], -1)
        a = self.att(torch.cat([q, k, q - k, q * k], dim=-1)).squeeze(-1)
        a = a.masked_fill(~mask, -1000000000.0)
        return (a.softmax(-1).unsqueeze(-1) * k).sum(1)

    def forward(self, item, hist):
        q, k = (self.e(item), self.e(hist))
        u = self.attend(q, k, hist != 0)
        return self.mlp(torch.cat([q, u], -1))


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.l3 = (nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 7))

    def norm(self, a):
        a = a + torch.eye(a.shape[-1], device=a.device)
        d = a.sum(-1).clamp(min=1).pow(-0.5)
        return d.unsqueeze(-1) * a * d.unsqueeze(-2)

    def forward(self, x, a):
        a = self.norm(a)
        h = F.dropout(F.relu(a @ self.l1(x)), 0.5, self.training)
        h = F.dropout(F.relu(torch.bmm(a, self.l2(h))), 0.5, self.training)
        return F.log_softmax(a @ self.l3(h), dim=-1)


class GAT(nn.Module):
    def __init__(self, h=4, d=16):
        super().__init__()
        self.h, self.d = (h, d)
        self.w = nn.Linear(32, h * d, bias=False)
        self.al, self.ar = (nn.Parameter(torch.randn(1, h, d)), nn.Parameter(torch.randn(1, h, d)))
        self.o = nn.Linear(h * d, 7)

    def forward(self, x, a):
        z = self.w(x).view(x.shape[0], x.shape[1], self.h, self.d)
        l, r = ((z * self.al).sum(-1), (z * self.ar).sum(-1))
        e = F.leaky_relu(l.unsqueeze(2) + r.unsqueeze(1), 0.2)
        e = e.masked_fill((a < 0.5).unsqueeze(-1), float("-1e9"))
        att = F.dropout(torch.softmax(e, dim=2), 0.3, self.training)
        out = torch.einsum("bijh,bjhd->bihd", att, z)
        return self.o(F.elu(out.flatten(2)).mean(1))


class Rezero(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.l = nn.ModuleList((nn.Linear(d, d) for _ in range(4)))
        self.alpha = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(4)])
        self.g = nn.Parameter(0.0001 * torch.ones(d))
        self.o = nn.Linear(d, 10)

    def forward(self, x):
        for l, a in zip(self.l, self.alpha):
            x = x + a * F.gelu(l(x))
        return self.o((x * self.g).mean(1))


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.a, self.c = (nn.Linear(128, 10), nn.Linear(128, 3))
        self.logvar = nn.Parameter(torch.zeros(2))

    def forward(self, x, y, z):
        h = self.b(x)
        l1, l2 = (F.cross_entropy(self.a(h), y), F.mse_loss(self.c(h), z))
        losses = torch.stack([l1, l2])
        return (torch.exp(-self.logvar) * losses + self.logvar).sum()


class Arc(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Sequential(nn.Linear(128, 256), nn.BatchNorm1d(256), nn.PReLU(256), nn.Linear(256, 64))
        self.w = nn.Parameter(torch.randn(500, 64))

    def forward(self, x, y):
        cos = F.linear(F.normalize(self.b(x)), F.normalize(self.w)).clamp(-1 + 1e-07, 1 - 1e-07)
        sin = torch.sqrt(1.0 - cos ** 2)
        phi = cos * math.cos(0.5) - sin * math.sin(0.5)
        phi = torch.where(cos > math.cos(math.pi - 0.5), phi, cos - 0.24)
        hot = torch.zeros_like(cos).scatter_(1, y.view(-1, 1), 1)
        return F.cross_entropy(30.0 * (hot * phi + (1 - hot) * cos), y)


class SAC(nn.Module):
    def __init__(self):
        super().__init__()
        mk = lambda i, o: nn.Sequential(nn.Linear(i, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, o))
        self.pi, self.q1, self.q2 = (mk(32, 12), mk(38, 1), mk(38, 1))
        self.log_alpha = nn.Parameter(torch.zeros(1))

    def sample(self, o):
        mu, ls = self.pi(o).chunk(2, dim=-1)
        ls = torch.clamp(ls, -20, 2)
        std = ls.exp()
        n = torch.randn_like(mu)
        u = mu + std * n
        lp = (-0.5 * n ** 2 - ls - 0.5 * math.log(2 * math.pi)).sum(-1) - (2 * (math.log(2) - u - F.softplus(-2 * u))).sum(-1)
        return (torch.tanh(u), lp)

    def forward(self, o):
        a, lp = self.sample(o)
        x = torch.cat([o, a], -1)
        q = torch.min(self.q1(x), self.q2(x)).squeeze(-1)
        alpha = self.log_alpha.exp()
        return (alpha.detach() * lp - q).mean() - (alpha * (lp.detach() - 6)).mean()


def two_tower(batch):
    return Two(), (torch.zeros(batch, dtype=torch.long), torch.zeros(batch, 10, dtype=torch.long))


def dcn(batch):
    return DCN(), (torch.zeros(batch, 10, dtype=torch.long), torch.rand(batch))


def din(batch):
    return DIN(), (torch.zeros(batch, dtype=torch.long), torch.zeros(batch, 20, dtype=torch.long))


def gcn(batch):
    return GCN(), (torch.randn(batch, 40, 32), torch.rand(batch, 40, 40))


def gat(batch):
    return GAT(), (torch.randn(batch, 30, 32), torch.rand(batch, 30, 30))


def rezero(batch):
    return Rezero(), (torch.randn(batch, 40, 64),)


def multitask(batch):
    return MultiTask(), (torch.randn(batch, 64), torch.zeros(batch, dtype=torch.long), torch.randn(batch, 3))


def arcface(batch):
    return Arc(), (torch.randn(batch, 128), torch.zeros(batch, dtype=torch.long))


def sac(batch):
    return SAC(), (torch.randn(batch, 32),)
