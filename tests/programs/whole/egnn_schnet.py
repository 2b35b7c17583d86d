"""Equivariant denoiser + energy regressor for QM9.

The trunk is an EGNN (Satorras et al.) whose edge function uses SchNet-type continuous filters.
Pre-training (coordinate denoising) and the energy head share one forward pass.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class ShiftedSoftplus(nn.Softplus):
    def forward(self, x):
        return super().forward(x) - math.log(2.0)


class CosineCutoff(nn.Module):
    def __init__(self, cutoff):
        super().__init__()
        self.cutoff = cutoff

    def forward(self, d):
        c = 0.5 * (torch.cos(d * math.pi / self.cutoff) + 1.0)
        return c * (d < self.cutoff).to(d.dtype)


class ExpNormalSmearing(nn.Module):
    """PhysNet radial basis, trainable."""

    def __init__(self, cutoff=5.0, num_rbf=64):
        super().__init__()
        self.cutoff_fn = CosineCutoff(cutoff)
        self.alpha = 5.0 / cutoff
        start = math.exp(-cutoff)
        means = torch.linspace(start, 1, num_rbf)
        betas = torch.full((num_rbf,), (2 / num_rbf * (1 - start)) ** -2)
        self.means = nn.Parameter(means)
        self.betas = nn.Parameter(betas)

    def forward(self, dist):
        dist = dist.unsqueeze(-1)
        return self.cutoff_fn(dist) * torch.exp(
            -self.betas * (torch.exp(-self.alpha * dist) - self.means) ** 2)


class MLP(nn.Sequential):
    def __init__(self, *dims, act=nn.SiLU, last_act=False):
        layers = []
        for i, (a, b) in enumerate(zip(dims[:-1], dims[1:])):
            layers.append(nn.Linear(a, b))
            if last_act or i < len(dims) - 2:
                layers.append(act())
        super().__init__(*layers)


class CFInteraction(nn.Module):
    """SchNet continuous filter convolution over the dense masked neighbourhood."""

    def __init__(self, dim, num_rbf, n_filters):
        super().__init__()
        self.filter = MLP(num_rbf, n_filters, n_filters, act=ShiftedSoftplus)
        self.in2f = nn.Linear(dim, n_filters, bias=False)
        self.f2out = MLP(n_filters, dim, dim, act=ShiftedSoftplus)

    def forward(self, h, rbf, env):
        W = self.filter(rbf) * env.unsqueeze(-1)        # B N N F
        y = self.in2f(h)
        y = torch.einsum('bijf,bjf->bif', W, y)
        return self.f2out(y)


class EquivariantBlock(nn.Module):
    def __init__(self, dim, num_rbf, edge_dim=128, coords_range=3.0):
        super().__init__()
        self.coords_range = coords_range
        self.node_i = nn.Linear(dim, edge_dim)
        self.node_j = nn.Linear(dim, edge_dim, bias=False)
        self.edge_rbf = nn.Linear(num_rbf, edge_dim, bias=False)
        self.edge_mlp = MLP(edge_dim, edge_dim, last_act=True)
        self.att = nn.Sequential(nn.Linear(edge_dim, 1), nn.Sigmoid())
        self.coord_mlp = MLP(edge_dim, edge_dim, 1)
        nn.init.xavier_uniform_(self.coord_mlp[-1].weight, gain=0.001)
        self.node_mlp = MLP(dim + edge_dim, 2 * dim, dim)
        self.cf = CFInteraction(dim, num_rbf, edge_dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, x, rbf, edge_mask, node_mask):
        diff = x.unsqueeze(2) - x.unsqueeze(1)
        d2 = diff.square().sum(-1, keepdim=True)
        hn = self.norm(h)
        m = F.silu(self.node_i(hn).unsqueeze(2) + self.node_j(hn).unsqueeze(1) + self.edge_rbf(rbf))
        m = self.edge_mlp(m)
        m = m * self.att(m) * edge_mask.unsqueeze(-1)
        # coordinates
        unit = diff / (torch.sqrt(d2 + 1e-8) + 1.0)
        w = torch.tanh(self.coord_mlp(m)) * self.coords_range
        n_nb = edge_mask.sum(2, keepdim=True).clamp(min=1)
        x = x + (unit * w * edge_mask.unsqueeze(-1)).sum(2) / n_nb
        # features
        agg = m.sum(2) / n_nb.sqrt()
        h = h + self.node_mlp(torch.cat([hn, agg], -1))
        h = h + self.cf(hn, rbf, edge_mask)
        return h * node_mask, x * node_mask


def remove_mean(x, mask):
    return (x - (x * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)) * mask


class Model(nn.Module):
    max_z = 100

    def __init__(self, dim=192, depth=6, num_rbf=64, cutoff=6.0, noise=0.04, use_checkpoint=True):
        super().__init__()
        self.noise = noise
        self.cutoff = cutoff
        self.use_checkpoint = use_checkpoint
        self.z_emb = nn.Embedding(self.max_z, dim, padding_idx=0)
        self.nb_emb = nn.Embedding(self.max_z, dim, padding_idx=0)
        self.rbf = ExpNormalSmearing(cutoff, num_rbf)
        self.nb_filter = nn.Linear(num_rbf, dim)
        self.nb_out = nn.Linear(2 * dim, dim)
        self.blocks = nn.ModuleList(EquivariantBlock(dim, num_rbf) for _ in range(depth))
        self.energy = MLP(dim, dim // 2, 1, act=ShiftedSoftplus)
        self.charge = MLP(dim, dim // 2, 1, act=ShiftedSoftplus)
        self.atomref = nn.Embedding(self.max_z, 1, padding_idx=0)
        self.atomref.weight.requires_grad_(False)
        self.register_buffer('e_mean', torch.tensor(-4.2))
        self.register_buffer('e_std', torch.tensor(10.3))

    def neighbours(self, x, pair_mask):
        d = torch.sqrt((x.unsqueeze(2) - x.unsqueeze(1)).square().sum(-1) + 1e-8)
        return d, pair_mask * (d < self.cutoff).to(x.dtype)

    def forward(self, z, pos, energy, dipole):
        node_mask = (z > 0).to(pos.dtype).unsqueeze(-1)
        eye = torch.eye(z.size(1), device=z.device, dtype=pos.dtype)
        pair_mask = node_mask * node_mask.transpose(1, 2) * (1 - eye)
        pos = remove_mean(pos, node_mask)
        eps = remove_mean(torch.randn_like(pos), node_mask) * self.noise
        x = x0 = pos + eps

        d, edge_mask = self.neighbours(x, pair_mask)
        rbf = self.rbf(d)
        h = self.z_emb(z)
        nb = torch.einsum('bijc,bjc->bic', self.nb_filter(rbf) * edge_mask.unsqueeze(-1), self.nb_emb(z))
        h = self.nb_out(torch.cat([h, nb], -1)) * node_mask

        for blk in self.blocks:
            if self.use_checkpoint and self.training:
                h, x = checkpoint(blk, h, x, rbf, edge_mask, node_mask, use_reentrant=False)
            else:
                h, x = blk(h, x, rbf, edge_mask, node_mask)

        pred_eps = remove_mean(x - x0, node_mask)
        denoise = ((pred_eps + eps) ** 2 * node_mask).sum() / node_mask.sum() / self.noise ** 2

        e_atom = self.energy(h) * node_mask + self.atomref(z)
        e = e_atom.sum((1, 2)) * self.e_std + self.e_mean
        q = self.charge(h) * node_mask
        q = q - q.sum(1, keepdim=True) / node_mask.sum(1, keepdim=True) * node_mask
        mu = (q * pos).sum(1).norm(dim=-1)
        loss_e = F.l1_loss(e / self.e_std, energy / self.e_std)
        loss_mu = F.smooth_l1_loss(mu, dipole)
        return {'loss': loss_e + loss_mu + 0.1 * denoise, 'energy': e, 'dipole': mu, 'coords': x}


def inputs(batch):
    n = 29
    z = torch.tensor([1, 6, 7, 8, 9])[torch.randint(0, 5, (batch, n))]
    lengths = torch.randint(9, n + 1, (batch, 1))
    z = z * (torch.arange(n)[None] < lengths)
    return z, torch.randn(batch, n, 3) * 2.5, torch.randn(batch) * 10, torch.rand(batch) * 4
