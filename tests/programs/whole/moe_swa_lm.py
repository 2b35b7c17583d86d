# Mixtral-ish toy: sliding-window attention with ALiBi slopes + top-k MoE. All experts are run on all
# tokens and weighted by the (sparse) gates, good enough for ablations on a single card.

from typing import Dict, List, NamedTuple, Optional

import torch
import torch.nn as nn
import torch.nn.functional as F


class MoEOutput(NamedTuple):
    hidden: torch.Tensor
    balance_loss: torch.Tensor
    z_loss: torch.Tensor


def alibi_slopes(n: int) -> torch.Tensor:
    start = 2.0 ** (-8.0 / n)
    return torch.tensor([start ** (i + 1) for i in range(n)])


class SlidingWindowAttention(nn.Module):
    def __init__(self, hidden: int, heads: int, window: int):
        super().__init__()
        self.heads = heads
        self.window = window
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.proj = nn.Linear(hidden, hidden, bias=False)
        self.q_norm = nn.LayerNorm(hidden // heads, elementwise_affine=False)
        self.k_norm = nn.LayerNorm(hidden // heads, elementwise_affine=False)
        self.register_buffer("slopes", alibi_slopes(heads).view(1, heads, 1, 1), persistent=False)

    def build_bias(self, length: int, device, dtype) -> torch.Tensor:
        pos = torch.arange(length, device=device)
        dist = pos[:, None] - pos[None, :]
        allowed = torch.logical_and(dist >= 0, dist < self.window)
        bias = -self.slopes * dist.abs().to(dtype)
        return bias.masked_fill(~allowed, torch.finfo(dtype).min)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bsz, length, hidden = x.shape
        qkv = self.qkv(x).reshape(bsz, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        out = F.scaled_dot_product_attention(
            self.q_norm(q), self.k_norm(k), v, attn_mask=self.build_bias(length, x.device, x.dtype)
        )
        return self.proj(out.transpose(1, 2).reshape(bsz, length, hidden))


class Router(nn.Module):
    def __init__(self, hidden: int, num_experts: int, top_k: int, jitter: float = 0.01):
        super().__init__()
        self.gate = nn.Linear(hidden, num_experts, bias=False)
        self.num_experts, self.top_k, self.jitter = num_experts, top_k, jitter

    def forward(self, x):
        if self.training and self.jitter > 0:
            x = x * torch.empty_like(x).uniform_(1.0 - self.jitter, 1.0 + self.jitter)
        logits = self.gate(x)
        probs = F.softmax(logits, dim=-1, dtype=torch.float32)
        top_w, top_i = torch.topk(probs, self.top_k, dim=-1)
        top_w = top_w / top_w.sum(dim=-1, keepdim=True)
        gates = torch.zeros_like(probs).scatter(-1, top_i, top_w)

        # switch-style load balancing
        routed = F.one_hot(top_i, self.num_experts).sum(dim=-2).float().mean(dim=(0, 1))
        density = probs.mean(dim=(0, 1))
        balance = self.num_experts * (routed * density).sum() / self.top_k
        z = torch.logsumexp(logits, dim=-1).square().mean()
        return gates.to(x.dtype), balance, z


class MoE(nn.Module):
    def __init__(self, hidden: int, ffn: int, num_experts: int, top_k: int):
        super().__init__()
        self.router = Router(hidden, num_experts, top_k)
        # stacked so that it is two batched matmuls
        self.w_in = nn.Parameter(torch.empty(num_experts, hidden, 2 * ffn))
        self.w_out = nn.Parameter(torch.empty(num_experts, ffn, hidden))
        self.shared = nn.Sequential(nn.Linear(hidden, ffn), nn.GELU(), nn.Linear(ffn, hidden))
        for w in (self.w_in, self.w_out):
            nn.init.trunc_normal_(w, std=0.02)

    def forward(self, x: torch.Tensor) -> MoEOutput:
        gates, balance, z = self.router(x)
        h = torch.einsum("bth,ehf->betf", x, self.w_in)
        a, b = torch.tensor_split(h, 2, dim=-1)
        y = torch.einsum("betf,efh->beth", F.silu(a) * b, self.w_out)
        y = (y * gates.transpose(1, 2).unsqueeze(-1)).sum(dim=1)
        return MoEOutput(y + self.shared(x), balance, z)


class DecoderLayer(nn.Module):
    def __init__(self, cfg: Dict[str, int], use_moe: bool):
        super().__init__()
        h = cfg["hidden"]
        self.ln_attn, self.ln_mlp = nn.LayerNorm(h), nn.LayerNorm(h)
        self.attn = SlidingWindowAttention(h, cfg["heads"], cfg["window"])
        self.use_moe = use_moe
        if use_moe:
            self.mlp = MoE(h, cfg["ffn"], cfg["experts"], cfg["top_k"])
        else:
            self.mlp = nn.Sequential(nn.Linear(h, 4 * h), nn.GELU(), nn.Linear(4 * h, h))

    def forward(self, x, aux: Optional[List[MoEOutput]] = None):
        x = x + self.attn(self.ln_attn(x))
        out = self.mlp(self.ln_mlp(x))
        if self.use_moe:
            aux.append(out)
            out = out.hidden
        return x + out


class Model(nn.Module):
    CONFIG = dict(vocab=5000, hidden=224, heads=7, window=48, ffn=288, experts=6, top_k=2, layers=6)

    def __init__(self, balance_coef: float = 0.01, z_coef: float = 0.001):
        super().__init__()
        cfg = self.CONFIG
        self.embed = nn.Embedding(cfg["vocab"], cfg["hidden"])
        self.layers = nn.ModuleList(
            DecoderLayer(cfg, use_moe=(i % 2 == 1)) for i in range(cfg["layers"])
        )
        self.norm = nn.LayerNorm(cfg["hidden"])
        self.head = nn.Linear(cfg["hidden"], cfg["vocab"], bias=False)
        self.coefs = (balance_coef, z_coef)

    def forward(self, input_ids: torch.Tensor, loss_mask: torch.Tensor) -> Dict[str, torch.Tensor]:
        aux: List[MoEOutput] = []
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x, aux)
        logits = self.head(self.norm(x))[:, :-1]
        ce = F.cross_entropy(logits.flatten(0, 1), input_ids[:, 1:].flatten(), reduction="none")
        m = loss_mask[:, 1:].flatten()
        lm = (ce * m).sum() / m.sum().clamp(min=1)
        balance = sum(a.balance_loss for a in aux) / len(aux)
        z = sum(a.z_loss for a in aux) / len(aux)
        total = lm + self.coefs[0] * balance + self.coefs[1] * z
        return {"loss": total, "lm_loss": lm, "balance_loss": balance, "z_loss": z}


def inputs(batch):
    ids = torch.randint(0, Model.CONFIG["vocab"], (batch, 128))
    mask = torch.ones(batch, 128)
    mask[:, :16] = 0.0
    return ids, mask
