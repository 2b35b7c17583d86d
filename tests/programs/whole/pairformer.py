"""Trunk of a small structure predictor (Evoformer/Pairformer like): MSA + pair stack, recycling, distogram,
masked MSA and pLDDT losses."""
from functools import partial
import math

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def exists(v):
    return v is not None


def softmax_cross_entropy(logits, labels):
    return -1 * torch.sum(labels * torch.nn.functional.log_softmax(logits, dim=-1), dim=-1)


class LinearNoBias(nn.Linear):
    def __init__(self, i, o, init="default"):
        super().__init__(i, o, bias=False)
        if init == "final":
            nn.init.normal_(self.weight, std=1e-2)
        elif init == "gating":
            nn.init.zeros_(self.weight)


class Transition(nn.Module):
    def __init__(self, dim, n=4):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1 = LinearNoBias(dim, n * dim)
        self.fc2 = LinearNoBias(dim, n * dim)
        self.fc3 = LinearNoBias(n * dim, dim, init="final")

    def forward(self, x):
        x = self.norm(x)
        return self.fc3(F.silu(self.fc1(x)) * self.fc2(x))


class TriangleMultiplication(nn.Module):
    def __init__(self, dim, outgoing=True):
        super().__init__()
        self.outgoing = outgoing
        self.norm_in = nn.LayerNorm(dim)
        self.p_in = LinearNoBias(dim, 2 * dim)
        self.g_in = LinearNoBias(dim, 2 * dim, init="gating")
        self.norm_out = nn.LayerNorm(dim)
        self.p_out = LinearNoBias(dim, dim, init="final")
        self.g_out = LinearNoBias(dim, dim, init="gating")

    def forward(self, x, mask):
        x = self.norm_in(x)
        x_in = x
        x = self.p_in(x) * self.g_in(x).sigmoid()
        x = x * mask.unsqueeze(-1)
        a, b = torch.chunk(x, 2, dim=-1)
        if self.outgoing:
            x = torch.einsum("bikd,bjkd->bijd", a, b)
        else:
            x = torch.einsum("bkid,bkjd->bijd", a, b)
        return self.p_out(self.norm_out(x)) * self.g_out(x_in).sigmoid()


class TriangleAttention(nn.Module):
    def __init__(self, dim, heads, dim_head=32, starting=True):
        super().__init__()
        self.starting, self.h, self.dh = starting, heads, dim_head
        self.norm = nn.LayerNorm(dim)
        self.bias = LinearNoBias(dim, heads)
        self.qkvg = LinearNoBias(dim, 4 * heads * dim_head)
        self.o = LinearNoBias(heads * dim_head, dim, init="final")

    def forward(self, x, mask):
        if not self.starting:
            x, mask = x.transpose(1, 2), mask.transpose(1, 2)
        x = self.norm(x)
        B, I, J, _ = x.shape
        q, k, v, g = self.qkvg(x).view(B, I, J, 4, self.h, self.dh).permute(3, 0, 1, 4, 2, 5).unbind(0)
        att = torch.matmul(q * self.dh ** -0.5, k.transpose(-1, -2))
        att += self.bias(x).permute(0, 3, 1, 2).unsqueeze(1)
        att = att + (1e9 * (mask - 1))[:, :, None, None, :]
        att = att.softmax(-1)
        o = torch.matmul(att, v) * torch.sigmoid(g)
        o = self.o(o.transpose(2, 3).flatten(3))
        return o if self.starting else o.transpose(1, 2)


class MSARowAttentionWithPairBias(nn.Module):
    def __init__(self, c_m, c_z, heads=8, dim_head=24):
        super().__init__()
        self.h, self.dh = heads, dim_head
        self.norm_m, self.norm_z = nn.LayerNorm(c_m), nn.LayerNorm(c_z)
        self.b = LinearNoBias(c_z, heads)
        self.v = LinearNoBias(c_m, heads * dim_head)
        self.g = LinearNoBias(c_m, heads * dim_head, init="gating")
        self.o = LinearNoBias(heads * dim_head, c_m, init="final")

    def forward(self, m, z, mask):
        m = self.norm_m(m)
        v = self.v(m).unflatten(-1, (self.h, self.dh))
        b = self.b(self.norm_z(z)) + (1e9 * (mask - 1)).unsqueeze(-1)
        w = b.softmax(dim=2)
        o = torch.einsum("bijh,bsjhd->bsihd", w, v).flatten(-2)
        return self.o(o * self.g(m).sigmoid())


