import torch
from torch import nn
import torch.nn.functional as F
from dataclasses import dataclass
from typing import Dict, List


def symlog(x):
    return torch.sign(x) * torch.log1p(x.abs())


class Norm2d(nn.LayerNorm):
    """LayerNorm over channels of NCHW"""
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Dense(nn.Sequential):
    def __init__(self, i, o, layers=1, units=None, out=None):
        units = units or o
        mods = []
        for _ in range(layers):
            mods += [nn.Linear(i, units, bias=False), nn.LayerNorm(units, eps=1e-3), nn.SiLU()]
            i = units
        if out is not None:
            mods.append(nn.Linear(i, out))
        super().__init__(*mods)


class NormGRUCell(nn.Module):
    def __init__(self, inp, size, update_bias=-1):
        super().__init__()
        self.layer = nn.Linear(inp + size, 3 * size, bias=False)
        self.norm = nn.LayerNorm(3 * size)
        self.update_bias = update_bias

    def forward(self, x, h):
        reset, cand, update = self.norm(self.layer(torch.cat([x, h], -1))).chunk(3, -1)
        cand = torch.tanh(torch.sigmoid(reset) * cand)
        update = torch.sigmoid(update + self.update_bias)
        return update * cand + (1 - update) * h


@dataclass
class State:
    deter: torch.Tensor
    stoch: torch.Tensor
    logits: torch.Tensor

    @property
    def feat(self):
        return torch.cat([self.deter, self.stoch.flatten(-2)], -1)

    @classmethod
    def stack(cls, states: List["State"]):
        return cls(*(torch.stack([getattr(s, f) for s in states], 1) for f in ("deter", "stoch", "logits")))


class RSSM(nn.Module):
    def __init__(self, embed, action, deter=384, groups=24, classes=24, hidden=384, unimix=0.01):
        super().__init__()
        self.deter, self.groups, self.classes, self.unimix = deter, groups, classes, unimix
        self.inp = Dense(groups * classes + action, hidden)
        self.cell = NormGRUCell(hidden, deter)
        self.prior_net = Dense(deter, hidden, out=groups * classes)
        self.post_net = Dense(deter + embed, hidden, out=groups * classes)
        self.init_deter = nn.Parameter(torch.zeros(deter))

    def _dist(self, raw):
        logits = raw.unflatten(-1, (self.groups, self.classes))
        probs = logits.softmax(-1)
        probs = (1 - self.unimix) * probs + self.unimix / self.classes
        return probs.log()

    def _sample(self, logits, u):
        # gumbel argmax with straight-through gradients
        g = -torch.log(-torch.log(u.clamp(1e-6, 1 - 1e-6)))
        hard = F.one_hot((logits.detach() + g).argmax(-1), self.classes).to(logits.dtype)
        probs = logits.exp()
        return hard + probs - probs.detach()

    def initial(self, batch):
        deter = torch.tanh(self.init_deter).expand(batch, -1)
        logits = self._dist(self.prior_net(deter))
        return State(deter, logits.exp(), logits)

    def observe(self, embed, action, is_first, u):
        state = start = self.initial(embed.shape[0])
        posts, priors = [], []
        for e, a, first, noise in zip(embed.unbind(1), action.unbind(1), is_first.unbind(1), u.unbind(1)):
            keep = 1.0 - first[:, None]
            deter = state.deter * keep + start.deter * first[:, None]
            stoch = state.stoch * keep[..., None] + start.stoch * first[:, None, None]
            x = self.inp(torch.cat([stoch.flatten(1), a * keep], -1))
            deter = self.cell(x, deter)
            prior = self._dist(self.prior_net(deter))
            post = self._dist(self.post_net(torch.cat([deter, e], -1)))
            state = State(deter, self._sample(post, noise), post)
            posts.append(state)
            priors.append(prior)
        return State.stack(posts), torch.stack(priors, 1)


class Model(nn.Module):
    """World-model loss of a DreamerV3-ish agent, image obs + continuous actions."""

    FREE_NATS = 1.0
    SCALES: Dict[str, float] = dict(image=1.0, reward=1.0, cont=1.0, dyn=0.5, rep=0.1)

    def __init__(self, depth=32, n_actions=6, bins=127):
        super().__init__()
        enc, c = [], 3
        for mult in (1, 2, 4, 8):
            enc += [nn.Conv2d(c, depth * mult, 4, 2, 1, bias=False), Norm2d(depth * mult, eps=1e-3), nn.SiLU()]
            c = depth * mult
        self.encoder = nn.Sequential(*enc, nn.Flatten())
        self.rssm = RSSM(c * 16, n_actions)
        feat = self.rssm.deter + self.rssm.groups * self.rssm.classes
        self.dec_in = nn.Linear(feat, c * 16)
        dec = []
        for mult in (4, 2, 1):
            dec += [nn.ConvTranspose2d(c, depth * mult, 4, 2, 1, bias=False), Norm2d(depth * mult, eps=1e-3), nn.SiLU()]
            c = depth * mult
        self.decoder = nn.Sequential(*dec, nn.ConvTranspose2d(c, 3, 4, 2, 1))
        self.reward = Dense(feat, 256, layers=2, out=bins)
        self.cont = Dense(feat, 256, layers=2, out=1)
        self.register_buffer("bins", torch.linspace(-20, 20, bins))

    def two_hot(self, x):
        x = symlog(x)[..., None]
        width = self.bins[1] - self.bins[0]
        return torch.clamp(1 - (x - self.bins).abs() / width, min=0)

    def kl(self, p, q):
        return (p.exp() * (p - q)).sum((-2, -1)).clamp(min=self.FREE_NATS)

    def forward(self, image, action, reward, cont, is_first, u):
        B, T = image.shape[:2]
        embed = self.encoder(image.flatten(0, 1) - 0.5).unflatten(0, (B, T))
        post, prior = self.rssm.observe(embed, action, is_first, u)
        feat = post.feat

        recon = self.decoder(self.dec_in(feat).reshape(B * T, -1, 4, 4)).view_as(image) + 0.5
        losses = {
            "image": (recon - image).square().sum((-3, -2, -1)),
            "reward": -(self.two_hot(reward) * self.reward(feat).log_softmax(-1)).sum(-1),
            "cont": F.binary_cross_entropy_with_logits(self.cont(feat).squeeze(-1), cont, reduction="none"),
            "dyn": self.kl(post.logits.detach(), prior),
            "rep": self.kl(post.logits, prior.detach()),
        }
        assert all(l.dim() == 2 for l in losses.values())
        loss = sum(self.SCALES[k] * v.mean() for k, v in losses.items())
        return loss, {k: v.mean().detach() for k, v in losses.items()}


def inputs(batch, T=10):
    first = torch.zeros(batch, T)
    first[:, 0] = 1
    return (torch.rand(batch, T, 3, 64, 64), torch.randn(batch, T, 6), torch.randn(batch, T),
            torch.ones(batch, T), first, torch.rand(batch, T, 24, 24))
