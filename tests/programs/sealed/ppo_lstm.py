# recurrent PPO, cleanrl flavoured. one minibatch update: forward computes everything incl. GAE
# envs are the batch dimension, time is dim 1 in storage and swapped in here
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

T = 16
N_ACT = 15
GAMMA, LAM = 0.999, 0.95
CLIP, VF, ENT = 0.2, 0.5, 0.01


def layer_init(layer, std=math.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv0 = nn.Conv2d(channels, channels, kernel_size=3, padding=1)
        self.conv1 = nn.Conv2d(channels, channels, kernel_size=3, padding=1)

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
        self.conv = nn.Conv2d(self._input_shape[0], self._out_channels, kernel_size=3, padding=1)
        self.res_block0 = ResidualBlock(self._out_channels)
        self.res_block1 = ResidualBlock(self._out_channels)

    def forward(self, x):
        x = self.conv(x)
        x = nn.functional.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        x = self.res_block0(x)
        x = self.res_block1(x)
        return x

    def get_output_shape(self):
        _c, h, w = self._input_shape
        return (self._out_channels, (h + 1) // 2, (w + 1) // 2)


class RunningMeanStd(nn.Module):
    """for reward scaling"""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("var", torch.ones(()))
        self.register_buffer("count", torch.tensor(1e-4))

    @torch.no_grad()
    def update(self, x):
        batch_mean, batch_var = x.mean(), x.var(unbiased=False)
        n = x.numel()
        delta = batch_mean - self.mean
        tot = self.count + n
        new_mean = self.mean + delta * n / tot
        m2 = self.var * self.count + batch_var * n + delta ** 2 * self.count * n / tot
        self.mean.copy_(new_mean)
        self.var.copy_(m2 / tot)
        self.count.copy_(tot)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        shape = (3, 64, 64)
        conv_seqs = []
        for out_channels in [16, 32, 32]:
            conv_seq = ConvSequence(shape, out_channels)
            shape = conv_seq.get_output_shape()
            conv_seqs.append(conv_seq)
        conv_seqs += [
            nn.Flatten(),
            nn.ReLU(),
            nn.Linear(in_features=shape[0] * shape[1] * shape[2], out_features=256),
            nn.ReLU(),
        ]
        self.network = nn.Sequential(*conv_seqs)
        self.act_emb = nn.Embedding(N_ACT, 32)
        self.lstm = nn.LSTMCell(256 + 32 + 1, 256)
        for name, param in self.lstm.named_parameters():
            if "bias" in name:
                nn.init.constant_(param, 0)
            elif "weight" in name:
                nn.init.orthogonal_(param, 1.0)
        self.actor = layer_init(nn.Linear(256, N_ACT), std=0.01)
        self.critic = layer_init(nn.Linear(256, 1), std=1)
        self.rms = RunningMeanStd()

    def get_states(self, obs, prev_a, prev_r, done, h, c):
        t, b = obs.shape[:2]
        # uint8 frames arrive as floats 0..255
        hidden = self.network(obs.flatten(0, 1) / 255.0).view(t, b, -1)
        x = torch.cat([hidden, self.act_emb(prev_a), prev_r.unsqueeze(-1).clamp(-1, 1)], -1)
        new_hidden = []
        for i in range(T):
            keep = (1.0 - done[i]).view(-1, 1)
            h, c = self.lstm(x[i], (keep * h, keep * c))
            new_hidden += [h]
        return torch.stack(new_hidden), (h, c)

    @torch.no_grad()
    def gae(self, rewards, values, dones, next_value, next_done):
        advantages = torch.zeros_like(rewards)
        lastgaelam = torch.zeros_like(next_value)
        for t in reversed(range(T)):
            if t == T - 1:
                nextnonterminal = 1.0 - next_done
                nextvalues = next_value
            else:
                nextnonterminal = 1.0 - dones[t + 1]
                nextvalues = values[t + 1]
            delta = rewards[t] + GAMMA * nextvalues * nextnonterminal - values[t]
            lastgaelam = delta + GAMMA * LAM * nextnonterminal * lastgaelam
            advantages[t] = lastgaelam
        return advantages, advantages + values

    def forward(self, obs, actions, prev_actions, rewards, dones, old_logprob, old_values, h0, c0):
        # obs has T+1 frames, the last one is for bootstrapping
        obs = obs.transpose(0, 1)
        actions, prev_actions = actions.t(), prev_actions.t()
        rewards, dones = rewards.t(), dones.t()
        old_logprob, old_values = old_logprob.t(), old_values.t()

        self.rms.update(rewards)
        rewards = rewards / torch.sqrt(self.rms.var + 1e-8)

        prev_r = torch.cat([torch.zeros_like(rewards[:1]), rewards[:-1]], 0)
        hidden, (h, c) = self.get_states(obs[:-1], prev_actions, prev_r, dones[:-1], h0, c0)
        with torch.no_grad():
            last = torch.cat([self.network(obs[-1] / 255.0), self.act_emb(actions[-1]),
                              rewards[-1].unsqueeze(-1).clamp(-1, 1)], -1)
            nh, _ = self.lstm(last, (h, c))
            next_value = self.critic(nh).flatten()
        adv, returns = self.gae(rewards, old_values, dones[:-1], next_value, dones[-1])
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)

        logits = self.actor(hidden)
        logits = logits - logits.logsumexp(-1, keepdim=True)
        newlogprob = logits.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        entropy = -(logits * logits.exp()).sum(-1)
        newvalue = self.critic(hidden).squeeze(-1)

        logratio = newlogprob - old_logprob
        ratio = logratio.exp()
        with torch.no_grad():
            approx_kl = ((ratio - 1) - logratio).mean()
            clipfrac = ((ratio - 1.0).abs() > CLIP).float().mean()

        # Policy loss
        pg_loss1 = -adv * ratio
        pg_loss2 = -adv * torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
        pg_loss = torch.max(pg_loss1, pg_loss2).mean()
        # Value loss
        v_loss_unclipped = (newvalue - returns) ** 2
        v_clipped = old_values + torch.clamp(newvalue - old_values, -CLIP, CLIP)
        v_loss_clipped = (v_clipped - returns) ** 2
        v_loss = 0.5 * torch.max(v_loss_unclipped, v_loss_clipped).mean()

        entropy_loss = entropy.mean()
        loss = pg_loss - ENT * entropy_loss + v_loss * VF
        return loss, pg_loss.detach(), v_loss.detach(), entropy_loss.detach(), approx_kl, clipfrac


def inputs(batch):
    return (
        torch.randint(0, 256, (batch, T + 1, 3, 64, 64)).float(),
        torch.randint(0, N_ACT, (batch, T)),
        torch.randint(0, N_ACT, (batch, T)),
        torch.randn(batch, T),
        (torch.rand(batch, T + 1) < 0.05).float(),
        -torch.rand(batch, T) * 2 - 1.5,
        torch.randn(batch, T),
        torch.zeros(batch, 256),
        torch.zeros(batch, 256),
    )
