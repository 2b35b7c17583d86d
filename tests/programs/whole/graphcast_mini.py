# encode - process - decode weather GNN (grid2mesh, multimesh, mesh2grid) at 5.6 deg, index_add aggregation
import math
from typing import Tuple

import torch
import torch.nn as nn
from torch import Tensor
from torch.utils.checkpoint import checkpoint

N_LAT, N_LON = 32, 64
N_VAR = 39          # 6 pressure-level variables x 6 levels + 3 surface
N_FORCE = 5
MESH_LAT, MESH_LON = 12, 24


def sphere(lat_n, lon_n):
    lat = torch.linspace(-math.pi / 2, math.pi / 2, lat_n + 2)[1:-1]
    lon = torch.arange(lon_n) * (2 * math.pi / lon_n)
    la, lo = torch.meshgrid(lat, lon, indexing="ij")
    xyz = torch.stack([la.cos() * lo.cos(), la.cos() * lo.sin(), la.sin()], -1)
    return xyz.reshape(-1, 3)


def knn_edges(src: Tensor, dst: Tensor, k: int) -> Tensor:
    d = torch.cdist(dst, src)
    near = d.topk(k, largest=False).indices
    recv = torch.arange(dst.shape[0]).repeat_interleave(k)
    return torch.stack([near.reshape(-1), recv])


def edge_features(src, dst, ei):
    v = src[ei[0]] - dst[ei[1]]
    length = v.norm(dim=-1, keepdim=True)
    return torch.cat([v, length], -1) / (length.max() + 1e-6)


def mlp(d_in, d_hid, d_out, norm=True):
    layers = [nn.Linear(d_in, d_hid), nn.SiLU(inplace=True), nn.Linear(d_hid, d_out)]
    if norm:
        layers.append(nn.LayerNorm(d_out))
    return nn.Sequential(*layers)


class SumMLP(nn.Module):
    """first linear split in three so that the concatenated edge tensor is never materialised"""

    def __init__(self, d_e, d_s, d_d, d_hid):
        super().__init__()
        self.lin_e = nn.Linear(d_e, d_hid, bias=False)
        self.lin_s = nn.Linear(d_s, d_hid, bias=False)
        self.lin_d = nn.Linear(d_d, d_hid, bias=True)
        self.rest = nn.Sequential(nn.SiLU(), nn.Linear(d_hid, d_hid), nn.LayerNorm(d_hid))

    def forward(self, e, s, d, src, dst):
        out = self.lin_e(e)
        out = out + torch.index_select(self.lin_s(s), 1, src)
        out += torch.index_select(self.lin_d(d), 1, dst)
        return self.rest(out)


class InteractionNet(nn.Module):
    def __init__(self, dim, update_edges=True):
        super().__init__()
        self.edge_mlp = SumMLP(dim, dim, dim, dim)
        self.node_mlp = mlp(2 * dim, dim, dim)
        self.update_edges = update_edges

    def forward(self, s: Tensor, d: Tensor, e: Tensor, src: Tensor, dst: Tensor) -> Tuple[Tensor, Tensor]:
        msg = self.edge_mlp(e, s, d, src, dst)
        agg = torch.zeros_like(d)
        agg = agg.index_add(1, dst, msg)
        d = d + self.node_mlp(torch.cat([d, agg], -1))
        if self.update_edges:
            e = e + msg
        return d, e


class Model(nn.Module):
    def __init__(self, dim: int = 192, n_proc: int = 6, steps: int = 2, use_ckpt: bool = True):
        super().__init__()
        self.steps, self.use_ckpt = steps, use_ckpt
        grid, mesh = sphere(N_LAT, N_LON), sphere(MESH_LAT, MESH_LON)
        coarse = torch.arange(0, mesh.shape[0], 7)
        g2m = knn_edges(grid, mesh, 12)
        fine = knn_edges(mesh, mesh, 7)
        long_e = knn_edges(mesh[coarse], mesh[coarse], 5)
        mm = torch.cat([fine, coarse[long_e], coarse[long_e].flip(0)], 1)
        m2g = knn_edges(mesh, grid, 3)
        for name, (s, d, ei) in {"g2m": (grid, mesh, g2m), "mm": (mesh, mesh, mm), "m2g": (mesh, grid, m2g)}.items():
            self.register_buffer(name, ei)
            self.register_buffer(name + "_attr", edge_features(s, d, ei))
        self.register_buffer("mesh_xyz", mesh)
        self.register_buffer("grid_xyz", grid)
        w = torch.cos(torch.asin(grid[:, 2]))
        self.register_buffer("area", (w / w.mean())[None, :, None])
        self.register_buffer("var_weight", torch.cat([torch.linspace(0.2, 1.0, 6).repeat(6), torch.tensor([1.0, .1, .1])]))
        self.register_buffer("diff_std", torch.full((N_VAR,), 0.3))

        self.grid_embed = mlp(2 * N_VAR + N_FORCE + 3, dim, dim)
        self.mesh_embed = mlp(3, dim, dim)
        self.e_embed = nn.ModuleDict({k: mlp(4, dim, dim) for k in ("g2m", "mm", "m2g")})
        self.enc = InteractionNet(dim, update_edges=False)
        self.enc_grid = mlp(dim, dim, dim)
        self.proc = nn.ModuleList(InteractionNet(dim) for _ in range(n_proc))
        self.dec = InteractionNet(dim, update_edges=False)
        self.out = mlp(dim, dim, N_VAR, norm=False)

    def _expand(self, x, like):
        return x.unsqueeze(0).expand(like.shape[0], -1, -1)

    def step(self, prev, cur, forcing):
        xyz = self._expand(self.grid_xyz, cur)
        g = self.grid_embed(torch.cat([prev, cur, forcing, xyz], -1))
        m = self._expand(self.mesh_embed(self.mesh_xyz), cur)
        e1 = self._expand(self.e_embed["g2m"](self.g2m_attr), cur)
        m, _ = self.enc(g, m, e1, self.g2m[0], self.g2m[1])
        g = g + self.enc_grid(g)
        e2 = self._expand(self.e_embed["mm"](self.mm_attr), cur)
        for i, layer in enumerate(self.proc):
            if self.use_ckpt and self.training and i > 1:
                m, e2 = checkpoint(layer, m, m, e2, self.mm[0], self.mm[1], use_reentrant=False)
            else:
                m, e2 = layer(m, m, e2, self.mm[0], self.mm[1])
        e3 = self._expand(self.e_embed["m2g"](self.m2g_attr), cur)
        g, _ = self.dec(m, g, e3, self.m2g[0], self.m2g[1])
        return cur + self.out(g) * self.diff_std

    def forward(self, x: Tensor, forcing: Tensor, target: Tensor):
        # x [B, 2, V, lat, lon]  forcing [B, S, F, lat, lon]  target [B, S, V, lat, lon]
        flat = lambda t: t.flatten(-2).transpose(-1, -2)
        prev, cur = flat(x[:, 0]), flat(x[:, 1])
        losses, preds = [], []
        for s in range(self.steps):
            nxt = self.step(prev, cur, flat(forcing[:, s]))
            err = (nxt - flat(target[:, s])) / self.diff_std
            losses.append((err.square() * self.area * self.var_weight).mean())
            preds.append(nxt)
            prev, cur = cur, nxt
        loss = torch.stack(losses).mean()
        return loss, torch.stack(preds, 1).detach()


def inputs(batch):
    return (torch.randn(batch, 2, N_VAR, N_LAT, N_LON), torch.randn(batch, 2, N_FORCE, N_LAT, N_LON),
            torch.randn(batch, 2, N_VAR, N_LAT, N_LON))
