"""
Fourier Neural Operator for 2D Navier-Stokes in vorticity form, autoregressive rollout,
with a PINO-style residual evaluated spectrally on the torus.
"""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class SpectralConv2d(nn.Module):
    def __init__(self, in_channels, out_channels, modes1, modes2):
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.modes1 = modes1
        self.modes2 = modes2
        self.scale = (1 / (in_channels * out_channels))
        # stored as (..., 2) reals: DDP does not like complex parameters
        self.weights1 = nn.Parameter(self.scale * torch.rand(in_channels, out_channels, modes1, modes2, 2))
        self.weights2 = nn.Parameter(self.scale * torch.rand(in_channels, out_channels, modes1, modes2, 2))

    def compl_mul2d(self, input, weights):
        # (batch, in_channel, x,y ), (in_channel, out_channel, x,y) -> (batch, out_channel, x,y)
        return torch.einsum("bixy,ioxy->boxy", input, torch.view_as_complex(weights))

    def forward(self, x):
        batchsize = x.shape[0]
        x_ft = torch.fft.rfft2(x)

        out_ft = torch.zeros(batchsize, self.out_channels, x.size(-2), x.size(-1) // 2 + 1, dtype=torch.cfloat, device=x.device)
        out_ft[:, :, :self.modes1, :self.modes2] = \
            self.compl_mul2d(x_ft[:, :, :self.modes1, :self.modes2], self.weights1)
        out_ft[:, :, -self.modes1:, :self.modes2] = \
            self.compl_mul2d(x_ft[:, :, -self.modes1:, :self.modes2], self.weights2)

        x = torch.fft.irfft2(out_ft, s=(x.size(-2), x.size(-1)))
        return x


class FNO2d(nn.Module):
    def __init__(self, modes=12, width=40, t_in=5, n_layers=4):
        super().__init__()
        self.fc0 = nn.Linear(t_in + 2, width)
        self.spectral = nn.ModuleList()
        self.w = nn.ModuleList()
        self.bn = nn.ModuleList()
        for _ in range(n_layers):
            self.spectral.append(SpectralConv2d(width, width, modes, modes))
            self.w.append(nn.Conv2d(width, width, 1))
            self.bn.append(nn.InstanceNorm2d(width))
        self.fc1 = nn.Linear(width, 128)
        self.fc2 = nn.Linear(128, 1)

    def get_grid(self, shape, device):
        bs, sx, sy = shape[0], shape[1], shape[2]
        gridx = torch.linspace(0, 1, sx, device=device).reshape(1, sx, 1, 1).repeat([bs, 1, sy, 1])
        gridy = torch.linspace(0, 1, sy, device=device).reshape(1, 1, sy, 1).repeat([bs, sx, 1, 1])
        return torch.cat((gridx, gridy), dim=-1)

    def forward(self, x):
        x = torch.cat((x, self.get_grid(x.shape, x.device)), dim=-1)
        x = self.fc0(x)
        x = x.permute(0, 3, 1, 2)
        last = len(self.w) - 1
        for i, (k, w, bn) in enumerate(zip(self.spectral, self.w, self.bn)):
            x1 = bn(k(bn(x)))
            x2 = w(x)
            x = x1 + x2
            if i != last:
                x = F.gelu(x)
        x = x.permute(0, 2, 3, 1)
        return self.fc2(F.gelu(self.fc1(x)))


class LpLoss(object):
    def __init__(self, p=2, reduction=True):
        self.p = p
        self.reduction = reduction

    def __call__(self, x, y):
        n = x.size(0)
        diff = torch.norm(x.reshape(n, -1) - y.reshape(n, -1), self.p, 1)
        y_norm = torch.norm(y.reshape(n, -1), self.p, 1)
        r = diff / y_norm
        return r.mean() if self.reduction else r


class Model(nn.Module):
    def __init__(self, size=64, visc=1e-3, dt=1.0, phys_weight=0.1):
        super().__init__()
        self.net = FNO2d()
        self.visc, self.dt = visc, dt
        self.phys_weight = phys_weight
        self.myloss = LpLoss()

        k = torch.fft.fftfreq(size, d=1.0 / size)
        ky = torch.fft.rfftfreq(size, d=1.0 / size)
        kx, ky = torch.meshgrid(2 * math.pi * k, 2 * math.pi * ky, indexing='ij')
        lap = kx ** 2 + ky ** 2
        self.register_buffer('kx', kx)
        self.register_buffer('ky', ky)
        self.register_buffer('lap', lap)
        inv = lap.clone()
        inv[0, 0] = 1.0
        self.register_buffer('inv_lap', 1.0 / inv)
        t = torch.linspace(0, 1, size + 1)[:-1]
        X, Y = torch.meshgrid(t, t, indexing='ij')
        self.register_buffer('forcing', 0.1 * (torch.sin(2 * math.pi * (X + Y)) + torch.cos(2 * math.pi * (X + Y))))

    def residual(self, w0, w1):
        """w_t + u . grad w - nu lap w - f, with Crank-Nicolson in the middle"""
        w = 0.5 * (w0 + w1)
        w_h = torch.fft.rfft2(w)
        psi_h = w_h * self.inv_lap
        back = lambda z: torch.fft.irfft2(z, s=w.shape[-2:])
        u = back(1j * self.ky * psi_h)
        v = back(-1j * self.kx * psi_h)
        wx, wy = back(1j * self.kx * w_h), back(1j * self.ky * w_h)
        wlap = back(-self.lap * w_h)
        return (w1 - w0) / self.dt + u * wx + v * wy - self.visc * wlap - self.forcing

    def forward(self, xx, yy):
        # xx: B X Y t_in, yy: B X Y T
        loss = 0
        phys = 0
        for t in range(yy.shape[-1]):
            y = yy[..., t:t + 1]
            im = self.net(xx)
            loss += self.myloss(im, y)
            phys += self.residual(xx[..., -1], im[..., 0]).pow(2).mean().sqrt()
            if t == 0:
                pred = im
            else:
                pred = torch.cat((pred, im), -1)
            xx = torch.cat((xx[..., 1:], im), dim=-1)
        full = self.myloss(pred, yy)
        return loss / yy.shape[-1] + self.phys_weight * phys, full


def inputs(batch):
    return torch.randn(batch, 64, 64, 5), torch.randn(batch, 64, 64, 3)
