# %% [markdown]
# ## Moving shapes - next frame prediction
# encoder/forecaster ConvLSTM, 8 frames in, 8 frames out

# %%
import torch
import torch.nn as nn
import torch.nn.functional as F

T_IN, T_OUT = 8, 8
HW = 64

# %%
class ConvLSTMCell(nn.Module):
    def __init__(self, in_ch, hid, hw, k=3, peephole=True):
        super().__init__()
        self.hid = hid
        self.hw = hw
        self.conv = nn.Conv2d(in_ch + hid, 4 * hid, k, padding=k // 2, bias=False)
        self.norm = nn.GroupNorm(4 * hid // 16, 4 * hid)
        self.peephole = peephole
        if peephole:
            self.Wci = nn.Parameter(torch.zeros(1, hid, hw, hw))
            self.Wcf = nn.Parameter(torch.zeros(1, hid, hw, hw))
            self.Wco = nn.Parameter(torch.zeros(1, hid, hw, hw))

    def init_state(self, x):
        z = x.new_zeros(x.shape[0], self.hid, self.hw, self.hw)
        return z, z

    def forward(self, x, state):
        h, c = state
        gates = self.norm(self.conv(torch.cat([x, h], dim=1)))
        i, f, g, o = torch.split(gates, self.hid, dim=1)
        if self.peephole:
            i = i + self.Wci * c
            f = f + self.Wcf * c
        i = torch.sigmoid(i)
        f = torch.sigmoid(f + 1.0)
        c = f * c + i * torch.tanh(g)
        if self.peephole:
            o = o + self.Wco * c
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, c


# %%
def down(ci, co, s):
    return nn.Sequential(nn.Conv2d(ci, co, 3, s, 1), nn.LeakyReLU(0.2, inplace=True))


def up(ci, co):
    return nn.Sequential(nn.ConvTranspose2d(ci, co, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True))


class Encoder(nn.Module):
    def __init__(self, chans=(32, 64, 96)):
        super().__init__()
        self.c0 = down(1, 16, 1)
        self.d1, self.r1 = down(16, chans[0], 2), ConvLSTMCell(chans[0], chans[0], HW // 2)
        self.d2, self.r2 = down(chans[0], chans[1], 2), ConvLSTMCell(chans[1], chans[1], HW // 4)
        self.d3, self.r3 = down(chans[1], chans[2], 2), ConvLSTMCell(chans[2], chans[2], HW // 8)

    def step(self, x, st):
        x = self.c0(x)
        x = self.d1(x)
        st1 = self.r1(x, st[0] if st is not None else self.r1.init_state(x))
        x = self.d2(st1[0])
        st2 = self.r2(x, st[1] if st is not None else self.r2.init_state(x))
        x = self.d3(st2[0])
        st3 = self.r3(x, st[2] if st is not None else self.r3.init_state(x))
        return [st1, st2, st3]


class Forecaster(nn.Module):
    def __init__(self, chans=(32, 64, 96)):
        super().__init__()
        self.emb = nn.Sequential(down(1, 16, 2), down(16, 32, 2), down(32, chans[2], 2))
        self.r3, self.u3 = ConvLSTMCell(chans[2], chans[2], HW // 8), up(chans[2], chans[1])
        self.r2, self.u2 = ConvLSTMCell(chans[1], chans[1], HW // 4), up(chans[1], chans[0])
        self.r1, self.u1 = ConvLSTMCell(chans[0], chans[0], HW // 2), up(chans[0], 16)
        self.out = nn.Conv2d(16, 2, 3, 1, 1)   # new content + mask

    def step(self, prev, st):
        x = self.emb(prev)
        s3 = self.r3(x, st[2])
        s2 = self.r2(self.u3(s3[0]), st[1])
        s1 = self.r1(self.u2(s2[0]), st[0])
        y = self.out(self.u1(s1[0]))
        content, m = y.chunk(2, 1)
        m = torch.sigmoid(m)
        # copy from the previous frame where nothing moves
        frame = m * torch.sigmoid(content) + (1 - m) * prev
        return frame, [s1, s2, s3]


# %%
def gdl(p, t):
    """gradient difference loss (Mathieu et al.)"""
    px, tx = p.diff(dim=-1).abs(), t.diff(dim=-1).abs()
    py, ty = p.diff(dim=-2).abs(), t.diff(dim=-2).abs()
    return (px - tx).abs().mean() + (py - ty).abs().mean()


class Model(nn.Module):
    def __init__(self, sampling_decay=0.9995, gdl_w=0.2):
        super().__init__()
        self.enc = Encoder()
        self.dec = Forecaster()
        self.gdl_w = gdl_w
        self.decay = sampling_decay
        # probability of feeding the true frame, decays with the training steps
        self.register_buffer("eps", torch.ones(()))
        self.register_buffer("t_weight", torch.linspace(1.0, 2.0, T_OUT))

    def forward(self, video):
        # video: B, T_IN + T_OUT, 1, H, W
        st = None
        for t in range(T_IN):
            st = self.enc.step(video[:, t], st)

        b = video.shape[0]
        prev = video[:, T_IN - 1]
        preds = []
        for t in range(T_OUT):
            frame, st = self.dec.step(prev, st)
            preds.append(frame)
            if self.training:
                use_true = (torch.rand(b, 1, 1, 1, device=video.device) < self.eps)
                prev = torch.where(use_true, video[:, T_IN + t], frame)
            else:
                prev = frame
        pred = torch.stack(preds, dim=1)
        target = video[:, T_IN:]

        err = (pred - target)
        per_t = (err.abs() + err ** 2).mean(dim=(0, 2, 3, 4))
        rec = (per_t * self.t_weight).sum() / self.t_weight.sum()
        g = gdl(pred.flatten(0, 1), target.flatten(0, 1))
        loss = rec + self.gdl_w * g

        if self.training:
            with torch.no_grad():
                self.eps.mul_(self.decay)

        with torch.no_grad():
            mse = (err ** 2).mean(dim=(1, 2, 3, 4))
            psnr = (-10 * torch.log10(mse.clamp(min=1e-8))).mean()
        return loss, pred, psnr


def inputs(batch):
    base = torch.rand(batch, 1, 1, HW, HW)
    base = F.avg_pool2d(base.flatten(0, 1), 5, 1, 2).view(batch, 1, 1, HW, HW)
    frames = [torch.roll(base, (t, 2 * t), dims=(3, 4)) for t in range(T_IN + T_OUT)]
    return (torch.cat(frames, 1),)
