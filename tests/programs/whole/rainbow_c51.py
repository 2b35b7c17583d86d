"""Rainbow (Kaixhin-like), with the learn() step as forward so that it can be data-parallelised."""
import math
import torch
from torch import nn
from torch.nn import functional as F


class NoisyLinear(nn.Module):
    """Factorised NoisyLinear layer with bias"""

    def __init__(self, in_features, out_features, std_init=0.5):
        super(NoisyLinear, self).__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.std_init = std_init
        self.weight_mu = nn.Parameter(torch.empty(out_features, in_features))
        self.weight_sigma = nn.Parameter(torch.empty(out_features, in_features))
        self.register_buffer('weight_epsilon', torch.zeros(out_features, in_features))
        self.bias_mu = nn.Parameter(torch.empty(out_features))
        self.bias_sigma = nn.Parameter(torch.empty(out_features))
        self.register_buffer('bias_epsilon', torch.zeros(out_features))
        self.reset_parameters()

    def reset_parameters(self):
        mu_range = 1 / math.sqrt(self.in_features)
        self.weight_mu.data.uniform_(-mu_range, mu_range)
        self.weight_sigma.data.fill_(self.std_init / math.sqrt(self.in_features))
        self.bias_mu.data.uniform_(-mu_range, mu_range)
        self.bias_sigma.data.fill_(self.std_init / math.sqrt(self.out_features))

    def _scale_noise(self, size):
        x = torch.randn(size, device=self.weight_mu.device)
        return x.sign().mul_(x.abs().sqrt_())

    def reset_noise(self):
        epsilon_in = self._scale_noise(self.in_features)
        epsilon_out = self._scale_noise(self.out_features)
        self.weight_epsilon.copy_(torch.outer(epsilon_out, epsilon_in))
        self.bias_epsilon.copy_(epsilon_out)

    def forward(self, input):
        if self.training:
            # clone: the noise is redrawn before backward() runs
            return F.linear(input, self.weight_mu + self.weight_sigma * self.weight_epsilon.clone(),
                            self.bias_mu + self.bias_sigma * self.bias_epsilon.clone())
        else:
            return F.linear(input, self.weight_mu, self.bias_mu)


class DQN(nn.Module):
    def __init__(self, atoms, action_space, history=4, hidden=512, architecture='canonical'):
        super(DQN, self).__init__()
        self.atoms = atoms
        self.action_space = action_space
        if architecture == 'canonical':
            self.convs = nn.Sequential(nn.Conv2d(history, 32, 8, stride=4, padding=0), nn.ReLU(),
                                       nn.Conv2d(32, 64, 4, stride=2, padding=0), nn.ReLU(),
                                       nn.Conv2d(64, 64, 3, stride=1, padding=0), nn.ReLU())
            self.conv_output_size = 3136
        elif architecture == 'data-efficient':
            self.convs = nn.Sequential(nn.Conv2d(history, 32, 5, stride=5, padding=0), nn.ReLU(),
                                       nn.Conv2d(32, 64, 5, stride=5, padding=0), nn.ReLU())
            self.conv_output_size = 576
        self.fc_h_v = NoisyLinear(self.conv_output_size, hidden)
        self.fc_h_a = NoisyLinear(self.conv_output_size, hidden)
        self.fc_z_v = NoisyLinear(hidden, self.atoms)
        self.fc_z_a = NoisyLinear(hidden, action_space * self.atoms)

    def forward(self, x, log=False, features=False):
        x = self.convs(x)
        x = x.view(-1, self.conv_output_size)
        v = self.fc_z_v(F.relu(self.fc_h_v(x)))  # Value stream
        a = self.fc_z_a(F.relu(self.fc_h_a(x)))  # Advantage stream
        v, a = v.view(-1, 1, self.atoms), a.view(-1, self.action_space, self.atoms)
        q = v + a - a.mean(1, keepdim=True)  # Combine streams
        if log:  # Use log softmax for numerical stability
            q = F.log_softmax(q, dim=2)
        else:
            q = F.softmax(q, dim=2)
        return (q, x) if features else q

    def reset_noise(self):
        for name, module in self.named_children():
            if 'fc' in name:
                module.reset_noise()


