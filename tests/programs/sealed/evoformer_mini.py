# A small Evoformer trunk (AlphaFold2 alg. 6-15) with distogram + masked MSA heads
from functools import partial
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Dims(NamedTuple):
    c_m: int = 128
    c_z: int = 64
    c_hidden: int = 32
    heads_m: int = 4
    heads_z: int = 2
    c_opm: int = 16
    c_tri: int = 64
    blocks: int = 4
    max_rel: int = 32
    n_bins: int = 64


class Linear(nn.Linear):
    """nn.Linear with the AF2 initialisations."""

    def __init__(self, i, o, bias=True, init='default'):
        super().__init__(i, o, bias=bias)
        with torch.no_grad():
            if bias:
                self.bias.zero_()
            if init == 'final':
                self.weight.zero_()
            elif init == 'gating':
                self.weight.zero_()
                if bias:
                    self.bias.fill_(1.)
            elif init == 'relu':
                nn.init.kaiming_normal_(self.weight, nonlinearity='relu')
            else:
                nn.init.trunc_normal_(self.weight, std=i ** -0.5)


class DropoutShared(nn.Module):
    """Dropout sharing the mask along one dimension (row-/columnwise)."""

    def __init__(self, p, dim):
        super().__init__()
        self.dim = dim
        self.dropout = nn.Dropout(p)

    def forward(self, x):
        shape = list(x.shape)
        shape[self.dim] = 1
        return x * self.dropout(x.new_ones(shape))


class GatedAttention(nn.Module):
    def __init__(self, c_in, c_hidden, heads):
        super().__init__()
        self.h, self.c = heads, c_hidden
        self.to_q = Linear(c_in, c_hidden * heads, bias=False)
        self.to_kv = Linear(c_in, c_hidden * heads * 2, bias=False)
        self.to_g = Linear(c_in, c_hidden * heads, init='gating')
        self.to_o = Linear(c_hidden * heads, c_in, init='final')

    def forward(self, x, mask, pair_bias=None):
        # x: [*, L, C], mask: [*, L]
        split = lambda t: t.unflatten(-1, (self.h, self.c)).transpose(-2, -3)
        q = split(self.to_q(x)) * self.c ** -0.5
        k, v = map(split, self.to_kv(x).chunk(2, dim=-1))
        logits = torch.matmul(q, k.transpose(-1, -2))
        logits = logits + (1e9 * (mask - 1))[..., None, None, :]
        if pair_bias is not None:
            logits = logits + pair_bias
        a = logits.softmax(-1)
        o = torch.matmul(a, v).transpose(-2, -3).flatten(-2)
        return self.to_o(o * torch.sigmoid(self.to_g(x)))


class MSARowAttentionWithPairBias(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm_m = nn.LayerNorm(d.c_m)
        self.norm_z = nn.LayerNorm(d.c_z)
        self.bias = Linear(d.c_z, d.heads_m, bias=False)
        self.mha = GatedAttention(d.c_m, d.c_hidden, d.heads_m)

    def forward(self, m, z, mask):
        b = self.bias(self.norm_z(z)).permute(0, 3, 1, 2).unsqueeze(1)     # B 1 h R R
        return self.mha(self.norm_m(m), mask, b)


class MSAColumnAttention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d.c_m)
        self.mha = GatedAttention(d.c_m, d.c_hidden, d.heads_m)

    def forward(self, m, mask):
        m = m.transpose(-2, -3)
        return self.mha(self.norm(m), mask.transpose(-1, -2)).transpose(-2, -3)


class Transition(nn.Module):
    def __init__(self, c, n=4):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(c), Linear(c, n * c, init='relu'), nn.ReLU(),
                                 Linear(n * c, c, init='final'))

    def forward(self, x, mask):
        return self.net(x) * mask.unsqueeze(-1)


class OuterProductMean(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d.c_m)
        self.a = Linear(d.c_m, d.c_opm)
        self.b = Linear(d.c_m, d.c_opm)
        self.out = Linear(d.c_opm ** 2, d.c_z, init='final')

    def forward(self, m, mask):
        m = self.norm(m)
        a = self.a(m) * mask.unsqueeze(-1)
        b = self.b(m) * mask.unsqueeze(-1)
        outer = torch.einsum('bsic,bsjd->bijcd', a, b).flatten(-2)
        norm = torch.einsum('bsi,bsj->bij', mask, mask).unsqueeze(-1)
        return self.out(outer) / (norm + 1e-3)


class TriangleMultiplication(nn.Module):
    EQ = {'outgoing': 'bikc,bjkc->bijc', 'incoming': 'bkic,bkjc->bijc'}

    def __init__(self, d, direction):
        super().__init__()
        self.eq = self.EQ[direction]
        self.norm_in = nn.LayerNorm(d.c_z)
        self.proj = Linear(d.c_z, 2 * d.c_tri)
        self.proj_g = Linear(d.c_z, 2 * d.c_tri, init='gating')
        self.norm_out = nn.LayerNorm(d.c_tri)
        self.out = Linear(d.c_tri, d.c_z, init='final')
        self.out_g = Linear(d.c_z, d.c_z, init='gating')

    def forward(self, z, mask):
        z = self.norm_in(z)
        ab = mask.unsqueeze(-1) * self.proj(z) * torch.sigmoid(self.proj_g(z))
        a, b = ab.chunk(2, -1)
        x = torch.einsum(self.eq, a, b)
        return self.out(self.norm_out(x)) * torch.sigmoid(self.out_g(z))


