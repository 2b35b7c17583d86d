# ogbg-molpcba style: GATv2 + virtual node, no PyG on the cluster so everything is padded
# and we scatter by hand.
import torch
import torch.nn as nn
import torch.nn.functional as F

ATOM_DIMS = [119, 5, 12, 12, 10, 6, 6, 2, 2]
BOND_DIMS = [6, 7, 3]     # +1 on the first two for self loops / padding
N_MAX, E_MAX = 40, 96
TASKS = 128


def scatter_sum(src, index, size):
    out = src.new_zeros((size,) + src.shape[1:])
    return out.index_add_(0, index, src)


def scatter_mean(src, index, size):
    cnt = scatter_sum(torch.ones_like(src[:, :1]), index, size)
    return scatter_sum(src, index, size) / cnt.clamp_(min=1)


def scatter_max(src, index, size):
    out = torch.full((size,) + src.shape[1:], -1e4, dtype=src.dtype, device=src.device)
    idx = index.unsqueeze(-1).expand_as(src)
    return out.scatter_reduce(0, idx, src, reduce='amax', include_self=True)


def edge_softmax(score, dst, n, mask):
    # score [E, H]
    score = score.masked_fill(~mask.unsqueeze(-1), -1e4)
    with torch.no_grad():
        m = scatter_max(score, dst, n)
    e = (score - m[dst]).exp() * mask.unsqueeze(-1)
    z = scatter_sum(e, dst, n)
    return e / (z[dst] + 1e-16)


class CatEncoder(nn.Module):
    def __init__(self, dims, emb):
        super().__init__()
        self.embs = nn.ModuleList()
        for d in dims:
            e = nn.Embedding(d, emb)
            nn.init.xavier_uniform_(e.weight.data)
            self.embs.append(e)

    def forward(self, x):
        h = 0
        for i in range(x.shape[1]):
            h = h + self.embs[i](x[:, i])
        return h


class MaskedBN(nn.Module):
    """BN over real nodes only (padding rows would ruin the statistics)"""

    def __init__(self, d, momentum=0.1):
        super().__init__()
        self.w = nn.Parameter(torch.ones(d))
        self.b = nn.Parameter(torch.zeros(d))
        self.momentum = momentum
        self.register_buffer('rm', torch.zeros(d))
        self.register_buffer('rv', torch.ones(d))

    def forward(self, x, mask):
        if self.training:
            m = mask.to(x.dtype).unsqueeze(-1)
            n = m.sum().clamp(min=1)
            mean = (x * m).sum(0) / n
            var = ((x - mean).pow(2) * m).sum(0) / n
            with torch.no_grad():
                self.rm.mul_(1 - self.momentum).add_(mean.detach(), alpha=self.momentum)
                self.rv.mul_(1 - self.momentum).add_(var.detach(), alpha=self.momentum)
        else:
            mean, var = self.rm, self.rv
        return (x - mean) * torch.rsqrt(var + 1e-5) * self.w + self.b


class GATv2Conv(nn.Module):
    def __init__(self, d, heads, attn_drop=0.1):
        super().__init__()
        self.h, self.c = heads, d // heads
        self.lin_l = nn.Linear(d, d)
        self.lin_r = nn.Linear(d, d)
        self.bond = CatEncoder(BOND_DIMS, d)
        self.att = nn.Parameter(torch.empty(1, heads, self.c))
        self.bias = nn.Parameter(torch.zeros(d))
        self.attn_drop = attn_drop
        nn.init.xavier_uniform_(self.att)

    def forward(self, x, src, dst, eattr, emask):
        n = x.shape[0]
        xl = self.lin_l(x).view(-1, self.h, self.c)
        xr = self.lin_r(x).view(-1, self.h, self.c)
        e = self.bond(eattr).view(-1, self.h, self.c)
        xj = xl[src]
        g = F.leaky_relu(xj + xr[dst] + e, 0.2)
        alpha = edge_softmax((g * self.att).sum(-1), dst, n, emask)
        alpha = F.dropout(alpha, self.attn_drop, self.training)
        msg = (xj + e) * alpha.unsqueeze(-1)
        out = scatter_sum(msg, dst, n).flatten(1)
        return out + self.bias


def vn_mlp(d):
    return nn.Sequential(nn.Linear(d, 2 * d), nn.LayerNorm(2 * d), nn.ReLU(inplace=True),
                         nn.Linear(2 * d, d), nn.LayerNorm(d), nn.ReLU(inplace=True))


