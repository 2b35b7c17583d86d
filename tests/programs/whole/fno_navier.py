# %% [markdown]
# FNO-2d time stepping for Navier-Stokes vorticity (Li et al.), + a DeepONet style trunk to query
# arbitrary points, + a PINO residual in Fourier space
# %%
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

S = 64            # grid
T_IN = 8
T_OUT = 6
modes = 12
width = 32
visc = 1e-3
dt = 1.0


# %%
class SpectralConv2d(nn.Module):
    def __init__(self, in_channels, out_channels, modes1, modes2):
        super(SpectralConv2d, self).__init__()
        """
        2D Fourier layer. It does FFT, linear transform, and Inverse FFT.
        """
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.modes1 = modes1
        self.modes2 = modes2
        self.scale = (1 / (in_channels * out_channels))
        self.weights1 = nn.Parameter(self.scale * torch.rand(in_channels, out_channels, modes1, modes2, dtype=torch.cfloat))
        self.weights2 = nn.Parameter(self.scale * torch.rand(in_channels, out_channels, modes1, modes2, dtype=torch.cfloat))

    # Complex multiplication
    def compl_mul2d(self, input, weights):
        # (batch, in_channel, x,y ), (in_channel, out_channel, x,y) -> (batch, out_channel, x,y)
        return torch.einsum("bixy,ioxy->boxy", input, weights)

    def forward(self, x):
        batchsize = x.shape[0]
        x_ft = torch.fft.rfft2(x)
        out_ft = torch.zeros(batchsize, self.out_channels, x.size(-2), x.size(-1) // 2 + 1, dtype=torch.cfloat,
                             device=x.device)
        out_ft[:, :, :self.modes1, :self.modes2] = \
            self.compl_mul2d(x_ft[:, :, :self.modes1, :self.modes2], self.weights1)
        out_ft[:, :, -self.modes1:, :self.modes2] = \
            self.compl_mul2d(x_ft[:, :, -self.modes1:, :self.modes2], self.weights2)
        x = torch.fft.irfft2(out_ft, s=(x.size(-2), x.size(-1)))
        return x


class MLP(nn.Module):
    def __init__(self, in_channels, out_channels, mid_channels):
        super(MLP, self).__init__()
        self.mlp1 = nn.Conv2d(in_channels, mid_channels, 1)
        self.mlp2 = nn.Conv2d(mid_channels, out_channels, 1)

    def forward(self, x):
        x = self.mlp1(x)
        x = F.gelu(x)
        x = self.mlp2(x)
        return x


class FNO2d(nn.Module):
    def __init__(self, modes1, modes2, width, t_in):
        super(FNO2d, self).__init__()
        self.p = nn.Linear(t_in + 2, width)
        for i in range(4):
            setattr(self, f'conv{i}', SpectralConv2d(width, width, modes1, modes2))
            setattr(self, f'mlp{i}', MLP(width, width, width))
            setattr(self, f'w{i}', nn.Conv2d(width, width, 1))
        self.norm = nn.InstanceNorm2d(width)
        self.q = MLP(width, 1, width * 4)

    def forward(self, x):
        grid = self.get_grid(x)
        x = torch.cat((x, grid), dim=-1)
        x = self.p(x)
        x = x.permute(0, 3, 1, 2)
        for i in range(4):
            x1 = self.norm(getattr(self, f'conv{i}')(self.norm(x)))
            x1 = getattr(self, f'mlp{i}')(x1)
            x2 = getattr(self, f'w{i}')(x)
            x = x1 + x2
            if i < 3:
                x = F.gelu(x)
        feat = x
        x = self.q(x)
        x = x.permute(0, 2, 3, 1)
        return x, feat

    def get_grid(self, t):
        b, sx, sy = t.shape[0], t.shape[1], t.shape[2]
        gridx = torch.linspace(0, 1, sx, device=t.device).reshape(1, sx, 1, 1).repeat([b, 1, sy, 1])
        gridy = torch.linspace(0, 1, sy, device=t.device).reshape(1, 1, sy, 1).repeat([b, sx, 1, 1])
        return torch.cat((gridx, gridy), dim=-1)


