# neural audio codec, SoundStream / EnCodec inspired
import torch
import torch.nn as nn
import torch.nn.functional as F


class RescaleGrad(torch.autograd.Function):
    """identity forward; backward rescales the gradient to `w` times unit norm per sample (loss balancer, sort of)"""

    @staticmethod
    def forward(ctx, x, w):
        ctx.w = w
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        norm = g.flatten(1).norm(dim=1).clamp_min(1e-12)
        return ctx.w * g / norm.view(-1, *([1] * (g.dim() - 1))), None


class Snake(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, ch, 1))

    def forward(self, x):
        return x + (self.alpha + 1e-9).reciprocal() * (self.alpha * x).sin().pow(2)


class ResUnit(nn.Sequential):
    def __init__(self, ch, dilation):
        super().__init__(
            Snake(ch),
            nn.Conv1d(ch, ch, 7, padding=3 * dilation, dilation=dilation),
            Snake(ch),
            nn.Conv1d(ch, ch, 1),
        )

    def forward(self, x):
        return x + super().forward(x)


def enc_block(cin, cout, stride):
    return nn.Sequential(*[ResUnit(cin, d) for d in (1, 3)], Snake(cin),
                         nn.Conv1d(cin, cout, 2 * stride, stride, padding=stride // 2 + stride % 2))


def dec_block(cin, cout, stride):
    return nn.Sequential(
        Snake(cin),
        nn.ConvTranspose1d(cin, cout, 2 * stride, stride, padding=stride // 2 + stride % 2, output_padding=stride % 2),
        *[ResUnit(cout, d) for d in (1, 3)])


class VQ(nn.Module):
    def __init__(self, dim, size, code_dim=16):
        super().__init__()
        self.down = nn.Conv1d(dim, code_dim, 1)
        self.up = nn.Conv1d(code_dim, dim, 1)
        self.codebook = nn.Embedding(size, code_dim)

    def forward(self, z):
        e = self.down(z)
        flat = F.normalize(e.transpose(1, 2), dim=-1)
        cb = F.normalize(self.codebook.weight, dim=-1)
        dist = flat.pow(2).sum(-1, keepdim=True) - 2 * flat @ cb.t() + cb.pow(2).sum(-1)
        idx = dist.argmin(-1)
        q = self.codebook(idx).transpose(1, 2)
        commit = F.mse_loss(e, q.detach())
        codebook = F.mse_loss(q, e.detach())
        q = e + (q - e).detach()   # straight-through
        return self.up(q), idx, commit, codebook


class ResidualVQ(nn.Module):
    def __init__(self, n_q, **kw):
        super().__init__()
        self.quantizers = nn.ModuleList([VQ(**kw) for _ in range(n_q)])

    def forward(self, z):
        residual, out = z, 0
        codes, commits, cbs = [], [], []
        for vq in self.quantizers:
            q, idx, a, b = vq(residual)
            residual = residual - q
            out = out + q
            codes.append(idx), commits.append(a), cbs.append(b)
        return out, torch.stack(codes, 1), sum(commits), sum(cbs)


class MultiResSTFT(nn.Module):
    def __init__(self, sizes=(1024, 512, 256)):
        super().__init__()
        self.sizes = sizes
        for s in sizes:
            self.register_buffer(f"win{s}", torch.hann_window(s), persistent=False)

    def mag(self, x, s):
        spec = torch.stft(x, s, s // 4, s, getattr(self, f"win{s}"), return_complex=True)
        return spec.abs().clamp(min=1e-5)

    def forward(self, x, y):
        loss = x.new_zeros(())
        for s in self.sizes:
            a, b = self.mag(x, s), self.mag(y, s)
            loss += (a - b).abs().mean() + (a.log() - b.log()).pow(2).mean(dim=(1, 2)).sqrt().mean()
        return loss / len(self.sizes)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        width, strides = 24, (2, 4, 5)
        chans = [width * 2 ** i for i in range(len(strides) + 1)]
        enc = [nn.Conv1d(1, width, 7, padding=3)]
        for cin, cout, s in zip(chans[:-1], chans[1:], strides):
            enc.append(enc_block(cin, cout, s))
        self.encoder = nn.Sequential(*enc, nn.ELU(inplace=True), nn.Conv1d(chans[-1], 128, 3, padding=1))
        self.rnn = nn.GRU(128, 128, batch_first=True)
        self.rvq = ResidualVQ(6, dim=128, size=512)
        dec = [nn.Conv1d(128, chans[-1], 7, padding=3)]
        dec += [dec_block(cin, cout, s) for cin, cout, s in zip(chans[:0:-1], chans[-2::-1], strides[::-1])]
        self.decoder = nn.Sequential(*dec, Snake(width), nn.Conv1d(width, 1, 7, padding=3), nn.Tanh())
        self.stft_loss = MultiResSTFT()
        self.lambdas = {"wav": 1.0, "stft": 2.0, "commit": 0.25, "codebook": 1.0}

    def forward(self, wav):
        x = wav.unsqueeze(1)
        z = self.encoder(x)
        z = z + self.rnn(z.transpose(1, 2))[0].transpose(1, 2)
        q, codes, commit, codebook = self.rvq(z)
        y = self.decoder(q)[..., :x.size(-1)]

        terms = dict(
            wav=F.l1_loss(RescaleGrad.apply(y, 0.1), x),
            stft=self.stft_loss(RescaleGrad.apply(y, 1.0).squeeze(1), wav),
            commit=commit,
            codebook=codebook,
        )
        return sum(self.lambdas[k] * v for k, v in terms.items()), codes


def inputs(batch):
    t = torch.linspace(0, 1, 8000)
    f0 = 80 + 300 * torch.rand(batch, 1)
    return ((0.4 * torch.sin(6.2832 * f0 * t) + 0.02 * torch.randn(batch, 8000)),)
