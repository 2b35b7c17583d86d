"""Models of which an ONNX exporter's optimizer makes something else. Each function gives a module and what it is called with."""
import torch
import torch.nn.functional as F
from torch import nn


class Contrastive(nn.Module):
    """The exponential of a parameter of no dimensions is worked out."""

    def __init__(self, d=64):
        super().__init__()
        self.image, self.text = nn.Linear(32, d), nn.Linear(48, d)
        self.logit_scale = nn.Parameter(torch.tensor(2.65))

    def forward(self, image, text):
        image, text = F.normalize(self.image(image), dim=-1), F.normalize(self.text(text), dim=-1)
        return self.logit_scale.exp() * image @ text.t()


class ParallelBlock(nn.Module):
    """Two norms of one tensor have equal weights, and become one."""

    def __init__(self, d=64):
        super().__init__()
        self.norm_attention, self.norm_mlp = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attention, self.up, self.down = nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        attended = self.attention(self.norm_attention(x))
        x = x + attended + self.down(F.gelu(self.up(self.norm_mlp(x))))
        return x


class Parallel(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.embed = nn.Embedding(100, d)
        self.blocks = nn.ModuleList(ParallelBlock(d) for _ in range(2))
        self.head = nn.Linear(d, 100)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Converted(nn.Module):
    """A method converts what it is given to fp32, and its result back; so does the last line."""

    def __init__(self, d=64, h=4, t=32):
        super().__init__()
        self.h = h
        self.embed, self.qkv, self.out = nn.Embedding(100, d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.register_buffer("decay", torch.rand(t, d // h), persistent=False)
        self.head = nn.Linear(d, 100)

    def decayed(self, x):
        return (x.float() * self.decay).type_as(x)

    def forward(self, x):
        x = self.embed(x)
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, -1).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.decayed(q), self.decayed(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return self.head(x).float()


class Grouped(nn.Module):
    """What is picked by a list of indices is turned next: the exporter's own transpose becomes one with it."""

    def __init__(self, d=16, h=4):
        super().__init__()
        self.h = h
        self.embed, self.qkv, self.out = nn.Embedding(100, 64), nn.Linear(64, (h + 2) * d), nn.Linear(h * d, 64)
        self.head = nn.Linear(64, 100)

    def forward(self, x):
        x = self.embed(x)
        b, t, _ = x.shape
        heads = self.qkv(x).view(b, t, self.h + 2, -1)
        q, k, v = heads[:, :, :-2], heads[:, :, [-2]], heads[:, :, [-1]]
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k.expand_as(q), v.expand_as(q), is_causal=True)
        return self.head(x + self.out(y.transpose(1, 2).reshape(b, t, -1)))


class TwoHeads(nn.Module):
    """A token goes to a head through a dropout that does nothing, the others to another one."""

    def __init__(self, d=64):
        super().__init__()
        self.inp, self.norm, self.drop = nn.Linear(16, d), nn.LayerNorm(d), nn.Dropout(0.0)
        self.head, self.others = nn.Linear(d, 10), nn.Linear(d, 10)

    def forward(self, x):
        x = self.norm(F.gelu(self.inp(x)))
        first = self.drop(x[:, 0])
        x = self.drop(x)
        return self.head(first) + 0.5 * self.others(x[:, 1:]).amax(dim=1)


def contrastive(batch):
    return Contrastive(), (torch.randn(batch, 32), torch.randn(batch, 48))


def parallel_norms(batch):
    return Parallel(), (torch.zeros(batch, 32, dtype=torch.long),)


def converted(batch):
    return Converted(), (torch.zeros(batch, 32, dtype=torch.long),)


def grouped_query(batch):
    return Grouped(), (torch.zeros(batch, 32, dtype=torch.long),)


def two_heads(batch):
    return TwoHeads(), (torch.randn(batch, 65, 16),)