# %% point decoder
class SIREN(nn.Module):
    def __init__(self, d_in, d_h, d_out, w0=30.):
        super().__init__()
        self.w0 = w0
        self.l1 = nn.Linear(d_in, d_h)
        self.l2 = nn.Linear(d_h, d_h)
        self.l3 = nn.Linear(d_h, d_out)
        self.l1.weight.data.uniform_(-1 / d_in, 1 / d_in)
        for l in (self.l2, self.l3):
            b = math.sqrt(6 / d_h) / w0
            l.weight.data.uniform_(-b, b)

    def forward(self, x):
        x = torch.sin(self.w0 * self.l1(x))
        x = torch.sin(self.w0 * self.l2(x))
        return self.l3(x)


class LpLoss:
    def __init__(self, p=2):
        self.p = p

    def rel(self, x, y):
        n = x.size(0)
        diff = torch.norm(x.reshape(n, -1) - y.reshape(n, -1), self.p, 1)
        return torch.mean(diff / torch.norm(y.reshape(n, -1), self.p, 1))

    __call__ = rel


myloss = LpLoss()


# %%
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fno = FNO2d(modes, modes, width, T_IN)
        # deeponet: branch = pooled features, trunk = coords (x, y, t)
        self.branch = nn.Sequential(nn.Conv2d(width, 64, 3, 2, 1), nn.GELU(), nn.Conv2d(64, 128, 3, 2, 1), nn.GELU(),
                                    nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(2048, 256), nn.GELU(),
                                    nn.Linear(256, 128))
        self.trunk = SIREN(3, 256, 128)
        self.b0 = nn.Parameter(torch.zeros(1))

        k = torch.fft.fftfreq(S, 1 / S)
        kx = k.view(S, 1).repeat(1, S // 2 + 1)
        ky = k[:S // 2 + 1].abs().view(1, -1).repeat(S, 1)
        lap = (2 * math.pi) ** 2 * (kx ** 2 + ky ** 2)
        inv = torch.where(lap == 0, torch.ones_like(lap), 1 / lap.clamp(min=1e-6))
        dealias = ((kx.abs() <= S / 3) & (ky.abs() <= S / 3)).float()
        for n, v in dict(kx=kx, ky=ky, lap=lap, inv_lap=inv, dealias=dealias).items():
            self.register_buffer(n, v)
        x = torch.arange(S) / S
        f = 0.1 * (torch.sin(2 * math.pi * (x[:, None] + x[None])) + torch.cos(2 * math.pi * (x[:, None] + x[None])))
        self.register_buffer('forcing', f)

    def residual(self, w0, w1):
        """ (w1-w0)/dt + u.grad w - nu lap w - f at the mid point"""
        w = 0.5 * (w0 + w1)
        wh = torch.fft.rfft2(w) * self.dealias
        psi = wh * self.inv_lap
        tp = 2 * math.pi
        ux = torch.fft.irfft2(1j * tp * self.ky * psi, s=(S, S))
        uy = torch.fft.irfft2(-1j * tp * self.kx * psi, s=(S, S))
        wx = torch.fft.irfft2(1j * tp * self.kx * wh, s=(S, S))
        wy = torch.fft.irfft2(1j * tp * self.ky * wh, s=(S, S))
        wlap = torch.fft.irfft2(-self.lap * wh, s=(S, S))
        return (w1 - w0) / dt + ux * wx + uy * wy - visc * wlap - self.forcing

    def forward(self, xx, yy, pts, pt_val):
        # xx: b s s T_IN, yy: b s s T_OUT, pts: b p 3
        loss, pino = 0, 0
        pred = None
        for t in range(T_OUT):
            y = yy[..., t:t + 1]
            if self.training:
                im, feat = checkpoint(self.fno, xx, use_reentrant=False)
            else:
                im, feat = self.fno(xx)
            loss += myloss(im, y)
            pino = pino + self.residual(xx[..., -1], im[..., 0]).pow(2).mean()
            if t == 0:
                pred = im
                first_feat = feat
            else:
                pred = torch.cat((pred, im), -1)
            xx = torch.cat((xx[..., 1:], im), dim=-1)
        br = self.branch(first_feat)
        tr = self.trunk(pts)
        val = torch.einsum('bd,bpd->bp', br, tr) + self.b0
        pt_loss = F.mse_loss(val, pt_val)
        return loss / T_OUT + 0.1 * pino / T_OUT + pt_loss, pred, val


def inputs(batch):
    return torch.randn(batch, S, S, T_IN), torch.randn(batch, S, S, T_OUT), torch.rand(batch, 500, 3), torch.randn(batch, 500)