class OuterProductMean(nn.Module):
    def __init__(self, c_m, c_z, c_hidden=16):
        super().__init__()
        self.norm = nn.LayerNorm(c_m)
        self.a, self.b = LinearNoBias(c_m, c_hidden), LinearNoBias(c_m, c_hidden)
        self.o = nn.Linear(c_hidden ** 2, c_z)

    def forward(self, m, msa_mask):
        m = self.norm(m)
        mk = msa_mask.unsqueeze(-1)
        a, b = self.a(m) * mk, self.b(m) * mk
        z = torch.einsum("bsic,bsjd->bijcd", a, b).flatten(-2)
        n = torch.einsum("bsi,bsj->bij", msa_mask, msa_mask).clamp(min=1).unsqueeze(-1)
        return self.o(z / n)


def dropout_row(z, p, training, dim=1):
    if not training:
        return torch.ones_like(z[:, :1])
    d = z[:, :1, :, :1] if dim == 1 else z[:, :, :1, :1]
    keep = (torch.rand_like(d) >= p).to(z.dtype)
    return keep / (1.0 - p)


class Block(nn.Module):
    def __init__(self, c_m, c_z, p=0.25):
        super().__init__()
        self.p = p
        self.row = MSARowAttentionWithPairBias(c_m, c_z)
        self.m_trans = Transition(c_m)
        self.opm = OuterProductMean(c_m, c_z)
        self.tri_out = TriangleMultiplication(c_z, True)
        self.tri_in = TriangleMultiplication(c_z, False)
        self.att_start = TriangleAttention(c_z, 2, starting=True)
        self.att_end = TriangleAttention(c_z, 2, starting=False)
        self.z_trans = Transition(c_z, 2)

    def forward(self, m, z, pair_mask, msa_mask):
        m = m + self.row(m, z, pair_mask)
        m = m + self.m_trans(m)
        z = z + self.opm(m, msa_mask)
        z = z + dropout_row(z, self.p, self.training) * self.tri_out(z, pair_mask)
        z = z + dropout_row(z, self.p, self.training) * self.tri_in(z, pair_mask)
        z = z + dropout_row(z, self.p, self.training) * self.att_start(z, pair_mask)
        z = z + dropout_row(z, self.p, self.training, dim=2) * self.att_end(z, pair_mask)
        z = z + self.z_trans(z)
        return m, z


