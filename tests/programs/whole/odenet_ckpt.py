import torch, math
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def rk4_step(f, t, dt, y):
    """one 3/8-rule step on a tuple of tensors"""
    add = lambda y, *terms: tuple(a + dt * sum(c * k[i] for c, k in terms) for i, a in enumerate(y))
    k1 = f(t, y)
    k2 = f(t + dt / 3, add(y, (1 / 3, k1)))
    k3 = f(t + dt * 2 / 3, add(y, (-1 / 3, k1), (1., k2)))
    k4 = f(t + dt, add(y, (1., k1), (-1., k2), (1., k3)))
    return tuple(a + (p + 3 * (q + r) + s) * dt * 0.125 for a, p, q, r, s in zip(y, k1, k2, k3, k4))


def odeint(f, y, t0=0., t1=1., steps=4, ckpt=False):
    dt = (t1 - t0) / steps
    for n in range(steps):
        t = t0 + n * dt
        if ckpt:
            y = checkpoint(rk4_step, f, t, dt, y, use_reentrant=False)
        else:
            y = rk4_step(f, t, dt, y)
    return y


class TimeFiLM(nn.Module):
    """scale/shift from a few fourier features of t"""
    def __init__(self, ch, n=8):
        super().__init__()
        self.register_buffer('freq', 2 ** torch.arange(n).float() * math.pi, persistent=False)
        self.proj = nn.Linear(2 * n, 2 * ch)
        nn.init.zeros_(self.proj.weight); nn.init.zeros_(self.proj.bias)

    def forward(self, x, t):
        ang = self.freq * t
        g, b = self.proj(torch.cat([ang.sin(), ang.cos()])).chunk(2)
        return x * (1 + g[:, None, None]) + b[:, None, None]


class ODEFunc(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.n1, self.n2 = nn.GroupNorm(32, ch), nn.GroupNorm(32, ch)
        self.c1 = nn.Conv2d(ch, ch, 3, padding=1)
        self.c2 = nn.Conv2d(ch, ch, 3, padding=1)
        self.t1, self.t2 = TimeFiLM(ch), TimeFiLM(ch)

    def forward(self, t, state):
        z = state[0]
        h = F.softplus(self.t1(self.n1(z), t))
        h = F.softplus(self.t2(self.n2(self.c1(h)), t))
        dz = self.c2(h)
        # kinetic energy (RNODE)
        return dz, dz.square().flatten(1).mean(1)


class ODEBlock(nn.Module):
    def __init__(self, ch, steps, ckpt):
        super().__init__()
        self.f, self.steps, self.ckpt = ODEFunc(ch), steps, ckpt

    def forward(self, z):
        ke = torch.zeros(z.shape[0], device=z.device)
        z, ke = odeint(self.f, (z, ke), steps=self.steps, ckpt=self.ckpt)
        return z, ke


class Model(nn.Module):
    def __init__(self, chs=(64, 160), n_cls=100, lam=0.01):
        super().__init__()
        self.lam = lam
        self.stem = nn.Sequential(nn.Conv2d(3, chs[0], 3, 1, 1), nn.GroupNorm(32, chs[0]), nn.ReLU(True), nn.Conv2d(chs[0], chs[0], 4, 2, 1))
        self.ode1 = ODEBlock(chs[0], steps=3, ckpt=True)
        self.trans = nn.Sequential(nn.GroupNorm(32, chs[0]), nn.ReLU(inplace=True), nn.Conv2d(chs[0], chs[1], 4, 2, 1))
        self.ode2 = ODEBlock(chs[1], steps=4, ckpt=False)
        self.head = nn.Sequential(nn.GroupNorm(32, chs[1]), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(chs[1], n_cls))

    def forward(self, img, target):
        z, ke1 = self.ode1(self.stem(img))
        z, ke2 = self.ode2(self.trans(z))
        logits = self.head(z)
        return F.cross_entropy(logits, target, label_smoothing=.1) + self.lam * (ke1 + ke2).mean()


def inputs(batch):
    return torch.randn(batch, 3, 32, 32), torch.randint(100, (batch,))