class Model(nn.Module):
    def __init__(self, d=256, heads=8, layers=5, drop=0.2, jk='sum'):
        super().__init__()
        self.drop, self.jk = drop, jk
        self.atom = CatEncoder(ATOM_DIMS, d)
        self.vn = nn.Embedding(1, d)
        nn.init.constant_(self.vn.weight, 0)
        self.convs = nn.ModuleList([GATv2Conv(d, heads) for _ in range(layers)])
        self.bns = nn.ModuleList([MaskedBN(d) for _ in range(layers)])
        self.ffs = nn.ModuleList([nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(True), nn.Linear(2 * d, d))
                                  for _ in range(layers)])
        self.vns = nn.ModuleList([vn_mlp(d) for _ in range(layers - 1)])
        self.gate = nn.Sequential(nn.Linear(d, d // 2), nn.Tanh(), nn.Linear(d // 2, 1))
        self.head = nn.Sequential(nn.Linear(3 * d, 2 * d), nn.ReLU(), nn.Dropout(0.3), nn.Linear(2 * d, TASKS))

    def forward(self, atoms, edge_index, bonds, n_nodes, n_edges, y):
        B, N, _ = atoms.shape
        E = edge_index.shape[2]
        dev = atoms.device
        nmask = (torch.arange(N, device=dev)[None] < n_nodes[:, None]).reshape(-1)
        emask = (torch.arange(E, device=dev)[None] < n_edges[:, None]).reshape(-1)
        offset = (torch.arange(B, device=dev) * N).view(B, 1)
        src = (edge_index[:, 0] % n_nodes[:, None] + offset).reshape(-1)
        dst = (edge_index[:, 1] % n_nodes[:, None] + offset).reshape(-1)
        batch = torch.arange(B, device=dev).repeat_interleave(N)
        bonds = bonds.reshape(B * E, -1)

        h = self.atom(atoms.reshape(B * N, -1)) * nmask.unsqueeze(-1)
        v = self.vn(torch.zeros(B, dtype=torch.long, device=dev))
        jk = [h]
        for i, conv in enumerate(self.convs):
            h_in = h + v[batch]
            z = conv(h_in, src, dst, bonds, emask)
            z = self.bns[i](z, nmask)
            z = z + self.ffs[i](z)
            if i < len(self.convs) - 1:
                z = F.relu(z)
            z = F.dropout(z, self.drop, self.training)
            h = (z + h_in) * nmask.unsqueeze(-1)
            jk.append(h)
            if i < len(self.vns):
                pooled = scatter_sum(h, batch, B)
                v = v + F.dropout(self.vns[i](pooled + v), self.drop, self.training)

        if self.jk == 'sum':
            h = sum(jk)
        # readout: attention + mean + max
        a = self.gate(h).masked_fill(~nmask.unsqueeze(-1), -1e4)
        a = torch.softmax(a.view(B, N), dim=1).reshape(-1, 1)
        r_att = scatter_sum(a * h, batch, B)
        r_mean = scatter_sum(h, batch, B) / n_nodes.unsqueeze(-1)
        r_max = scatter_max(h.masked_fill(~nmask.unsqueeze(-1), -1e4), batch, B)
        logits = self.head(torch.cat([r_att, r_mean, r_max], -1))

        # labels have NaN where unmeasured
        known = ~torch.isnan(y)
        target = torch.where(known, y, torch.zeros_like(y))
        loss = F.binary_cross_entropy_with_logits(logits, target, reduction='none')
        loss = (loss * known).sum() / known.sum().clamp(min=1)
        return logits, loss


def inputs(batch):
    atoms = torch.stack([torch.randint(0, d, (batch, N_MAX)) for d in ATOM_DIMS], -1)
    bonds = torch.stack([torch.randint(0, d, (batch, E_MAX)) for d in BOND_DIMS], -1)
    ei = torch.randint(0, N_MAX, (batch, 2, E_MAX))
    n_nodes = torch.randint(10, N_MAX + 1, (batch,))
    n_edges = torch.randint(20, E_MAX + 1, (batch,))
    y = torch.randint(0, 2, (batch, TASKS)).float()
    y[torch.rand(batch, TASKS) < 0.4] = float('nan')
    return atoms, ei, bonds, n_nodes, n_edges, y
