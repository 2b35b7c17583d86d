# conditional SNGAN w/ projection discriminator + self-attention, for 64x64 anime faces
# both losses in a single forward; I step the two optimizers on the two outputs.
import torch, math
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm as SN

Z = 100
NCLS = 12


def snconv(i, o, k=3, s=1, p=1, **kw): return SN(nn.Conv2d(i, o, k, s, p, **kw))


class CBN(nn.Module):
    def __init__(self, ch, ncls):
        super().__init__()
        self.bn = nn.BatchNorm2d(ch, affine=False)
        self.emb = nn.Embedding(ncls, ch * 2)
        self.emb.weight.data[:, :ch].fill_(1.)
        self.emb.weight.data[:, ch:].zero_()

    def forward(self, x, y):
        g, b = self.emb(y).chunk(2, 1)
        return g[:, :, None, None] * self.bn(x) + b[..., None, None]


class GBlock(nn.Module):
    def __init__(self, i, o, ncls=NCLS):
        super().__init__()
        self.b1, self.b2 = CBN(i, ncls), CBN(o, ncls)
        self.c1, self.c2 = nn.Conv2d(i, o, 3, padding=1), nn.Conv2d(o, o, 3, padding=1)
        self.sc = nn.Conv2d(i, o, 1)
        self.noise = nn.Parameter(torch.zeros(1, o, 1, 1))

    def forward(self, x, y):
        up = lambda t: F.interpolate(t, scale_factor=2)
        h = self.c1(up(F.relu(self.b1(x, y))))
        h = h + self.noise * torch.randn_like(h[:, :1])
        h = self.c2(F.relu(self.b2(h, y)))
        return h + self.sc(up(x))


class SelfAttn(nn.Module):
    """SAGAN"""
    def __init__(self, ch):
        super().__init__()
        self.theta = snconv(ch, ch // 8, 1, p=0, bias=False)
        self.phi = snconv(ch, ch // 8, 1, p=0, bias=False)
        self.g = snconv(ch, ch // 2, 1, p=0, bias=False)
        self.o = snconv(ch // 2, ch, 1, p=0, bias=False)
        self.gamma = nn.Parameter(torch.tensor(0.))

    def forward(self, x):
        n, c, h, w = x.shape
        theta = self.theta(x).view(-1, c // 8, h * w)
        phi = F.max_pool2d(self.phi(x), 2).view(-1, c // 8, h * w // 4)
        g = F.max_pool2d(self.g(x), 2).view(-1, c // 2, h * w // 4)
        beta = F.softmax(torch.bmm(theta.transpose(1, 2), phi), -1)
        o = self.o(torch.bmm(g, beta.transpose(1, 2)).view(-1, c // 2, h, w))
        return self.gamma * o + x


class Generator(nn.Module):
    def __init__(self, ch=32):
        super().__init__()
        self.ch = ch
        self.fc = nn.Linear(Z, 4 * 4 * ch * 8)
        self.blocks = nn.ModuleList([GBlock(ch * 8, ch * 8), GBlock(ch * 8, ch * 4), GBlock(ch * 4, ch * 2), GBlock(ch * 2, ch)])
        self.attn = SelfAttn(ch * 2)
        self.out = nn.Sequential(nn.BatchNorm2d(ch), nn.ReLU(True), nn.Conv2d(ch, 3, 3, 1, 1), nn.Tanh())

    def forward(self, z, y):
        h = self.fc(z).view(-1, self.ch * 8, 4, 4)
        for k, blk in enumerate(self.blocks):
            h = blk(h, y)
            if k == 2: h = self.attn(h)
        return self.out(h)


class DBlock(nn.Module):
    def __init__(self, i, o, down=True, first=False):
        super().__init__()
        self.c1, self.c2, self.sc = snconv(i, o), snconv(o, o), snconv(i, o, 1, p=0)
        self.down, self.first = down, first

    def forward(self, x):
        h = x if self.first else F.relu(x)
        h = self.c2(F.relu(self.c1(h)))
        s = self.sc(x)
        if self.down:
            h, s = F.avg_pool2d(h, 2), F.avg_pool2d(s, 2)
        return h + s


class Discriminator(nn.Module):
    def __init__(self, ch=32):
        super().__init__()
        self.main = nn.Sequential(DBlock(3, ch, first=True), SelfAttn(ch), DBlock(ch, ch * 2),
                                  DBlock(ch * 2, ch * 4), DBlock(ch * 4, ch * 8), DBlock(ch * 8, ch * 8, down=False),
                                  nn.ReLU())
        self.lin = SN(nn.Linear(ch * 8, 1))
        self.proj = SN(nn.Embedding(NCLS, ch * 8))

    def forward(self, x, y):
        h = self.main(x).sum([2, 3])
        return self.lin(h).squeeze(1) + (self.proj(y) * h).sum(1)


def d_hinge(real, fake):
    return F.relu(1. - real).mean() + F.relu(1. + fake).mean()


def g_hinge(fake): return -fake.mean()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.G = Generator()
        self.D = Discriminator()

    def forward(self, real, z, y):
        fake = self.G(z, y)
        # D step: one pass over cat([real, fake]) so that SN's power iteration runs once
        logits = self.D(torch.cat([real, fake.detach()]), torch.cat([y, y]))
        n = real.size(0)
        r, f = logits[:n], logits[n:]
        loss_d = d_hinge(r, f)
        # G step
        loss_g = g_hinge(self.D(fake, y))
        # mode seeking regulariser
        perm = z.flip(0)
        lz = (fake - fake.flip(0)).abs().mean() / ((z - perm).abs().mean() + 1e-5)
        loss_g = loss_g + 0.1 / (lz + 1e-5)
        return loss_d, loss_g


def inputs(batch):
    return torch.rand(batch, 3, 64, 64) * 2 - 1, torch.randn(batch, Z), torch.randint(0, NCLS, (batch,))
