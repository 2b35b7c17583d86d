# N-HiTS, https://arxiv.org/abs/2201.12886
# hourly electricity data: 14 days in, 4 days out, 3 calendar features known in advance, 1 static id
from typing import List, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F

ACTIVATIONS = {"relu": nn.ReLU, "selu": nn.SELU, "prelu": nn.PReLU, "silu": nn.SiLU}
POOLS = {"max": nn.MaxPool1d, "avg": nn.AvgPool1d}


class _IdentityBasis(nn.Module):
    def __init__(self, backcast_size: int, forecast_size: int, interpolation_mode: str, out_features: int = 1):
        super().__init__()
        assert interpolation_mode in ("linear", "nearest", "cubic")
        self.forecast_size = forecast_size
        self.backcast_size = backcast_size
        self.interpolation_mode = interpolation_mode
        self.out_features = out_features

    def forward(self, theta: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        backcast = theta[:, : self.backcast_size]
        knots = theta[:, self.backcast_size:]
        knots = knots.reshape(knots.size(0), self.out_features, -1)
        if self.interpolation_mode in ("nearest", "linear"):
            forecast = F.interpolate(knots, size=self.forecast_size, mode=self.interpolation_mode)
        else:
            forecast = F.interpolate(knots[:, :, None, :], size=(1, self.forecast_size), mode="bicubic")[:, :, 0]
        return backcast, forecast.permute(0, 2, 1)


class NHITSBlock(nn.Module):
    def __init__(self, input_size, h, n_theta, mlp_units, basis, futr_size, stat_size, pool_kernel,
                 pooling_mode="max", dropout=0.0, activation="relu"):
        super().__init__()
        self.pooling = POOLS[pooling_mode](kernel_size=pool_kernel, stride=pool_kernel, ceil_mode=True)
        pooled = -(-input_size // pool_kernel)
        pooled_f = -(-(input_size + h) // pool_kernel)
        width = pooled + futr_size * pooled_f + stat_size
        act = ACTIVATIONS[activation]
        layers: List[nn.Module] = []
        for units in mlp_units:
            layers.append(nn.Linear(width, units))
            layers.append(act())
            if dropout > 0:
                layers.append(nn.Dropout(p=dropout))
            width = units
        layers.append(nn.Linear(width, n_theta))
        self.layers = nn.Sequential(*layers)
        self.basis = basis

    def forward(self, insample_y, futr_exog, stat):
        y = self.pooling(insample_y.unsqueeze(1)).squeeze(1)
        parts = [y]
        x = self.pooling(futr_exog.permute(0, 2, 1))
        parts.append(x.flatten(1))
        parts.append(stat)
        return self.basis(self.layers(torch.cat(parts, dim=1)))


class RevIN(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.ones(1))
        self.shift = nn.Parameter(torch.zeros(1))

    def norm(self, x, mask):
        n = mask.sum(1, keepdim=True).clamp(min=1)
        mean = ((x * mask).sum(1, keepdim=True) / n).detach()
        std = ((((x - mean) * mask) ** 2).sum(1, keepdim=True) / n + self.eps).sqrt().detach()
        return ((x - mean) / std * self.gain + self.shift) * mask, (mean, std)

    def denorm(self, y, state):
        mean, std = (s.unsqueeze(-1) for s in state)
        return (y - self.shift) / (self.gain + self.eps) * std + mean


class MQLoss(nn.Module):
    def __init__(self, quantiles):
        super().__init__()
        self.register_buffer("q", torch.tensor(quantiles))

    def forward(self, y, y_hat, mask):
        err = y.unsqueeze(-1) - y_hat
        loss = torch.maximum(self.q * err, (self.q - 1) * err)
        return (loss.mean(-1) * mask).sum() / mask.sum().clamp(min=1)


class Model(nn.Module):
    def __init__(
        self,
        h=96,
        input_size=336,
        n_futr=3,
        n_series=370,
        stat_dim=16,
        n_blocks=(1, 2, 2),
        mlp_units=((768, 768), (768, 768), (768, 768, 512)),
        n_pool_kernel_size=(8, 4, 1),
        n_freq_downsample=(24, 12, 1),
        pooling_mode="max",
        interpolation_mode="linear",
        quantiles=(0.1, 0.25, 0.5, 0.75, 0.9),
        dropout=0.1,
    ):
        super().__init__()
        self.h, self.input_size = h, input_size
        self.static = nn.Embedding(n_series, stat_dim)
        self.revin = RevIN()
        self.loss = MQLoss(quantiles)
        self.n_out = len(quantiles)
        self.blocks = nn.ModuleList(
            self.create_stack(n_blocks, mlp_units, n_pool_kernel_size, n_freq_downsample, pooling_mode,
                              interpolation_mode, n_futr, stat_dim, dropout))
        # running scale of the training loss per horizon step (for logging dashboards only)
        self.register_buffer("mae_ema", torch.zeros(h))

    def create_stack(self, n_blocks, mlp_units, kernels, freqs, pool, interp, n_futr, stat_dim, dropout):
        block_list = []
        for i in range(len(n_blocks)):
            for _ in range(n_blocks[i]):
                n_knots = max(self.h // freqs[i], 1)
                n_theta = self.input_size + self.n_out * n_knots
                basis = _IdentityBasis(self.input_size, self.h, interp, self.n_out)
                block_list.append(NHITSBlock(self.input_size, self.h, n_theta, mlp_units[i], basis, n_futr, stat_dim,
                                             kernels[i], pool, dropout))
        return block_list

    def forward(self, insample_y, insample_mask, futr_exog, series_id, y):
        z, state = self.revin.norm(insample_y, insample_mask)
        stat = self.static(series_id)

        residuals = z.flip(dims=(-1,))          # backcast init
        mask = insample_mask.flip(dims=(-1,))
        forecast = z[:, -1:, None]              # level with naive1
        block_forecasts = [forecast.expand(-1, self.h, self.n_out)]
        for block in self.blocks:
            backcast, block_forecast = block(residuals, futr_exog, stat)
            residuals = (residuals - backcast) * mask
            forecast = forecast + block_forecast
            block_forecasts.append(block_forecast)

        y_hat = self.revin.denorm(forecast, state)
        horizon_mask = torch.isfinite(y).float()
        y = torch.nan_to_num(y)
        loss = self.loss(y / state[1], y_hat / state[1].unsqueeze(-1), horizon_mask)
        with torch.no_grad():
            mae = ((y - y_hat[..., self.n_out // 2]).abs() * horizon_mask).mean(0)
            self.mae_ema.mul_(0.98).add_(mae, alpha=0.02)
        decomposition = torch.stack(block_forecasts, dim=1)
        # keep the blocks from cancelling each other
        reg = 1e-3 * decomposition[:, 1:].pow(2).mean()
        return loss + reg, y_hat, decomposition.detach()


def inputs(batch):
    y = torch.randn(batch, 336).cumsum(1) * 0.1 + 5
    mask = (torch.rand(batch, 336) > 0.05).float()
    return y, mask, torch.randn(batch, 432, 3), torch.randint(0, 370, (batch,)), torch.randn(batch, 96) + 5
