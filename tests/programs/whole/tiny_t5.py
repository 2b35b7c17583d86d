# T5 from scratch -- pre-norm, no biases, bucketed relative positions, shared embeddings.
# The rel-pos bias lives in the first layer only, later layers get it passed in, as in the paper.
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from typing import Optional

D, H, DFF, VOCAB = 256, 4, 768, 4096
PAD = 0


class T5Norm(nn.Module):
    def __init__(self, d=D):
        super().__init__()
        self.g = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return self.g * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


class RelPosBias(nn.Module):
    def __init__(self, bidirectional: bool, num_buckets: int = 32, max_distance: int = 128, heads: int = H):
        super().__init__()
        self.bidirectional, self.num_buckets, self.max_distance = bidirectional, num_buckets, max_distance
        self.table = nn.Embedding(num_buckets, heads)

    def bucket(self, rel: Tensor) -> Tensor:
        n = self.num_buckets
        ret = torch.zeros_like(rel)
        if self.bidirectional:
            n //= 2
            ret += (rel > 0).long() * n
            rel = rel.abs()
        else:
            rel = -torch.min(rel, torch.zeros_like(rel))
        exact = n // 2
        is_small = rel < exact
        big = exact + (
            torch.log(rel.float().clamp(min=1) / exact) / math.log(self.max_distance / exact) * (n - exact)
        ).long()
        big = torch.min(big, torch.full_like(big, n - 1))
        ret += torch.where(is_small, rel, big)
        return ret

    def forward(self, qlen: int, klen: int, device) -> Tensor:
        q = torch.arange(qlen, device=device)[:, None]
        k = torch.arange(klen, device=device)[None, :]
        return self.table(self.bucket(k - q)).permute(2, 0, 1).unsqueeze(0)


class Attn(nn.Module):
    def __init__(self, dropout: float = 0.1):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D, bias=False) for _ in range(4))
        self.p = dropout

    def forward(self, x: Tensor, mem: Optional[Tensor] = None, bias: Optional[Tensor] = None) -> Tensor:
        mem = x if mem is None else mem
        split = lambda t: t.unflatten(-1, (H, D // H)).transpose(1, 2)
        q, k, v = split(self.q(x)), split(self.k(mem)), split(self.v(mem))
        scores = q @ k.mT                     # T5 does not scale
        if bias is not None:
            scores = scores + bias
        w = F.dropout(scores.float().softmax(-1).to(scores.dtype), self.p, self.training)
        return self.o((w @ v).transpose(1, 2).flatten(2))


class GatedGelu(nn.Module):
    def __init__(self):
        super().__init__()
        self.wi = nn.Linear(D, 2 * DFF, bias=False)
        self.wo = nn.Linear(DFF, D, bias=False)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        gate, lin = self.wi(x).chunk(2, -1)
        return self.wo(self.drop(F.gelu(gate, approximate="tanh") * lin))


class EncLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.sa, self.n2, self.ff = T5Norm(), Attn(), T5Norm(), GatedGelu()
        self.drop = nn.Dropout(0.1)

    def forward(self, x, bias):
        x = x + self.drop(self.sa(self.n1(x), bias=bias))
        return x + self.drop(self.ff(self.n2(x)))


class DecLayer(EncLayer):
    def __init__(self):
        super().__init__()
        self.n3, self.ca = T5Norm(), Attn()

    def forward(self, x, bias, mem, mem_bias):
        x = x + self.drop(self.sa(self.n1(x), bias=bias))
        x = x + self.drop(self.ca(self.n3(x), mem=mem, bias=mem_bias))
        return x + self.drop(self.ff(self.n2(x)))


class Model(nn.Module):
    def __init__(self, n_enc=4, n_dec=4, smoothing=0.1):
        super().__init__()
        self.shared = nn.Embedding(VOCAB, D, padding_idx=PAD)
        self.enc_bias, self.dec_bias = RelPosBias(True), RelPosBias(False)
        self.encoder = nn.ModuleList(EncLayer() for _ in range(n_enc))
        self.decoder = nn.ModuleList(DecLayer() for _ in range(n_dec))
        self.enc_norm, self.dec_norm = T5Norm(), T5Norm()
        self.smoothing = smoothing
        self.reset_parameters()

    def reset_parameters(self):
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, std=m.in_features ** -0.5)
            if isinstance(m, Attn):
                nn.init.normal_(m.q.weight, std=D ** -0.5 * (D // H) ** -0.5)

    @staticmethod
    def shift_right(y):
        return F.pad(y, (1, 0), value=PAD)[:, :-1]

    def encode(self, src):
        neg = torch.finfo(self.shared.weight.dtype).min
        pad_bias = (src == PAD)[:, None, None, :].float() * neg
        bias = self.enc_bias(src.size(1), src.size(1), src.device) + pad_bias
        x = self.shared(src)
        for layer in self.encoder:
            x = layer(x, bias)
        return self.enc_norm(x), pad_bias

    def decode(self, tgt, mem, mem_bias):
        T = tgt.size(1)
        causal = torch.triu(torch.full((T, T), float("-inf"), device=tgt.device), diagonal=1)
        bias = self.dec_bias(T, T, tgt.device) + causal
        x = self.shared(tgt)
        for layer in self.decoder:
            x = layer(x, bias, mem, mem_bias)
        return self.dec_norm(x) * D ** -0.5

    def forward(self, src, labels):
        out = self.decode(self.shift_right(labels), *self.encode(src))
        logp = F.linear(out, self.shared.weight).log_softmax(-1)
        nll = -logp.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        smooth = -logp.mean(-1)
        keep = labels.ne(PAD).to(logp.dtype)
        loss = (1 - self.smoothing) * nll + self.smoothing * smooth
        return {"loss": (loss * keep).sum() / keep.sum(), "nll": (nll.detach() * keep).sum() / keep.sum()}


def inputs(batch):
    src = torch.randint(1, VOCAB, (batch, 96))
    src[:, 80:] = PAD
    tgt = torch.randint(1, VOCAB, (batch, 64))
    tgt[:, 60:] = PAD
    return src, tgt
