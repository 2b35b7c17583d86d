# DrQ / SAC from pixels in one module: returns (critic_loss, actor_loss, alpha_loss)
# the optimizers outside each take their own loss; targets are updated here at the start of the step
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

LOG_STD_MIN, LOG_STD_MAX = -10, 2


def weight_init(m):
    if isinstance(m, nn.Linear):
        nn.init.orthogonal_(m.weight.data)
        if hasattr(m.bias, 'data'):
            m.bias.data.fill_(0.0)
    elif isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        gain = nn.init.calculate_gain('relu')
        nn.init.orthogonal_(m.weight.data, gain)
        if hasattr(m.bias, 'data'):
            m.bias.data.fill_(0.0)


class RandomShiftsAug(nn.Module):
    def __init__(self, pad=4):
        super().__init__()
        self.pad = pad

    def forward(self, x):
        n, c, h, w = x.size()
        assert h == w
        x = F.pad(x, (self.pad,) * 4, 'replicate')
        eps = 1.0 / (h + 2 * self.pad)
        arange = torch.linspace(-1.0 + eps, 1.0 - eps, h + 2 * self.pad, device=x.device, dtype=x.dtype)[:h]
        arange = arange.unsqueeze(0).repeat(h, 1).unsqueeze(2)
        base_grid = torch.cat([arange, arange.transpose(1, 0)], dim=2)
        base_grid = base_grid.unsqueeze(0).repeat(n, 1, 1, 1)
        shift = torch.randint(0, 2 * self.pad + 1, size=(n, 1, 1, 2), device=x.device).to(x.dtype)
        shift *= 2.0 / (h + 2 * self.pad)
        return F.grid_sample(x, base_grid + shift, padding_mode='zeros', align_corners=False)


class Encoder(nn.Module):
    def __init__(self, obs_shape=(9, 84, 84), num_filters=96):
        super().__init__()
        self.repr_dim = num_filters * 35 * 35
        self.convnet = nn.Sequential(nn.Conv2d(obs_shape[0], num_filters, 3, stride=2), nn.ReLU(),
                                     nn.Conv2d(num_filters, num_filters, 3, stride=1), nn.ReLU(),
                                     nn.Conv2d(num_filters, num_filters, 3, stride=1), nn.ReLU(),
                                     nn.Conv2d(num_filters, num_filters, 3, stride=1), nn.ReLU())
        self.apply(weight_init)

    def forward(self, obs):
        obs = obs / 255.0 - 0.5
        h = self.convnet(obs)
        return h.view(h.shape[0], -1)


class Trunk(nn.Sequential):
    def __init__(self, repr_dim, feature_dim):
        super().__init__(nn.Linear(repr_dim, feature_dim), nn.LayerNorm(feature_dim), nn.Tanh())


class Critic(nn.Module):
    def __init__(self, repr_dim, action_dim, feature_dim=50, hidden_dim=512):
        super().__init__()
        self.trunk = Trunk(repr_dim, feature_dim)
        q = lambda: nn.Sequential(
            nn.Linear(feature_dim + action_dim, hidden_dim), nn.ReLU(inplace=True),
            nn.Linear(hidden_dim, hidden_dim), nn.ReLU(inplace=True), nn.Linear(hidden_dim, 1))
        self.Q1, self.Q2 = q(), q()
        self.apply(weight_init)

    def forward(self, obs, action):
        h = self.trunk(obs)
        h_action = torch.cat([h, action], dim=-1)
        return self.Q1(h_action), self.Q2(h_action)


class Actor(nn.Module):
    def __init__(self, repr_dim, action_dim, feature_dim=50, hidden_dim=512):
        super().__init__()
        self.trunk = Trunk(repr_dim, feature_dim)
        self.policy = nn.Sequential(nn.Linear(feature_dim, hidden_dim), nn.ReLU(inplace=True),
                                    nn.Linear(hidden_dim, hidden_dim), nn.ReLU(inplace=True),
                                    nn.Linear(hidden_dim, 2 * action_dim))
        self.apply(weight_init)

    def forward(self, obs):
        mu, log_std = self.policy(self.trunk(obs)).chunk(2, dim=-1)
        log_std = torch.tanh(log_std)
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)
        noise = torch.randn_like(mu)
        pre = mu + noise * log_std.exp()
        log_prob = (-0.5 * noise.pow(2) - log_std - 0.5 * math.log(2 * math.pi)).sum(-1, keepdim=True)
        log_prob -= (2 * (math.log(2) - pre - F.softplus(-2 * pre))).sum(-1, keepdim=True)
        return torch.tanh(pre), log_prob


class Model(nn.Module):
    def __init__(self, action_dim=6, discount=0.99, tau=0.01, init_temperature=0.1):
        super().__init__()
        self.discount = discount
        self.tau = tau
        self.target_entropy = -float(action_dim)
        self.aug = RandomShiftsAug()
        self.encoder = Encoder()
        self.critic = Critic(self.encoder.repr_dim, action_dim)
        self.critic_target = Critic(self.encoder.repr_dim, action_dim)
        self.critic_target.load_state_dict(self.critic.state_dict())
        for p in self.critic_target.parameters():
            p.requires_grad_(False)
        self.actor = Actor(self.encoder.repr_dim, action_dim)
        self.log_alpha = nn.Parameter(torch.tensor(math.log(init_temperature)))

    @property
    def alpha(self):
        return self.log_alpha.exp()

    @torch.no_grad()
    def soft_update(self):
        for param, target_param in zip(self.critic.parameters(), self.critic_target.parameters()):
            target_param.mul_(1 - self.tau).add_(param, alpha=self.tau)

    def update_critic(self, obs, action, reward, not_done, next_obs):
        with torch.no_grad():
            next_action, log_prob = self.actor(next_obs)
            target_Q1, target_Q2 = self.critic_target(next_obs, next_action)
            target_V = torch.min(target_Q1, target_Q2) - self.alpha.detach() * log_prob
            target_Q = reward + (not_done * self.discount * target_V)
        Q1, Q2 = self.critic(obs, action)
        return F.mse_loss(Q1, target_Q) + F.mse_loss(Q2, target_Q)

    def update_actor(self, obs):
        action, log_prob = self.actor(obs)
        Q = torch.min(*self.critic(obs, action))
        actor_loss = (self.alpha.detach() * log_prob - Q).mean()
        alpha_loss = (self.alpha * (-log_prob - self.target_entropy).detach()).mean()
        return actor_loss, alpha_loss

    def forward(self, obs, action, reward, next_obs, not_done):
        self.soft_update()
        obs, obs_aug = self.aug(obs), self.aug(obs)
        next_obs = self.aug(next_obs)

        obs, obs_aug = self.encoder(obs), self.encoder(obs_aug)
        with torch.no_grad():
            next_obs = self.encoder(next_obs)

        critic_loss = self.update_critic(obs, action, reward, not_done, next_obs)
        critic_loss += self.update_critic(obs_aug, action, reward, not_done, next_obs)
        actor_loss, alpha_loss = self.update_actor(obs.detach())
        return critic_loss, actor_loss, alpha_loss


def inputs(batch):
    frames = lambda: torch.randint(0, 256, (batch, 9, 84, 84)).float()
    return frames(), torch.rand(batch, 6) * 2 - 1, torch.randn(batch, 1), frames(), torch.ones(batch, 1)