class TriangleAttention(nn.Module):
    def __init__(self, d, starting):
        super().__init__()
        self.starting = starting
        self.norm = nn.LayerNorm(d.c_z)
        self.bias = Linear(d.c_z, d.heads_z, bias=False)
        self.mha = GatedAttention(d.c_z, d.c_hidden, d.heads_z)

    def forward(self, z, mask):
        if not self.starting:
            z, mask = z.transpose(1, 2), mask.transpose(1, 2)
        z = self.norm(z)
        b = self.bias(z).permute(0, 3, 1, 2).unsqueeze(1)
        z = self.mha(z, mask, b)
        return z if self.starting else z.transpose(1, 2)


class EvoformerBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.row = MSARowAttentionWithPairBias(d)
        self.col = MSAColumnAttention(d)
        self.msa_trans = Transition(d.c_m)
        self.opm = OuterProductMean(d)
        self.tri_out = TriangleMultiplication(d, 'outgoing')
        self.tri_in = TriangleMultiplication(d, 'incoming')
        self.tri_start = TriangleAttention(d, True)
        self.tri_end = TriangleAttention(d, False)
        self.pair_trans = Transition(d.c_z)
        self.drop_m = DropoutShared(0.15, 1)
        self.drop_row = DropoutShared(0.25, 1)
        self.drop_col = DropoutShared(0.25, 2)

    def forward(self, m, z, msa_mask, pair_mask):
        m = m + self.drop_m(self.row(m, z, msa_mask))
        m = m + self.col(m, msa_mask)
        m = m + self.msa_trans(m, msa_mask)
        z = z + self.opm(m, msa_mask)
        z = z + self.drop_row(self.tri_out(z, pair_mask))
        z = z + self.drop_row(self.tri_in(z, pair_mask))
        z = z + self.drop_row(self.tri_start(z, pair_mask))
        z = z + self.drop_col(self.tri_end(z, pair_mask))
        z = z + self.pair_trans(z, pair_mask)
        return m, z


class Model(nn.Module):
    def __init__(self, d=Dims()):
        super().__init__()
        self.d = d
        self.msa_emb = Linear(23 + 2, d.c_m)
        self.target_m = nn.Embedding(21, d.c_m)
        self.left = nn.Embedding(21, d.c_z)
        self.right = nn.Embedding(21, d.c_z)
        self.relpos = nn.Embedding(2 * d.max_rel + 1, d.c_z)
        self.recycle_norm_m = nn.LayerNorm(d.c_m)
        self.recycle_norm_z = nn.LayerNorm(d.c_z)
        self.blocks = nn.ModuleList([EvoformerBlock(d) for _ in range(d.blocks)])
        self.msa_head = Linear(d.c_m, 23, init='final')
        self.disto_head = Linear(d.c_z, d.n_bins, init='final')
        self.register_buffer('bin_edges', torch.linspace(2.3125, 21.6875, d.n_bins - 1) ** 2)

    def trunk(self, m, z, msa_mask, pair_mask, ckpt):
        run = partial(checkpoint, use_reentrant=False) if ckpt else (lambda f, *a: f(*a))
        for blk in self.blocks:
            m, z = run(blk, m, z, msa_mask, pair_mask)
        return m, z

    def forward(self, aatype, msa, deletions, bert_mask, seq_mask, coords):
        R = aatype.shape[1]
        msa_in = torch.where(bert_mask > 0.5, torch.full_like(msa, 22), msa)
        feat = torch.cat([F.one_hot(msa_in, 23).to(deletions.dtype), (deletions > 0).to(deletions.dtype)[..., None],
                          torch.atan(deletions / 3.)[..., None] * 0.6366], -1)
        m0 = self.msa_emb(feat) + self.target_m(aatype).unsqueeze(1)
        idx = torch.arange(R, device=aatype.device)
        rel = (idx[:, None] - idx[None]).clamp(-self.d.max_rel, self.d.max_rel) + self.d.max_rel
        z0 = self.left(aatype).unsqueeze(2) + self.right(aatype).unsqueeze(1) + self.relpos(rel)
        msa_mask = seq_mask.unsqueeze(1).expand(-1, msa.shape[1], -1)
        pair_mask = seq_mask.unsqueeze(2) * seq_mask.unsqueeze(1)

        with torch.no_grad():       # one recycling iteration
            m, z = self.trunk(m0, z0, msa_mask, pair_mask, ckpt=False)
        z0 = z0 + self.recycle_norm_z(z)
        m0 = torch.cat([m0[:, :1] + self.recycle_norm_m(m[:, :1]), m0[:, 1:]], 1)
        m, z = self.trunk(m0, z0, msa_mask, pair_mask, ckpt=True)

        msa_logits = self.msa_head(m)
        ce = F.cross_entropy(msa_logits.permute(0, 3, 1, 2), msa, reduction='none')
        w = bert_mask * msa_mask
        msa_loss = (ce * w).sum() / (w.sum() + 1e-6)
        disto = self.disto_head(z)
        disto = disto + disto.transpose(1, 2)
        d2 = (coords.unsqueeze(2) - coords.unsqueeze(1)).square().sum(-1)
        bins = (d2[..., None] > self.bin_edges).sum(-1)
        ce = -torch.gather(F.log_softmax(disto, -1), -1, bins[..., None]).squeeze(-1)
        disto_loss = (ce * pair_mask).sum() / (pair_mask.sum() + 1e-6)
        return {'loss': 0.3 * disto_loss + 2.0 * msa_loss, 'disto': disto, 'single': m[:, 0]}


def inputs(batch, S=16, R=48):
    mask = (torch.arange(R)[None] < torch.randint(R // 2, R + 1, (batch, 1))).float()
    return (torch.randint(0, 21, (batch, R)), torch.randint(0, 22, (batch, S, R)),
            torch.randint(0, 4, (batch, S, R)).float(), (torch.rand(batch, S, R) < 0.15).float(),
            mask, torch.randn(batch, R, 3) * 12)
