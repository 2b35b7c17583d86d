"""PPO on procgen-like frames. The batch is a minibatch of fragments [B, T, ...];
everything that the update needs happens in forward(): GAE, reward/return
normalisation, clipped surrogate, clipped value loss, entropy, approx KL."""
from typing import NamedTuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

T = 8
N_ACTIONS = 15


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, float(std))
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class RunningMeanStd(nn.Module):
    def __init__(self, shape=(), epsilon=1e-4):
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("var", torch.ones(shape))
        self.register_buffer("count", torch.tensor(epsilon))

    @torch.no_grad()
    def update(self, x):
        b_mean, b_var = x.mean(0), x.var(0, unbiased=False)
        n = x.shape[0]
        delta = b_mean - self.mean
        tot = self.count + n
        new_mean = self.mean + delta * n / tot
        m2 = self.var * self.count + b_var * n + delta.square() * self.count * n / tot
        self.mean.copy_(new_mean)
        self.var.copy_(m2 / tot)
        self.count.copy_(tot)


class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv0 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        inputs = x
        x = nn.functional.relu(x)
        x = self.conv0(x)
        x = nn.functional.relu(x)
        x = self.conv1(x)
        return x + inputs


class ConvSequence(nn.Module):
    def __init__(self, input_shape, out_channels):
        super().__init__()
        self._input_shape = input_shape
        self._out_channels = out_channels
        self.conv = nn.Conv2d(input_shape[0], out_channels, 3, padding=1)
        self.res_block0 = ResidualBlock(out_channels)
        self.res_block1 = ResidualBlock(out_channels)

    def forward(self, x):
        x = self.conv(x)
        x = nn.functional.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        x = self.res_block0(x)
        x = self.res_block1(x)
        return x

    def get_output_shape(self):
        _c, h, w = self._input_shape
        return (self._out_channels, (h + 1) // 2, (w + 1) // 2)


class PPOHParams(NamedTuple):
    gamma: float = 0.999
    lam: float = 0.95
    clip: float = 0.2
    vf_coef: float = 0.5
    ent_coef: float = 0.01
    norm_adv: bool = True


class Agent(nn.Module):
    def __init__(self, obs_shape=(3, 64, 64), n_actions=N_ACTIONS):
        super().__init__()
        shape = obs_shape
        conv_seqs = []
        for out_channels in [16, 32, 32]:
            conv_seq = ConvSequence(shape, out_channels)
            shape = conv_seq.get_output_shape()
            conv_seqs.append(conv_seq)
        conv_seqs += [
            nn.Flatten(),
            nn.ReLU(),
            nn.Linear(shape[0] * shape[1] * shape[2], 256),
            nn.ReLU(),
        ]
        self.network = nn.Sequential(*conv_seqs)
        self.actor = layer_init(nn.Linear(256, n_actions), std=0.01)
        self.critic = layer_init(nn.Linear(256, 1), std=1)

    def get_logits_and_value(self, x):
        hidden = self.network(x)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


@torch.no_grad()
def gae(rewards, values, dones, next_value, gamma, lam):
    # rewards, values, dones: [B, T]; dones[t] = episode ended by the action at t
    advantages = torch.zeros_like(rewards)
    lastgaelam = torch.zeros_like(next_value)
    for t in reversed(range(rewards.shape[1])):
        nonterminal = 1.0 - dones[:, t]
        nextvalues = next_value if t == rewards.shape[1] - 1 else values[:, t + 1]
        delta = rewards[:, t] + gamma * nextvalues * nonterminal - values[:, t]
        lastgaelam = delta + gamma * lam * nonterminal * lastgaelam
        advantages[:, t] = lastgaelam
    return advantages, advantages + values


def random_shift(x, pad=4):
    """DrQ augmentation, one offset per frame"""
    n, _, h, w = x.shape
    x = F.pad(x, (pad,) * 4, mode="replicate")
    eps = 1.0 / (h + 2 * pad)
    arange = torch.linspace(-1.0 + eps, 1.0 - eps, h + 2 * pad, device=x.device, dtype=x.dtype)[:h]
    arange = arange.unsqueeze(0).repeat(h, 1).unsqueeze(2)
    base_grid = torch.cat([arange, arange.transpose(1, 0)], dim=2)
    base_grid = base_grid.unsqueeze(0).repeat(n, 1, 1, 1)
    shift = torch.randint(0, 2 * pad + 1, size=(n, 1, 1, 2), device=x.device).to(x.dtype)
    shift *= 2.0 / (h + 2 * pad)
    return F.grid_sample(x, base_grid + shift, padding_mode="zeros", align_corners=False)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.hp = PPOHParams()
        self.agent = Agent()
        self.ret_rms = RunningMeanStd()

    def forward(self, obs, actions, old_logprobs, rewards, dones, old_values, next_value):
        hp = self.hp
        self.ret_rms.update(rewards.flatten())
        rewards = rewards / torch.sqrt(self.ret_rms.var + 1e-8)
        adv, returns = gae(rewards, old_values, dones, next_value, hp.gamma, hp.lam)

        b_obs = obs.flatten(0, 1).float().div(255.0)
        with torch.no_grad():
            b_obs = random_shift(b_obs)
        b_actions = actions.flatten()
        b_logp = old_logprobs.flatten()
        b_adv = adv.flatten()
        b_ret = returns.flatten()
        b_val = old_values.flatten()

        logits, newvalue = self.agent.get_logits_and_value(b_obs)
        logp_all = logits - logits.logsumexp(dim=-1, keepdim=True)
        newlogprob = logp_all.gather(1, b_actions.unsqueeze(1)).squeeze(1)
        entropy = -(logp_all.exp() * logp_all).sum(-1)

        logratio = newlogprob - b_logp
        ratio = logratio.exp()
        with torch.no_grad():
            # http://joschu.net/blog/kl-approx.html
            approx_kl = ((ratio - 1) - logratio).mean()
            clipfrac = ((ratio - 1.0).abs() > hp.clip).float().mean()

        if hp.norm_adv:
            b_adv = (b_adv - b_adv.mean()) / (b_adv.std() + 1e-8)

        pg_loss1 = -b_adv * ratio
        pg_loss2 = -b_adv * torch.clamp(ratio, 1 - hp.clip, 1 + hp.clip)
        pg_loss = torch.max(pg_loss1, pg_loss2).mean()

        v_clipped = b_val + torch.clamp(newvalue - b_val, -hp.clip, hp.clip)
        v_loss = 0.5 * torch.max((newvalue - b_ret) ** 2, (v_clipped - b_ret) ** 2).mean()

        entropy_loss = entropy.mean()
        loss = pg_loss - hp.ent_coef * entropy_loss + v_loss * hp.vf_coef
        return loss, pg_loss.detach(), v_loss.detach(), entropy_loss.detach(), approx_kl, clipfrac


def inputs(batch):
    return (torch.randint(0, 256, (batch, T, 3, 64, 64), dtype=torch.uint8),
            torch.randint(0, N_ACTIONS, (batch, T)),
            -torch.rand(batch, T) - 2.2,
            torch.randn(batch, T),
            (torch.rand(batch, T) < 0.05).float(),
            torch.randn(batch, T),
            torch.randn(batch))
