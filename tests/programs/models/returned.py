"""Models that return a loss beside what they predict, and lines that convert by a name. Each function gives a module and what it is called with."""
import torch
import torch.nn.functional as F
from torch import nn


class WideNorm(nn.LayerNorm):
    """Computes in fp32 whatever it gets, and gives it back as it was."""

    def forward(self, x):
        before = x.dtype
        wide = super().forward(x.type(torch.float32))
        return wide.type(before)


class Mixed(nn.Module):
    """A product of three tensors, between norms."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.gates, self.turn = WideNorm(width), nn.Linear(width, 2 * width), nn.Parameter(torch.randn(width, 4) * 0.1)

    def forward(self, x):
        keys, values = self.gates(self.norm(x)).chunk(2, dim=-1)
        mixed = torch.einsum("bld,bld,dn->bln", keys, values, self.turn)
        return x + mixed.repeat(1, 1, x.size(-1) // 4)


class Judged(nn.Module):
    """Returns its scores and its loss: the loss is what is trained."""

    def __init__(self, words=2000, width=128, length=48):
        super().__init__()
        self.table, self.places = nn.Conv1d(16, width, 1), nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList([Mixed(width) for _ in range(3)])
        self.norm, self.out = WideNorm(width), nn.Linear(width, words)

    def forward(self, signal, words):
        x = self.table(signal).transpose(1, 2)
        x = x + self.places.to(x.dtype)
        for block in self.blocks:
            x = block(x)
        scores = self.out(self.norm(x))
        loss = F.cross_entropy(scores.view(-1, scores.size(-1)), words.view(-1))
        return scores, loss


class Coded(nn.Module):
    """Returns what it decodes and a penalty on the code, which trains no decoder: the prediction is what is compared."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32)), nn.Linear(32, 10)

    def forward(self, x):
        code = self.encode(x)
        return self.decode(code), (code - code.round().detach()).pow(2).mean()


class Widened(nn.Module):
    """Returns scores that their line has widened: nothing else has those in half precision any more."""

    def __init__(self, words=3000, width=96):
        super().__init__()
        self.table, self.cell, self.out = nn.Embedding(words, width), nn.GRU(width, width, batch_first=True), nn.Linear(width, words)

    def forward(self, tokens, targets):
        h, _ = self.cell(self.table(tokens))
        logits = self.out(h).float()
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        z = torch.logsumexp(logits, dim=-1).pow(2).mean()
        return logits, loss + 1e-4 * z


class Slower(torch.autograd.Function):
    """Gradients through it are a tenth."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


class Scaled(nn.Module):
    """Calls a module among the arguments of an autograd.Function of its own."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(1, 64, 9, 4, bias=False), nn.GroupNorm(64, 64), nn.GELU(), nn.Conv1d(64, 96, 3, 2, bias=False), nn.GELU())
        self.out = nn.Linear(96, 12)

    def forward(self, sound):
        heard = Slower.apply(self.features(sound), 0.1)
        return self.out(heard.mean(2))


def judged(batch):
    return Judged(), (torch.randn(batch, 16, 48), torch.randint(0, 2000, (batch, 48)))


def coded(batch):
    return Coded(), (torch.randn(batch, 64),)


def scaled(batch):
    return Scaled(), (torch.randn(batch, 1, 4000),)


def widened(batch):
    return Widened(), (torch.randint(0, 3000, (batch, 40)), torch.randint(0, 3000, (batch, 40)))