class Model(nn.Module):
    def __init__(self, c_m=192, c_z=64, depth=3, n_aa=23, recycles=1, ckpt_from=1):
        super().__init__()
        self.ckpt_from, self.recycles = ckpt_from, recycles
        self.msa_embed = nn.Embedding(n_aa, c_m)
        self.seq_proj = nn.Embedding(n_aa, c_m)
        self.left, self.right = nn.Embedding(n_aa, c_z), nn.Embedding(n_aa, c_z)
        self.relpos = nn.Embedding(2 * 32 + 1, c_z)
        self.rec_m, self.rec_z = nn.LayerNorm(c_m), nn.LayerNorm(c_z)
        self.rec_d = nn.Linear(15, c_z)
        self.blocks = nn.ModuleList(Block(c_m, c_z) for _ in range(depth))
        self.single = nn.Linear(c_m, 384)
        self.distogram = nn.Linear(c_z, 64)
        self.msa_head = nn.Linear(c_m, n_aa)
        self.plddt = nn.Sequential(nn.LayerNorm(384), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 50))
        self.to_xyz = nn.Linear(384, 3)
        self.register_buffer("edges", torch.linspace(2.3125, 21.6875, 63) ** 2, persistent=False)
        self.register_buffer("rec_edges", torch.linspace(3.25, 20.75, 14) ** 2, persistent=False)

    def trunk(self, m, z, pair_mask, msa_mask):
        for i, blk in enumerate(self.blocks):
            fn = partial(blk, pair_mask=pair_mask, msa_mask=msa_mask)
            if self.training and i >= self.ckpt_from:
                m, z = checkpoint(fn, m, z, use_reentrant=False)
            else:
                m, z = fn(m, z)
        return m, z

    def forward(self, aatype, msa, res_mask, bert_mask, true_cb):
        L = aatype.shape[1]
        pos = torch.arange(L, device=aatype.device)
        rel = (pos[:, None] - pos[None]).clamp(-32, 32) + 32
        pair_mask = res_mask[:, :, None] * res_mask[:, None, :]
        msa_mask = res_mask[:, None].expand(-1, msa.shape[1], -1)
        msa_in = torch.where(bert_mask > 0.5, torch.full_like(msa, 22), msa)
        m0 = self.msa_embed(msa_in) + self.seq_proj(aatype).unsqueeze(1)
        z0 = self.left(aatype).unsqueeze(2) + self.right(aatype).unsqueeze(1) + self.relpos(rel)

        m_prev = z_prev = None
        for r in range(self.recycles):
            with torch.no_grad():
                m_prev, z_prev = self.trunk(m0, z0, pair_mask, msa_mask)
        m, z = m0, z0
        if exists(m_prev):
            x_prev = self.to_xyz(self.single(m_prev[:, 0])).detach()
            d2 = (x_prev[:, :, None] - x_prev[:, None]).pow(2).sum(-1)
            oh = F.one_hot((d2.unsqueeze(-1) > self.rec_edges).long().sum(-1), 15).float()
            m = torch.cat([m[:, :1] + self.rec_m(m_prev[:, :1]), m[:, 1:]], dim=1)
            z = z + self.rec_z(z_prev) + self.rec_d(oh)
        m, z = self.trunk(m, z, pair_mask, msa_mask)

        s = self.single(m[:, 0])
        xyz = self.to_xyz(s)
        logits = self.distogram(z)
        logits = logits + logits.transpose(1, 2)
        true_d2 = (true_cb[:, :, None] - true_cb[:, None]).pow(2).sum(-1)
        target = (true_d2.unsqueeze(-1) > self.edges).sum(-1)
        ce = softmax_cross_entropy(logits, F.one_hot(target, 64))
        l_dist = (ce * pair_mask).sum() / (pair_mask.sum() + 1e-6)
        nll = -F.log_softmax(self.msa_head(m), -1).gather(-1, msa.unsqueeze(-1)).squeeze(-1)
        l_msa = (nll * bert_mask).sum() / (bert_mask.sum() + 1e-6)
        pd = (xyz[:, :, None] - xyz[:, None]).pow(2).sum(-1).add(1e-8).sqrt()
        td = true_d2.add(1e-8).sqrt()
        err = (pd - td).abs()
        l_xyz = ((err.clamp(max=10.0) * pair_mask).sum((1, 2)) / pair_mask.sum((1, 2))).mean() / 10
        with torch.no_grad():
            near = (td < 15.0).float() * pair_mask
            sc = 0.25 * sum((err < t).float() for t in (0.5, 1.0, 2.0, 4.0))
            lddt = (sc * near).sum(-1) / (near.sum(-1) + 1e-6)
            bins = (lddt * 50).floor().long().clamp(0, 49)
        l_conf = F.cross_entropy(self.plddt(s.detach()).transpose(1, 2), bins)
        loss = 0.3 * l_dist + 2.0 * l_msa + l_xyz + 0.01 * l_conf
        return loss, {"distogram": logits, "xyz": xyz}


def inputs(batch):
    L, S = 80, 32
    mask = torch.ones(batch, L)
    mask[:, 74:] = 0
    return (torch.randint(0, 20, (batch, L)), torch.randint(0, 22, (batch, S, L)), mask,
            (torch.rand(batch, S, L) < 0.15).float(), torch.randn(batch, L, 3) * 8)
