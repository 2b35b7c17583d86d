#!/usr/bin/env python
# Handwriting synthesis, Graves 2013 (https://arxiv.org/abs/1308.0850), section 5
# strokes: (dx, dy, pen_up), text: character ids
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import constraints  # noqa: F401  (used by the sampling notebook)

N_CHARS = 77
HIDDEN = 400
N_WINDOW = 10
N_MIX = 20
SEQ = 160
TEXT = 30


class ClipGrad(torch.autograd.Function):
    """identity, clips the incoming gradient elementwise (Graves clips LSTM grads to [-10, 10])"""

    @staticmethod
    def forward(ctx, x, bound):
        ctx.bound = bound
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-ctx.bound, ctx.bound), None


def clip_grad(x, bound=10.0):
    return ClipGrad.apply(x, bound)


class PeepholeLSTMCell(nn.Module):
    def __init__(self, n_in, n_hid):
        super(PeepholeLSTMCell, self).__init__()
        self.n_hid = n_hid
        self.x2h = nn.Linear(n_in, 4 * n_hid)
        self.h2h = nn.Linear(n_hid, 4 * n_hid, bias=False)
        self.w_ci = nn.Parameter(torch.zeros(n_hid))
        self.w_cf = nn.Parameter(torch.zeros(n_hid))
        self.w_co = nn.Parameter(torch.zeros(n_hid))
        self.reset_parameters()

    def reset_parameters(self):
        for p in self.parameters():
            nn.init.normal_(p, 0, 0.075)
        with torch.no_grad():
            self.x2h.bias[self.n_hid:2 * self.n_hid].fill_(1.0)

    def forward(self, x, state):
        h, c = state
        gates = self.x2h(x) + self.h2h(h)
        i, f, g, o = gates.split(self.n_hid, dim=1)
        i = torch.sigmoid(i + self.w_ci * c)
        f = torch.sigmoid(f + self.w_cf * c)
        c = f * c + i * torch.tanh(g)
        o = torch.sigmoid(o + self.w_co * c)
        h = o * torch.tanh(c)
        return clip_grad(h), clip_grad(c)


class Window(nn.Module):
    """soft window over the character sequence"""

    def __init__(self, n_hid, n_window):
        super(Window, self).__init__()
        self.fc = nn.Linear(n_hid, 3 * n_window)
        self.fc.bias.data[2 * n_window:].fill_(-3.0)

    def forward(self, h, kappa, onehot, text_mask):
        U = onehot.size(1)
        alpha, beta, dk = self.fc(h).exp().unsqueeze(-1).chunk(3, dim=1)
        kappa = kappa + dk
        u = torch.arange(U, device=h.device, dtype=h.dtype).view(1, 1, U)
        phi = (alpha * torch.exp(-beta * (kappa - u) ** 2)).sum(1)      # B x U
        phi = phi * text_mask
        w = torch.bmm(phi.unsqueeze(1), onehot).squeeze(1)
        return w, kappa, phi


class MDN(nn.Module):
    def __init__(self, n_in, n_mix):
        super(MDN, self).__init__()
        self.n_mix = n_mix
        self.fc = nn.Linear(n_in, 6 * n_mix + 1)

    def forward(self, h, bias=0.0):
        y = self.fc(h)
        eos = y[..., 0]
        pi, mu1, mu2, s1, s2, rho = y[..., 1:].chunk(6, dim=-1)
        log_pi = F.log_softmax(pi * (1 + bias), dim=-1)
        return eos, log_pi, mu1, mu2, s1 - bias, s2 - bias, torch.tanh(rho)

    def nll(self, params, target):
        eos, log_pi, mu1, mu2, ls1, ls2, rho = params
        x1 = target[..., 0:1]
        x2 = target[..., 1:2]
        z1 = (x1 - mu1) / ls1.exp()
        z2 = (x2 - mu2) / ls2.exp()
        one_rho2 = (1 - rho ** 2).clamp(min=1e-5)
        z = z1 ** 2 + z2 ** 2 - 2 * rho * z1 * z2
        log_n = -z / (2 * one_rho2) - math.log(2 * math.pi) - ls1 - ls2 - 0.5 * torch.log(one_rho2)
        ll = torch.logsumexp(log_pi + log_n, dim=-1)
        pen = F.binary_cross_entropy_with_logits(eos, target[..., 2], reduction='none')
        return pen - ll


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        self.rnn1 = PeepholeLSTMCell(3 + N_CHARS, HIDDEN)
        self.rnn2 = PeepholeLSTMCell(3 + N_CHARS + HIDDEN, HIDDEN)
        self.rnn3 = PeepholeLSTMCell(3 + N_CHARS + HIDDEN, HIDDEN)
        self.window = Window(HIDDEN, N_WINDOW)
        self.mdn = MDN(3 * HIDDEN, N_MIX)

    def init_state(self, B, ref):
        zero = lambda *s: torch.zeros(*s, device=ref.device, dtype=ref.dtype)
        states = [(zero(B, HIDDEN), zero(B, HIDDEN)) for _ in range(3)]
        return states, zero(B, N_CHARS), zero(B, N_WINDOW, 1)

    def forward(self, strokes, chars):
        B = strokes.size(0)
        onehot = F.one_hot(chars, N_CHARS).to(strokes.dtype)
        text_mask = (chars != 0).to(strokes.dtype)

        # feed x_t predict x_{t+1}
        x, y = strokes[:, :-1], strokes[:, 1:].clone()
        y[..., 2] = (y[..., 2] > 0).to(y.dtype)

        (s1, s2, s3), w, kappa = self.init_state(B, strokes)
        outs, phis = [], []
        for t in range(x.size(1)):
            xt = x[:, t]
            s1 = self.rnn1(torch.cat([xt, w], 1), s1)
            w, kappa, phi = self.window(s1[0], kappa, onehot, text_mask)
            s2 = self.rnn2(torch.cat([xt, w, s1[0]], 1), s2)
            s3 = self.rnn3(torch.cat([xt, w, s2[0]], 1), s3)
            outs.append(torch.cat([s1[0], s2[0], s3[0]], 1))
            phis.append(phi.detach())

        out = clip_grad(torch.stack(outs, 1), 100.0)
        params = self.mdn(out)
        nll = self.mdn.nll(params, y)
        return nll.mean(), torch.stack(phis, 1)


def inputs(batch):
    s = torch.randn(batch, SEQ, 3)
    return s, torch.randint(0, N_CHARS, (batch, TEXT))
