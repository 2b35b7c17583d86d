"""
Probabilistic tabular regression (30 features -> joint density of 8 targets).

  trunk      FT-style residual MLP on periodic embeddings
  density    conditional neural spline flow with LU-linear layers (nflows/normflows port)
             + a full covariance mixture density head on the base space
  gp         random-feature deep kernel (SNGP) head for out of distribution scores
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm

LOG2PI = math.log(2 * math.pi)
MIN_W = MIN_H = MIN_D = 1e-3


def rqs(x, uw, uh, ud, tail=4.0):
    """monotonic rational quadratic spline with linear tails; x [..., D], params [..., D, K]"""
    K = uw.shape[-1]
    inside = (x > -tail) & (x < tail)
    xin = x.clamp(-tail, tail)

    def knots(u, minimum):
        w = minimum + (1 - minimum * K) * F.softmax(u, dim=-1)
        c = F.pad(torch.cumsum(w, dim=-1), (1, 0))
        c = 2 * tail * c - tail
        return c, c[..., 1:] - c[..., :-1]

    cw, w = knots(uw, MIN_W)
    ch, h = knots(uh, MIN_H)
    const = math.log(math.exp(1 - MIN_D) - 1)
    d = MIN_D + F.softplus(F.pad(ud, (1, 1), value=const))

    idx = (xin.unsqueeze(-1) >= cw[..., 1:-1]).sum(-1, keepdim=True)
    take = lambda t: t.gather(-1, idx).squeeze(-1)
    x0, wk, y0, hk = take(cw[..., :-1]), take(w), take(ch[..., :-1]), take(h)
    d0, d1 = take(d[..., :-1]), take(d[..., 1:])
    s = hk / wk
    th = (xin - x0) / wk
    t1 = th * (1 - th)
    den = s + (d0 + d1 - 2 * s) * t1
    y = y0 + hk * (s * th.pow(2) + d0 * t1) / den
    num = s.pow(2) * (d1 * th.pow(2) + 2 * s * t1 + d0 * (1 - th).pow(2))
    lad = torch.log(num) - 2 * torch.log(den)
    return torch.where(inside, y, x), torch.where(inside, lad, torch.zeros_like(lad))


class ResBlock(nn.Module):
    def __init__(self, d, ctx=None, p=0.1, spectral=False):
        super().__init__()
        wrap = spectral_norm if spectral else (lambda m: m)
        self.l0, self.l1 = wrap(nn.Linear(d, d)), wrap(nn.Linear(d, d))
        self.n0, self.n1 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.ctx = nn.Linear(ctx, d) if ctx else None
        self.p = p

    def forward(self, x, c=None):
        t = self.l0(F.silu(self.n0(x)))
        t = self.l1(F.dropout(F.silu(self.n1(t)), self.p, self.training))
        if self.ctx is not None:
            t = F.glu(torch.cat((t, self.ctx(c)), dim=-1), dim=-1)
        return x + t


class LULinear(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n
        il, jl = torch.tril_indices(n, n, -1)
        self.register_buffer('il', il)
        self.register_buffer('jl', jl)
        k = n * (n - 1) // 2
        self.low = nn.Parameter(torch.zeros(k))
        self.up = nn.Parameter(torch.zeros(k))
        self.diag = nn.Parameter(torch.full((n,), math.log(math.e - 1)))
        self.bias = nn.Parameter(torch.zeros(n))
        self.register_buffer('perm', torch.randperm(n))

    def factors(self):
        L = torch.eye(self.n, device=self.low.device, dtype=self.low.dtype)
        U = torch.diag(F.softplus(self.diag) + 1e-3)
        L = L.index_put((self.il, self.jl), self.low)
        U = U.index_put((self.jl, self.il), self.up)
        return L, U

    def forward(self, y):
        # inverse direction (data -> noise), so solve rather than multiply
        L, U = self.factors()
        y = (y - self.bias)[:, self.perm]
        z = torch.linalg.solve_triangular(L, y.t(), upper=False, unitriangular=True)
        z = torch.linalg.solve_triangular(U, z, upper=True).t()
        return z, -torch.log(torch.diagonal(U)).sum()


class SplineCoupling(nn.Module):
    def __init__(self, n, ctx, hidden=256, bins=10, blocks=2, flip=False):
        super().__init__()
        self.n1 = n // 2
        self.flip = flip
        self.bins = bins
        n2 = n - self.n1
        self.inp = nn.Linear(self.n1 + ctx, hidden)
        self.blocks = nn.ModuleList([ResBlock(hidden, ctx) for _ in range(blocks)])
        self.out = nn.Linear(hidden, n2 * (3 * bins - 1))
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        # unconditional spline for the identity half
        self.free = nn.Parameter(torch.randn(self.n1, 3 * bins - 1) * 0.01)

    def split(self, prm):
        return prm[..., :self.bins], prm[..., self.bins:2 * self.bins], prm[..., 2 * self.bins:]

    def forward(self, y, c):
        if self.flip:
            y = y.flip(-1)
        a, b = y[:, :self.n1], y[:, self.n1:]
        h = self.inp(torch.cat([a, c], -1))
        for blk in self.blocks:
            h = blk(h, c)
        prm = self.out(h).unflatten(-1, (-1, 3 * self.bins - 1))
        b, lad_b = rqs(b, *self.split(prm))
        a, lad_a = rqs(a, *self.split(self.free.expand(a.shape[0], -1, -1)))
        return torch.cat([a, b], -1), lad_a.sum(-1) + lad_b.sum(-1)


class CholeskyMDN(nn.Module):
    def __init__(self, d_in, n, k):
        super().__init__()
        self.n, self.k = n, k
        self.tri = n * (n - 1) // 2
        self.pi = nn.Linear(d_in, k)
        self.mu = nn.Linear(d_in, k * n)
        self.cov = nn.Linear(d_in, k * n * n)

    def forward(self, h, z):
        A = self.cov(h).view(-1, self.k, self.n, self.n) * 0.1
        S = A @ A.mT + torch.eye(self.n, device=h.device)
        L = torch.linalg.cholesky(S)
        r = z.unsqueeze(1) - self.mu(h).view(-1, self.k, self.n)
        m = torch.linalg.solve_triangular(L, r.unsqueeze(-1), upper=False).squeeze(-1)
        logdet = L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        comp = -0.5 * (m.pow(2).sum(-1) + self.n * LOG2PI) - logdet
        return torch.logsumexp(F.log_softmax(self.pi(h), -1) + comp, -1)


class SNGP(nn.Module):
    def __init__(self, d, rff=512, ridge=1.0, momentum=0.99):
        super().__init__()
        self.norm = nn.LayerNorm(d, elementwise_affine=False)
        self.register_buffer('W', torch.randn(d, rff))
        self.register_buffer('b', torch.rand(rff) * 2 * math.pi)
        self.register_buffer('precision', torch.eye(rff) * ridge)
        self.beta = nn.Linear(rff, 1, bias=False)
        self.momentum = momentum
        self.rff = rff

    def forward(self, h):
        phi = math.sqrt(2 / self.rff) * torch.cos(self.norm(h) @ self.W + self.b)
        with torch.no_grad():
            self.precision.mul_(self.momentum).add_(phi.t() @ phi, alpha=1 - self.momentum)
            self.precision.diagonal().add_(1e-4)
            Lp = torch.linalg.cholesky(self.precision)
            v = torch.cholesky_solve(phi.t(), Lp)
            var = (phi.t() * v).sum(0)
        return self.beta(phi).squeeze(-1), var


class Model(nn.Module):
    n_feat, n_cat, n_out = 24, 6, 8

    def __init__(self, d=256, freqs=24, flows=6):
        super().__init__()
        self.freq = nn.Parameter(torch.randn(self.n_feat, freqs) * 0.3)
        self.num_w = nn.Parameter(torch.randn(self.n_feat, 2 * freqs, 16) / math.sqrt(2 * freqs))
        self.cat = nn.Embedding(self.n_cat * 50, 16)
        self.register_buffer('cat_off', torch.arange(self.n_cat) * 50)
        self.inp = nn.Linear((self.n_feat + self.n_cat) * 16, d)
        self.trunk = nn.ModuleList([ResBlock(d, spectral=True) for _ in range(3)])
        self.lin = nn.ModuleList([LULinear(self.n_out) for _ in range(flows)])
        self.coup = nn.ModuleList([SplineCoupling(self.n_out, d, flip=bool(i % 2)) for i in range(flows)])
        self.mdn = CholeskyMDN(d, self.n_out, 8)
        self.gp = SNGP(d)

    def forward(self, x, c, y):
        ang = 2 * math.pi * x.unsqueeze(-1) * self.freq
        e = torch.einsum('bnf,nfd->bnd', torch.cat([ang.cos(), ang.sin()], -1), self.num_w).relu_()
        e = torch.cat([e, self.cat(c + self.cat_off)], 1)
        h = self.inp(e.flatten(1))
        for blk in self.trunk:
            h = blk(h)
        z, logdet = y, 0.
        for lin, coup in zip(self.lin, self.coup):
            z, ld = lin(z)
            logdet = logdet + ld
            z, ld = coup(z, h)
            logdet = logdet + ld
        log_p = self.mdn(h, z) + logdet
        gp, var = self.gp(h)
        loss = -log_p.mean() + 0.5 * F.mse_loss(gp, y[:, 0])
        return loss, log_p, var


def inputs(batch):
    return torch.randn(batch, 24), torch.randint(0, 50, (batch, 6)), torch.randn(batch, 8)
