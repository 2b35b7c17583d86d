"""
Probabilistic demand forecasting.

    history (scaled) + covariates -> S4D stack (FFT long convolution) -> negative binomial / student-t head

The structure of the head follows DeepAR; we only swapped the LSTM for diagonal state spaces.
"""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class S4DKernel(nn.Module):
    def __init__(self, d_model, N=32, dt_min=0.001, dt_max=0.1):
        super().__init__()
        log_dt = torch.rand(d_model) * (math.log(dt_max) - math.log(dt_min)) + math.log(dt_min)
        C = torch.randn(d_model, N // 2, dtype=torch.cfloat)
        self.C = nn.Parameter(torch.view_as_real(C))
        self.log_dt = nn.Parameter(log_dt)
        self.log_A_real = nn.Parameter(torch.log(0.5 * torch.ones(d_model, N // 2)))
        self.A_imag = nn.Parameter(math.pi * torch.arange(N // 2).float().repeat(d_model, 1))

    def forward(self, L):
        dt = torch.exp(self.log_dt)                                   # (H)
        C = torch.view_as_complex(self.C)                             # (H N)
        A = -torch.exp(self.log_A_real) + 1j * self.A_imag            # (H N)
        dtA = A * dt.unsqueeze(-1)
        K = dtA.unsqueeze(-1) * torch.arange(L, device=A.device)      # (H N L)
        C = C * (torch.exp(dtA) - 1.) / A
        K = 2 * torch.einsum('hn, hnl -> hl', C, torch.exp(K)).real
        return K


class S4D(nn.Module):
    def __init__(self, d_model, d_state=32, dropout=0.0):
        super().__init__()
        self.h = d_model
        self.D = nn.Parameter(torch.randn(self.h))
        self.kernel = S4DKernel(self.h, N=d_state)
        self.activation = nn.GELU()
        self.dropout = nn.Dropout1d(dropout) if dropout > 0.0 else nn.Identity()
        self.output_linear = nn.Sequential(nn.Conv1d(self.h, 2 * self.h, kernel_size=1), nn.GLU(dim=-2))

    def forward(self, u):  # (B H L)
        L = u.size(-1)
        k = self.kernel(L=L)
        k_f = torch.fft.rfft(k, n=2 * L)
        u_f = torch.fft.rfft(u, n=2 * L)
        y = torch.fft.irfft(u_f * k_f, n=2 * L)[..., :L]
        y = y + u * self.D.unsqueeze(-1)
        return self.output_linear(self.dropout(self.activation(y)))


class FeatureEmbedder(nn.Module):
    def __init__(self, cardinalities, dims):
        super().__init__()
        self.embedders = nn.ModuleDict({
            name: nn.Embedding(c, dims[name]) for name, c in cardinalities.items()
        })

    def forward(self, cats):
        return torch.cat([emb(cats[:, i]) for i, emb in enumerate(self.embedders.values())], dim=-1)


class NegativeBinomialOutput(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.proj = nn.ModuleDict({'mu': nn.Linear(d, 1), 'alpha': nn.Linear(d, 1)})

    def forward(self, h, scale):
        mu, alpha = (F.softplus(self.proj[k](h)).squeeze(-1) + 1e-4 for k in ('mu', 'alpha'))
        return mu * scale, alpha / scale.sqrt()

    @staticmethod
    def loss(z, mu, alpha):
        ia = 1. / alpha
        ll = torch.lgamma(z + ia) - torch.lgamma(z + 1.) - torch.lgamma(ia)
        ll += ia * -torch.log1p(alpha * mu)
        ll += z * (torch.log(alpha * mu) - torch.log1p(alpha * mu))
        return -ll


class StudentTOutput(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.proj = nn.Linear(d, 3)

    def forward(self, h, scale):
        df, loc, s = self.proj(h).unbind(-1)
        return 2. + F.softplus(df), loc * scale, (F.softplus(s) + 1e-4) * scale

    @staticmethod
    def loss(z, df, loc, s):
        y = (z - loc) / s
        Z = s.log() + .5 * df.log() + .5 * math.log(math.pi) + torch.lgamma(.5 * df) - torch.lgamma(.5 * (df + 1.))
        return .5 * (df + 1.) * torch.log1p(y ** 2 / df) + Z


class Model(nn.Module):
    heads = {'units': NegativeBinomialOutput, 'revenue': StudentTOutput}

    def __init__(self, d_model=128, n_layers=5, context_length=336, n_time_feat=6):
        super().__init__()
        self.context_length = context_length
        self.embedder = FeatureEmbedder(dict(store=54, item=4100, family=33), dict(store=16, item=120, family=8))
        self.input_proj = nn.Linear(2 + n_time_feat + 144, d_model)
        self.s4_layers, self.norms, self.dropouts = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for _ in range(n_layers):
            self.s4_layers.append(S4D(d_model, dropout=0.1))
            self.norms.append(nn.LayerNorm(d_model))
            self.dropouts.append(nn.Dropout1d(0.1))
        self.out = nn.ModuleDict({k: cls(d_model) for k, cls in self.heads.items()})

    def get_scale(self, target):
        return target[:, :self.context_length].abs().mean(dim=1, keepdim=True) + 1.0

    def forward(self, target, time_feat, cats):
        # target (B, T, 2): units, revenue
        z = {'units': target[..., 0].round(), 'revenue': target[..., 1]}
        scale = {k: self.get_scale(v) for k, v in z.items()}
        lagged = torch.stack([F.pad((v / scale[k])[:, :-1], (1, 0)) for k, v in z.items()], -1)
        static = self.embedder(cats)[:, None].expand(-1, lagged.size(1), -1)

        x = self.input_proj(torch.cat([lagged, time_feat, static], -1)).transpose(-1, -2)
        for layer, norm, drop in zip(self.s4_layers, self.norms, self.dropouts):
            x = drop(layer(norm(x.transpose(-1, -2)).transpose(-1, -2))) + x
        x = x.transpose(-1, -2)

        losses = {k: head.loss(z[k], *head(x, scale[k])).mean() for k, head in self.out.items()}
        losses['total'] = losses['units'] + 0.2 * losses['revenue']
        return losses


def inputs(batch):
    T = 336 + 48
    target = torch.stack([torch.randint(0, 40, (batch, T)).float(), torch.randn(batch, T) * 12 + 30], -1)
    cats = torch.stack([torch.randint(0, n, (batch,)) for n in (54, 4100, 33)], -1)
    return target, torch.randn(batch, T, 6), cats
