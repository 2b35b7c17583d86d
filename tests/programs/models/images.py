"""Autoencoders, generators and other models of images and points. Each function gives a module and what it is called with."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU())
        self.mu, self.logvar = (nn.Linear(64 * 49, 32), nn.Linear(64 * 49, 32))
        self.fc = nn.Linear(32, 64 * 49)
        self.dec = nn.Sequential(nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Sigmoid())

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def forward(self, x):
        h = self.enc(x).flatten(1)
        mu, logvar = (self.mu(h), self.logvar(h))
        z = self.reparameterize(mu, logvar)
        rec = self.dec(self.fc(z).view(-1, 64, 7, 7))
        error = F.mse_loss(rec, x, reduction="sum")
        return error - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


class VQ(nn.Module):
    def __init__(self, k=512, d=64):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, d, 4, 2, 1))
        self.codebook = nn.Embedding(k, d)
        self.dec = nn.Sequential(nn.ConvTranspose2d(d, 64, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1))

    def quantize(self, z):
        f = z.permute(0, 2, 3, 1).contiguous()
        flat = f.view(-1, f.shape[-1])
        d = flat.pow(2).sum(1, keepdim=True) + self.codebook.weight.pow(2).sum(1) - 2 * flat @ self.codebook.weight.t()
        q = self.codebook(d.argmin(1)).view(f.shape)
        loss = F.mse_loss(q.detach(), f) * 0.25 + F.mse_loss(q, f.detach())
        q = f + (q - f).detach()
        return (q.permute(0, 3, 1, 2).contiguous(), loss)

    def forward(self, x):
        q, loss = self.quantize(self.enc(x))
        return loss + F.mse_loss(self.dec(q), x)


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.g = nn.Sequential(nn.ConvTranspose2d(64, 128, 4, 1, 0), nn.BatchNorm2d(128), nn.ReLU(True), nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(True), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())
        self.d = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(64, 128, 4, 2, 1), nn.BatchNorm2d(128), nn.LeakyReLU(0.2, inplace=True), nn.Flatten(), nn.Linear(2048, 1))

    def forward(self, z, real):
        fake = self.g(z.view(-1, 64, 1, 1))
        dl = F.softplus(-self.d(real)).mean() + F.softplus(self.d(fake.detach())).mean()
        gl = F.softplus(-self.d(fake)).mean()
        return dl + gl


class Adain(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU())
        self.d = nn.Sequential(nn.Upsample(scale_factor=2), nn.ReflectionPad2d(1), nn.Conv2d(64, 3, 3))

    def stats(self, f):
        b, c = f.shape[:2]
        v = f.view(b, c, -1)
        return (v.mean(2).view(b, c, 1, 1), (v.var(2) + 1e-05).sqrt().view(b, c, 1, 1))

    def gram(self, f):
        b, c, h, w = f.shape
        v = f.view(b, c, h * w)
        return v @ v.transpose(1, 2) / (c * h * w)

    def forward(self, c, st):
        fc, fs = (self.e(c), self.e(st))
        mc, sc = self.stats(fc)
        ms, ss = self.stats(fs)
        t = (fc - mc) / sc * ss + ms
        g = self.d(t)
        fg = self.e(g)
        return F.mse_loss(fg, t) + F.mse_loss(self.gram(fg), self.gram(fs))


class SR(nn.Module):
    def __init__(self, c=64):
        super().__init__()
        self.h = nn.Conv2d(3, c, 3, padding=1)
        self.b = nn.ModuleList((nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.PReLU(), nn.Conv2d(c, c, 3, padding=1)) for _ in range(4)))
        self.up = nn.Sequential(nn.Conv2d(c, 4 * c, 3, padding=1), nn.PixelShuffle(2), nn.PReLU())
        self.t = nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, x, y):
        h = self.h(x)
        r = h
        for b in self.b:
            r = r + 0.1 * b(r)
        out = self.t(self.up(r + h)) + F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        return F.l1_loss(out, y)


class Capsule(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = (nn.Conv2d(1, 64, 9), nn.Conv2d(64, 64, 9, 2))
        self.w = nn.Parameter(torch.randn(1, 288, 10, 16, 8) * 0.01)

    def squash(self, x, dim=-1):
        n = (x ** 2).sum(dim, keepdim=True)
        return n / (1 + n) * x / (n.sqrt() + 1e-08)

    def forward(self, x):
        h = self.c2(F.relu(self.c1(x))).view(x.shape[0], -1, 8)
        u = self.squash(h)
        uh = (self.w @ u[:, :, None, :, None]).squeeze(-1)
        b = torch.zeros(x.shape[0], uh.shape[1], 10, device=x.device)
        for i in range(3):
            c = F.softmax(b, 2)
            v = self.squash((c.unsqueeze(-1) * uh).sum(1))
            if i < 2:
                b = b + (uh.detach() * v.unsqueeze(1)).sum(-1)
        return v.norm(dim=-1)


class CRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1)))
        self.r = nn.LSTM(64 * 8, 128, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(256, 40)

    def forward(self, x):
        h = self.c(x)
        h = h.permute(0, 3, 1, 2).flatten(2)
        h, _ = self.r(h)
        return F.log_softmax(self.fc(h), -1)


class Nerf(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.ModuleList([nn.Linear(63, 256)] + [nn.Linear(256, 256) for _ in range(3)])
        self.l2 = nn.ModuleList([nn.Linear(256 + 63, 256), nn.Linear(256, 256)])
        self.sigma, self.feat, self.rgb1, self.rgb2 = (nn.Linear(256, 1), nn.Linear(256, 256), nn.Linear(256 + 27, 128), nn.Linear(128, 3))

    def encode(self, x, n):
        out = [x]
        for i in range(n):
            for f in (torch.sin, torch.cos):
                out.append(f(2.0 ** i * x))
        return torch.cat(out, -1)

    def forward(self, pts, dirs):
        e = self.encode(pts, 10)
        h = e
        for l in self.l1:
            h = F.relu(l(h))
        h = torch.cat([h, e], -1)
        for l in self.l2:
            h = F.relu(l(h))
        sigma = F.relu(self.sigma(h))
        d = self.encode(dirs, 4)[:, None].expand(-1, pts.shape[1], -1)
        rgb = torch.sigmoid(self.rgb2(F.relu(self.rgb1(torch.cat([self.feat(h), d], -1)))))
        alpha = 1 - torch.exp(-sigma.squeeze(-1) * 0.1)
        t = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        w = alpha * t
        return (w.unsqueeze(-1) * rgb).sum(1)


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.ModuleList([nn.Conv1d(3, 64, 1), nn.Conv1d(64, 128, 1), nn.Conv1d(128, 512, 1)])
        self.b = nn.ModuleList([nn.BatchNorm1d(64), nn.BatchNorm1d(128), nn.BatchNorm1d(512)])
        self.t = nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 9))
        self.seg = nn.Sequential(nn.Conv1d(576, 128, 1), nn.BatchNorm1d(128), nn.ReLU(), nn.Conv1d(128, 8, 1))

    def mlp(self, x):
        early = None
        for i, (c, n) in enumerate(zip(self.c, self.b)):
            x = F.relu(n(c(x)))
            if i == 0:
                early = x
        return (early, torch.max(x, 2, keepdim=True)[0])

    def forward(self, x):
        _, g = self.mlp(x)
        m = self.t(g.squeeze(-1)).view(-1, 3, 3) + torch.eye(3, device=x.device)
        x = torch.bmm(x.transpose(2, 1), m).transpose(2, 1)
        e, g = self.mlp(x)
        return self.seg(torch.cat([e, g.expand(-1, -1, e.shape[2])], 1)).transpose(1, 2)


class Coupling(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d // 2, 128), nn.ReLU(), nn.Linear(128, d))

    def forward(self, x):
        a, b = x.chunk(2, 1)
        sc, t = self.net(a).chunk(2, 1)
        sc = torch.tanh(sc)
        return (torch.cat([b * torch.exp(sc) + t, a], 1), sc.sum(1))


class RealNVP(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.flows = nn.ModuleList((Coupling(d) for _ in range(6)))

    def forward(self, x):
        ld = x.new_zeros(x.shape[0])
        for f in self.flows:
            x, l = f(x)
            ld = ld + l
        return -(-0.5 * (x ** 2).sum(1) - 0.5 * x.shape[1] * math.log(2 * math.pi) + ld).mean()


def vae(batch):
    return VAE(), (torch.rand(batch, 1, 28, 28),)


def vqvae(batch):
    return VQ(), (torch.randn(batch, 3, 32, 32),)


def dcgan(batch):
    return GAN(), (torch.randn(batch, 64), torch.randn(batch, 3, 16, 16))


def adain(batch):
    return Adain(), (torch.randn(batch, 3, 32, 32), torch.randn(batch, 3, 32, 32))


def superres(batch):
    return SR(), (torch.randn(batch, 3, 24, 24), torch.randn(batch, 3, 48, 48))


def capsule(batch):
    return Capsule(), (torch.randn(batch, 1, 28, 28),)


def crnn(batch):
    return CRNN(), (torch.randn(batch, 1, 32, 64),)


def nerf(batch):
    return Nerf(), (torch.randn(batch, 64, 3), torch.randn(batch, 3))


def pointnet(batch):
    return PointNet(), (torch.randn(batch, 3, 256),)


def realnvp(batch):
    return RealNVP(), (torch.randn(batch, 64),)
