'''minimal byte-level mamba, no cuda kernels, chunk checkpointing so it fits my 8GB card'''
import math
import torch
from torch import nn, Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

def exists(v): return v is not None
def default(v, d): return v if exists(v) else d


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = dim ** 0.5
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.normalize(x, dim = -1) * self.scale * self.gamma


def selective_scan(u, dt, A, B, C, D, h):
    """
    b - batch, l - length, d - inner dim, n - state
    u, dt: (b l d)   A: (d n)   B, C: (b l n)   h: (b d n)
    """
    dA = torch.einsum('b l d, d n -> b l d n', dt, A).exp()
    dBu = torch.einsum('b l d, b l n, b l d -> b l d n', dt, B, u)

    ys = []
    for a_t, b_t, c_t in zip(dA.unbind(1), dBu.unbind(1), C.unbind(1)):
        h = torch.addcmul(b_t, a_t, h)
        ys.append(torch.einsum('b d n, b n -> b d', h, c_t))

    y = torch.stack(ys, dim = 1) + u * D
    return y, h


class MambaBlock(nn.Module):
    def __init__(
        self,
        dim,
        expand = 2,
        d_state = 16,
        d_conv = 4,
        dt_rank = None,
        chunk = 32,
        dt_min = 1e-3,
        dt_max = 0.1,
    ):
        super().__init__()
        inner = dim * expand
        self.inner, self.d_state, self.chunk = inner, d_state, chunk
        self.dt_rank = default(dt_rank, math.ceil(dim / 16))

        self.in_proj = nn.Linear(dim, inner * 2, bias = False)
        self.conv = nn.Conv1d(inner, inner, d_conv, groups = inner, padding = d_conv - 1)
        self.x_proj = nn.Linear(inner, self.dt_rank + d_state * 2, bias = False)
        self.dt_proj = nn.Linear(self.dt_rank, inner)
        self.out_proj = nn.Linear(inner, dim, bias = False)

        self.A_log = nn.Parameter(torch.arange(1, d_state + 1).float().repeat(inner, 1).log())
        self.D = nn.Parameter(torch.ones(inner))

        # softplus^-1 of log-uniform dt
        dt = torch.exp(torch.rand(inner) * (math.log(dt_max) - math.log(dt_min)) + math.log(dt_min))
        with torch.no_grad():
            self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))

    def ssm(self, x: Tensor) -> Tensor:
        A = -self.A_log.exp()
        dt, B, C = self.x_proj(x).split([self.dt_rank, self.d_state, self.d_state], dim = -1)
        dt = F.softplus(self.dt_proj(dt))

        h = x.new_zeros(x.shape[0], self.inner, self.d_state)
        outs = []
        for args in zip(*(t.split(self.chunk, dim = 1) for t in (x, dt, B, C))):
            u_c, dt_c, B_c, C_c = args
            if self.training:
                y, h = checkpoint(selective_scan, u_c, dt_c, A, B_c, C_c, self.D, h, use_reentrant = False)
            else:
                y, h = selective_scan(u_c, dt_c, A, B_c, C_c, self.D, h)
            outs.append(y)
        return torch.cat(outs, dim = 1)

    def forward(self, x):
        n = x.shape[1]
        x, gate = self.in_proj(x).chunk(2, dim = -1)
        x = self.conv(x.transpose(1, 2))[..., :n].transpose(1, 2)
        x = self.ssm(F.silu(x))
        return self.out_proj(x * F.silu(gate))


class Residual(nn.Module):
    def __init__(self, dim, fn):
        super().__init__()
        self.norm = RMSNorm(dim)
        self.fn = fn

    def forward(self, x):
        return x + self.fn(self.norm(x))


class Model(nn.Module):
    def __init__(self, *, num_tokens = 256, dim = 192, depth = 4):
        super().__init__()
        self.token_emb = nn.Embedding(num_tokens, dim)
        self.layers = nn.Sequential(*[Residual(dim, MambaBlock(dim)) for _ in range(depth)])
        self.to_logits = nn.Sequential(RMSNorm(dim), nn.Linear(dim, num_tokens, bias = False))

    def forward(self, seq):
        inp, labels = seq[:, :-1], seq[:, 1:]
        logits = self.to_logits(self.layers(self.token_emb(inp)))
        return F.cross_entropy(logits.transpose(1, 2), labels)


def inputs(batch):
    return (torch.randint(0, 256, (batch, 97)),)
