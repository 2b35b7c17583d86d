"""PaiNN (polarizable atom interaction network) on dense, padded molecules.

Scalars ``s`` have shape (B, N, F), vectors ``v`` (B, N, 3, F); all pairs within the cutoff interact.
"""
import math
from typing import Dict, Tuple

import torch
from torch import Tensor, nn


class BesselBasis(nn.Module):
    """sin(n pi r / rc) / r"""

    def __init__(self, n_rbf: int = 20, cutoff: float = 5.0) -> None:
        super().__init__()
        self.cutoff = cutoff
        freqs = torch.arange(1, n_rbf + 1) * math.pi / cutoff
        self.register_buffer("freqs", freqs)

    def forward(self, d: Tensor) -> Tensor:
        d = d[..., None]
        return torch.sin(d * self.freqs) / d


class CosineCutoff(nn.Module):
    def __init__(self, cutoff: float = 5.0) -> None:
        super().__init__()
        self.register_buffer("cutoff", torch.tensor(cutoff))

    def forward(self, d: Tensor) -> Tensor:
        out = 0.5 * (torch.cos(d * math.pi / self.cutoff) + 1.0)
        return out * (d < self.cutoff).to(d.dtype)


class PaiNNInteraction(nn.Module):
    def __init__(self, n_feat: int, n_rbf: int) -> None:
        super().__init__()
        self.n_feat = n_feat
        self.phi = nn.Sequential(
            nn.Linear(n_feat, n_feat),
            nn.SiLU(),
            nn.Linear(n_feat, 3 * n_feat),
        )
        self.filter = nn.Linear(n_rbf, 3 * n_feat)

    def forward(self, s: Tensor, v: Tensor, rbf: Tensor, fcut: Tensor, unit: Tensor) -> Tuple[Tensor, Tensor]:
        w = self.filter(rbf) * fcut.unsqueeze(-1)                   # B N N 3F
        x = self.phi(s).unsqueeze(1) * w                           # j runs over dim 2
        ds, dv1, dv2 = torch.split(x, self.n_feat, dim=-1)
        ds = ds.sum(dim=2)
        # sum_j v_j * dv1_ij  and  sum_j dv2_ij * r_ij/|r_ij|
        dv = torch.einsum("bijf,bjcf->bicf", dv1, v)
        dv = dv + torch.einsum("bijf,bijc->bicf", dv2, unit)
        return s + ds, v + dv


class PaiNNMixing(nn.Module):
    def __init__(self, n_feat: int, eps: float = 1e-8) -> None:
        super().__init__()
        self.n_feat, self.eps = n_feat, eps
        self.mu_mix = nn.Linear(n_feat, 2 * n_feat, bias=False)
        self.ctx = nn.Sequential(
            nn.Linear(2 * n_feat, n_feat),
            nn.SiLU(),
            nn.Linear(n_feat, 3 * n_feat),
        )

    def forward(self, s: Tensor, v: Tensor) -> Tuple[Tensor, Tensor]:
        v_v, v_w = self.mu_mix(v).chunk(2, dim=-1)
        v_norm = torch.sqrt(torch.sum(v_v ** 2, dim=-2) + self.eps)
        ds, dv, dsv = self.ctx(torch.cat([s, v_norm], dim=-1)).chunk(3, dim=-1)
        s = s + ds + dsv * torch.sum(v_v * v_w, dim=-2)
        v = v + dv.unsqueeze(-2) * v_w
        return s, v


class GatedEquivariantBlock(nn.Module):
    def __init__(self, f_in: int, f_out: int, scalar_act: bool = True) -> None:
        super().__init__()
        self.f_out = f_out
        self.w1 = nn.Linear(f_in, f_in, bias=False)
        self.w2 = nn.Linear(f_in, f_out, bias=False)
        self.net = nn.Sequential(nn.Linear(2 * f_in, f_in), nn.SiLU(), nn.Linear(f_in, 2 * f_out))
        self.act = nn.SiLU() if scalar_act else nn.Identity()

    def forward(self, s: Tensor, v: Tensor) -> Tuple[Tensor, Tensor]:
        n = (self.w1(v).square().sum(dim=-2) + 1e-8).sqrt()
        s, gate = self.net(torch.cat((s, n), -1)).split(self.f_out, dim=-1)
        return self.act(s), gate.unsqueeze(-2) * self.w2(v)


class Model(nn.Module):
    def __init__(self, n_feat: int = 128, n_layers: int = 3, n_rbf: int = 20, cutoff: float = 5.0, max_z: int = 36) -> None:
        super().__init__()
        self.n_feat = n_feat
        self.embedding = nn.Embedding(max_z, n_feat, padding_idx=0)
        self.radial = BesselBasis(n_rbf, cutoff)
        self.cutoff_fn = CosineCutoff(cutoff)
        self.interactions = nn.ModuleList(PaiNNInteraction(n_feat, n_rbf) for _ in range(n_layers))
        self.mixings = nn.ModuleList(PaiNNMixing(n_feat) for _ in range(n_layers))
        self.dipole_1 = GatedEquivariantBlock(n_feat, n_feat // 2)
        self.dipole_2 = GatedEquivariantBlock(n_feat // 2, 1, scalar_act=False)
        self.energy = nn.Sequential(nn.Linear(n_feat, n_feat // 2), nn.SiLU(), nn.Linear(n_feat // 2, 1))
        self.atomref = nn.Embedding(max_z, 1, padding_idx=0)

    def forward(self, z: Tensor, pos: Tensor) -> Dict[str, Tensor]:
        n_atoms = z.shape[1]
        mask = (z > 0).to(pos.dtype)
        diff = pos.unsqueeze(1) - pos.unsqueeze(2)                  # r_ij = r_j - r_i
        eye = torch.eye(n_atoms, device=pos.device, dtype=pos.dtype)
        dist = torch.sqrt(diff.pow(2).sum(-1) + eye + 1e-6)
        unit = diff / dist.unsqueeze(-1)
        pair = mask.unsqueeze(1) * mask.unsqueeze(2) * (1.0 - eye)
        rbf, fcut = self.radial(dist), self.cutoff_fn(dist) * pair

        s = self.embedding(z)
        v = s.new_zeros(s.shape[0], n_atoms, 3, self.n_feat)
        for interaction, mixing in zip(self.interactions, self.mixings):
            s, v = interaction(s, v, rbf, fcut, unit)
            s, v = mixing(s, v)

        e_atom = (self.energy(s) + self.atomref(z)).squeeze(-1) * mask
        q, mu = self.dipole_2(*self.dipole_1(s, v))
        q = q * mask.unsqueeze(-1)
        q = q - q.sum(1, keepdim=True) / mask.sum(1)[:, None, None] * mask.unsqueeze(-1)
        dipole = (mu.squeeze(-1) * mask.unsqueeze(-1) + q * pos).sum(dim=1)
        return {"energy": e_atom.sum(dim=1), "dipole": dipole, "charges": q.squeeze(-1)}


def inputs(batch: int):
    z = torch.randint(1, 10, (batch, 36))
    z[:, 30:] = 0
    return z, torch.randn(batch, 36, 3) * 2.5