class Model(nn.Module):
    Vmin, Vmax, atoms = -10., 10., 51
    discount, n = 0.99, 3
    action_space = 18
    tau = 0.005

    def __init__(self):
        super().__init__()
        self.online_net = DQN(self.atoms, self.action_space)
        self.target_net = DQN(self.atoms, self.action_space)
        self.target_net.load_state_dict(self.online_net.state_dict())
        for param in self.target_net.parameters():
            param.requires_grad = False
        # CURL-ish auxiliary task
        self.proj = nn.Sequential(nn.Linear(3136, 256), nn.LayerNorm(256), nn.ReLU(inplace=True), nn.Linear(256, 128))
        self.W = nn.Parameter(torch.rand(128, 128))
        self.register_buffer('support', torch.linspace(self.Vmin, self.Vmax, self.atoms))
        self.delta_z = (self.Vmax - self.Vmin) / (self.atoms - 1)
        self.register_buffer('updates', torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def soft_update(self):
        for p, tp in zip(self.online_net.parameters(), self.target_net.parameters()):
            tp.mul_(1 - self.tau).add_(p, alpha=self.tau)
        self.updates += 1

    def random_shift(self, x, pad=4):
        """DrQ random shift by grid_sample"""
        b, c, h, w = x.shape
        x = F.pad(x, (pad, pad, pad, pad), 'replicate')
        eps = 1.0 / (h + 2 * pad)
        ar = torch.linspace(-1.0 + eps, 1.0 - eps, h + 2 * pad, device=x.device)[:h]
        ar = ar.unsqueeze(0).repeat(h, 1).unsqueeze(2)
        base = torch.cat([ar, ar.transpose(1, 0)], dim=2).unsqueeze(0).repeat(b, 1, 1, 1)
        shift = torch.randint(0, 2 * pad + 1, (b, 1, 1, 2), device=x.device).to(x.dtype)
        shift = shift * 2.0 / (h + 2 * pad)
        return F.grid_sample(x, base + shift, padding_mode='zeros', align_corners=False)

    def forward(self, states, actions, returns, next_states, nonterminals, weights):
        B = states.size(0)
        self.soft_update()
        self.online_net.reset_noise()
        states = states / 255.
        next_states = next_states / 255.
        states1, states2 = self.random_shift(states), self.random_shift(states)

        # Current state probabilities (online network noise already sampled)
        log_ps, feat = self.online_net(states1, log=True, features=True)  # log p(s_t, .; theta_online)
        log_ps_a = log_ps.gather(1, actions.view(B, 1, 1).expand(-1, -1, self.atoms)).squeeze(1)

        with torch.no_grad():
            # Calculate nth next state probabilities
            pns = self.online_net(next_states)
            dns = self.support.expand_as(pns) * pns
            argmax_indices_ns = dns.sum(2).argmax(1)  # double Q
            self.target_net.reset_noise()
            pns = self.target_net(next_states)
            pns_a = pns.gather(1, argmax_indices_ns.view(B, 1, 1).expand(-1, -1, self.atoms)).squeeze(1)

            # Compute Tz (Bellman operator T applied to z)
            Tz = returns.unsqueeze(1) + nonterminals.unsqueeze(1) * (self.discount ** self.n) * self.support.unsqueeze(0)
            Tz = Tz.clamp(min=self.Vmin, max=self.Vmax)
            b = (Tz - self.Vmin) / self.delta_z
            l, u = b.floor().to(torch.int64), b.ceil().to(torch.int64)
            # Fix disappearing probability mass when l = b = u (b is int)
            l = torch.where((u > 0) & (l == u), l - 1, l)
            u = torch.where((l < (self.atoms - 1)) & (l == u), u + 1, u)

            # Distribute probability of Tz
            m = states.new_zeros(B, self.atoms)
            offset = (torch.arange(B, device=states.device) * self.atoms).unsqueeze(1).expand(B, self.atoms)
            m.view(-1).index_add_(0, (l + offset).reshape(-1), (pns_a * (u.float() - b)).reshape(-1))
            m.view(-1).index_add_(0, (u + offset).reshape(-1), (pns_a * (b - l.float())).reshape(-1))

        loss = -torch.sum(m * log_ps_a, 1)  # Cross-entropy loss (minimises DKL(m||p(s_t, a_t)))
        priorities = loss.detach()

        z_a = self.proj(feat)
        with torch.no_grad():
            z_pos = self.proj(self.target_net.convs(states2).flatten(1))
        logits = torch.matmul(z_a, torch.matmul(self.W, z_pos.t()))
        logits = logits - logits.max(1, keepdim=True)[0].detach()
        labels = torch.arange(B, device=states.device)
        curl = F.cross_entropy(logits, labels)
        return (weights * loss).mean() + curl, priorities


def inputs(batch):
    return (torch.randint(0, 256, (batch, 4, 84, 84)).float(), torch.randint(0, 18, (batch,)), torch.randn(batch),
            torch.randint(0, 256, (batch, 4, 84, 84)).float(), (torch.rand(batch) > 0.05).float(), torch.rand(batch))
