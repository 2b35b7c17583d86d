"""Models of tables, of pairs, and of reinforcement learning. Each function gives a module and what it is called with."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        mk = lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 128))
        self.online, self.target, self.pred = (mk(), mk(), nn.Sequential(nn.Linear(128, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 128)))

    @torch.no_grad()
    def teacher(self, x):
        return self.target(x)

    def forward(self, a, b):
        p = F.normalize(self.pred(self.online(a)), dim=-1)
        z = F.normalize(self.teacher(b), dim=-1)
        return 2 - 2 * (p * z).sum(-1).mean()


class MoCo(nn.Module):
    def __init__(self, d=64, k=4096):
        super().__init__()
        mk = lambda: nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, d))
        self.q, self.k = (mk(), mk())
        self.register_buffer("queue", F.normalize(torch.randn(d, k), dim=0))
        for p in self.k.parameters():
            p.requires_grad = False

    def forward(self, a, b):
        q = F.normalize(self.q(a), dim=1)
        with torch.no_grad():
            k = F.normalize(self.k(b), dim=1)
        pos = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        neg = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
        logits = torch.cat([pos, neg], 1) / 0.07
        return F.cross_entropy(logits, torch.zeros(logits.shape[0], dtype=torch.long, device=logits.device))


class Distill(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 50))
        self.teacher = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 50))
        self.teacher.requires_grad_(False)

    def forward(self, x, y):
        st = self.student(x)
        with torch.no_grad():
            te = self.teacher(x)
        kd = F.kl_div(F.log_softmax(st / 4, -1), F.softmax(te / 4, -1), reduction="batchmean") * 16
        return kd + F.cross_entropy(st, y)


class DeepFM(nn.Module):
    def __init__(self, n=10000, f=20, d=16):
        super().__init__()
        self.lin, self.emb = (nn.Embedding(n, 1), nn.Embedding(n, d))
        self.bias = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(f * d, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 1))

    def fm(self, e):
        return 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1, keepdim=True)

    def forward(self, x, y):
        e = self.emb(x)
        logit = self.bias + self.lin(x).sum(1) + self.fm(e) + self.mlp(e.flatten(1))
        return F.binary_cross_entropy_with_logits(logit.squeeze(1), y)


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.bot = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.tables = nn.ModuleList((nn.EmbeddingBag(5000, 64, mode="sum") for _ in range(8)))
        self.top = nn.Sequential(nn.Linear(64 + 36, 128), nn.ReLU(), nn.Linear(128, 2))
        i = torch.tril_indices(9, 9, -1)
        self.register_buffer("i", i[0])
        self.register_buffer("j", i[1])

    def interact(self, x, es):
        t = torch.stack([x] + es, 1)
        z = torch.bmm(t, t.transpose(1, 2))
        return torch.cat([x, z[:, self.i, self.j]], 1)

    def forward(self, dense, sparse):
        x = self.bot(dense)
        es = [t(sparse[:, k]) for k, t in enumerate(self.tables)]
        return self.top(self.interact(x, es))


class MMoE(nn.Module):
    def __init__(self, d=64, e=6):
        super().__init__()
        self.experts = nn.ModuleList((nn.Sequential(nn.Linear(d, 128), nn.ReLU(), nn.Linear(128, 64)) for _ in range(e)))
        self.gates = nn.ModuleList((nn.Linear(d, e) for _ in range(2)))
        self.towers = nn.ModuleList((nn.Linear(64, 1) for _ in range(2)))

    def forward(self, x, y):
        h = torch.stack([e(x) for e in self.experts], 1)
        loss = 0
        for k, (g, t) in enumerate(zip(self.gates, self.towers)):
            w = F.softmax(g(x), -1).unsqueeze(-1)
            loss = loss + F.mse_loss(t((w * h).sum(1)).squeeze(-1), y[:, k])
        return loss


class Hyper(nn.Module):
    def __init__(self):
        super().__init__()
        self.gen = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 64 * 64 + 64))
        self.inp, self.out = (nn.Linear(32, 64), nn.Linear(64, 10))

    def forward(self, x, c):
        p = self.gen(c)
        w, b = (p[:, :4096].view(-1, 64, 64), p[:, 4096:])
        h = F.relu(self.inp(x))
        h = torch.einsum("bni,bij->bnj", h, w) + b.unsqueeze(1)
        return self.out(F.relu(h).mean(1))


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
        self.mu, self.v = (nn.Linear(256, 8), nn.Linear(256, 1))
        self.log_std = nn.Parameter(torch.zeros(8))

    def log_prob(self, mu, a):
        std = self.log_std.exp().expand_as(mu)
        var = std ** 2
        return (-(a - mu) ** 2 / (2 * var) - std.log() - 0.5 * math.log(2 * math.pi)).sum(-1)

    def forward(self, obs, act, old, adv, ret):
        h = self.body(obs)
        lp = self.log_prob(self.mu(h), act)
        r = torch.exp(lp - old)
        surr = torch.min(r * adv, torch.clamp(r, 0.8, 1.2) * adv)
        ent = (0.5 + 0.5 * math.log(2 * math.pi) + self.log_std).sum()
        return -surr.mean() + 0.5 * F.mse_loss(self.v(h).squeeze(-1), ret) - 0.01 * ent


class DQN(nn.Module):
    def __init__(self):
        super().__init__()
        mk = lambda: nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
        self.q, self.t = (mk(), mk())

    def forward(self, o, a, r, n, d):
        q = self.q(o).gather(1, a).squeeze(1)
        with torch.no_grad():
            y = r + 0.99 * (1 - d) * self.t(n).max(1)[0]
        return F.smooth_l1_loss(q, y)


class KAN(nn.Module):
    def __init__(self, i=64, o=64, g=8):
        super().__init__()
        self.register_buffer("grid", torch.linspace(-1, 1, g))
        self.w = nn.Parameter(torch.randn(o, i, g) * 0.1)
        self.base = nn.Linear(i, o)
        self.w2 = nn.Parameter(torch.randn(10, o, g) * 0.1)

    def basis(self, x):
        return torch.exp(-((x.unsqueeze(-1) - self.grid) / 0.25) ** 2)

    def forward(self, x):
        h = F.silu(self.base(x)) + torch.einsum("big,oig->bo", self.basis(x), self.w)
        return torch.einsum("big,oig->bo", self.basis(h), self.w2)


def byol(batch):
    return BYOL(), (torch.randn(batch, 1, 28, 28), torch.randn(batch, 1, 28, 28))


def moco(batch):
    return MoCo(), (torch.randn(batch, 256), torch.randn(batch, 256))


def distill(batch):
    return Distill(), (torch.randn(batch, 128), torch.zeros(batch, dtype=torch.long))


def deepfm(batch):
    return DeepFM(), (torch.zeros(batch, 20, dtype=torch.long), torch.rand(batch))


def dlrm(batch):
    return DLRM(), (torch.randn(batch, 13), torch.zeros(batch, 8, 4, dtype=torch.long))


def mmoe(batch):
    return MMoE(), (torch.randn(batch, 64), torch.randn(batch, 2))


def hypernet(batch):
    return Hyper(), (torch.randn(batch, 32, 32), torch.randn(batch, 16))


def ppo(batch):
    return ActorCritic(), (torch.randn(batch, 64), torch.randn(batch, 8), torch.randn(batch), torch.randn(batch), torch.randn(batch))


def dqn(batch):
    return DQN(), (torch.randn(batch, 64), torch.zeros(batch, 1, dtype=torch.long), torch.randn(batch), torch.randn(batch, 64), torch.zeros(batch))


def kan(batch):
    return KAN(), (torch.randn(batch, 64),)
