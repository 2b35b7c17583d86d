# MuZero training graph: h (representation), g (dynamics), f (prediction)
# unrolled for K steps, gradient at the recurrent boundary scaled by 1/2 and each
# unroll step's loss scaled by 1/K  (Schrittwieser et al. 2020, Appendix G)
# plus EfficientZero style consistency loss.
import torch
import torch.nn as nn
import torch.nn.functional as F

cfg = dict(
    obs_channels=4 * 3, obs_size=96, actions=18, channels=64, blocks_repr=2, blocks_dyn=1, blocks_pred=1,
    unroll=5, support=150, reduced=16, fc=64, proj=(512, 128, 512), value_w=0.25, consistency_w=2.0,
)


class ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, s):
        ctx.s = s
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.s, None


def scale_gradient(x, s):
    return ScaleGradient.apply(x, s)


def h_transform(x, eps=0.001):
    return torch.sign(x) * (torch.sqrt(torch.abs(x) + 1) - 1) + eps * x


def scalar_to_support(x, size):
    """two-hot over [-size, size]"""
    x = h_transform(x).clamp(-size, size)
    floor = x.floor()
    prob = x - floor
    out = x.new_zeros(x.shape + (2 * size + 1,))
    lo = (floor + size).long().unsqueeze(-1)
    hi = (lo + 1).clamp(max=2 * size)
    out.scatter_(-1, lo, (1 - prob).unsqueeze(-1))
    out.scatter_add_(-1, hi, prob.unsqueeze(-1))
    return out


def renormalize(x):
    """hidden state to [0, 1] per sample"""
    flat = x.flatten(1)
    mn = flat.min(dim=1, keepdim=True).values
    mx = flat.max(dim=1, keepdim=True).values
    return ((flat - mn) / (mx - mn + 1e-5)).view_as(x)


def conv3x3(i, o, stride=1):
    return nn.Conv2d(i, o, 3, stride=stride, padding=1, bias=False)


class ResidualBlock(nn.Module):
    def __init__(self, i, o=None, stride=1):
        super().__init__()
        o = o or i
        self.conv1, self.bn1 = conv3x3(i, o, stride), nn.BatchNorm2d(o, momentum=0.1)
        self.conv2, self.bn2 = conv3x3(o, o), nn.BatchNorm2d(o, momentum=0.1)
        self.down = conv3x3(i, o, stride) if (stride != 1 or i != o) else None

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.down is None else self.down(x)
        return F.relu_(y)


class Representation(nn.Sequential):
    def __init__(self, c_in, c, n):
        super().__init__(
            conv3x3(c_in, c // 2, 2), nn.BatchNorm2d(c // 2), nn.ReLU(inplace=True),
            ResidualBlock(c // 2), ResidualBlock(c // 2, c, 2), ResidualBlock(c),
            nn.AvgPool2d(3, 2, 1), ResidualBlock(c), nn.AvgPool2d(3, 2, 1),
            *[ResidualBlock(c) for _ in range(n)],
        )

    def forward(self, x):
        return renormalize(super().forward(x))


def head(c, reduced, fc, out, spatial=6):
    net = nn.Sequential(
        nn.Conv2d(c, reduced, 1), nn.BatchNorm2d(reduced), nn.ReLU(inplace=True), nn.Flatten(),
        nn.Linear(reduced * spatial * spatial, fc), nn.BatchNorm1d(fc), nn.ReLU(inplace=True),
        nn.Linear(fc, out),
    )
    # zero-init output like EfficientZero
    nn.init.zeros_(net[-1].weight)
    nn.init.zeros_(net[-1].bias)
    return net


class Dynamics(nn.Module):
    def __init__(self, c, n_actions, n, support):
        super().__init__()
        self.n_actions = n_actions
        self.conv = conv3x3(c + 1, c)
        self.bn = nn.BatchNorm2d(c)
        self.blocks = nn.ModuleList(ResidualBlock(c) for _ in range(n))
        self.reward = head(c, cfg['reduced'], cfg['fc'], 2 * support + 1)

    def forward(self, state, action):
        plane = (action.to(state.dtype) + 1) / self.n_actions
        plane = plane[:, None, None, None].expand(-1, 1, state.shape[2], state.shape[3])
        x = self.bn(self.conv(torch.cat((state, plane), dim=1)))
        x = F.relu(x + state)
        for b in self.blocks:
            x = b(x)
        return renormalize(x), self.reward(x)


class Prediction(nn.Module):
    def __init__(self, c, n_actions, n, support):
        super().__init__()
        self.trunk = nn.Sequential(*(ResidualBlock(c) for _ in range(n)))
        self.policy = head(c, cfg['reduced'], cfg['fc'], n_actions)
        self.value = head(c, cfg['reduced'], cfg['fc'], 2 * support + 1)

    def forward(self, s):
        s = self.trunk(s)
        return self.policy(s), self.value(s)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        c, sup, a = cfg['channels'], cfg['support'], cfg['actions']
        self.h = Representation(cfg['obs_channels'], c, cfg['blocks_repr'])
        self.g = Dynamics(c, a, cfg['blocks_dyn'], sup)
        self.f = Prediction(c, a, cfg['blocks_pred'], sup)
        ph, bott, po = cfg['proj']
        self.projector = nn.Sequential(
            nn.Linear(c * 36, ph), nn.BatchNorm1d(ph), nn.ReLU(),
            nn.Linear(ph, ph), nn.BatchNorm1d(ph), nn.ReLU(),
            nn.Linear(ph, po), nn.BatchNorm1d(po))
        self.predictor = nn.Sequential(nn.Linear(po, bott), nn.BatchNorm1d(bott), nn.ReLU(), nn.Linear(bott, po))
        self.register_buffer('updates', torch.zeros((), dtype=torch.long))

    def consistency(self, state, target_obs):
        online = self.predictor(self.projector(state.flatten(1)))
        with torch.no_grad():
            target = self.projector(self.h(target_obs).flatten(1))
        return -(F.normalize(online, dim=-1) * F.normalize(target, dim=-1)).sum(-1)

    def forward(self, obs, actions, target_value, target_reward, target_policy, weights):
        """obs [B, K+1, C, H, W], actions [B, K], targets [B, K+1(, A)], weights [B]"""
        K, S = cfg['unroll'], cfg['support']
        v_target = scalar_to_support(target_value, S)
        r_target = scalar_to_support(target_reward, S)
        xent = lambda logits, t: -(F.log_softmax(logits, -1) * t).sum(-1)

        state = self.h(obs[:, 0])
        policy, value = self.f(state)
        value_loss = xent(value, v_target[:, 0])
        policy_loss = xent(policy, target_policy[:, 0])
        reward_loss = torch.zeros_like(value_loss)
        consistency_loss = torch.zeros_like(value_loss)
        priorities = value_loss.detach().clone()

        for k in range(K):
            state, reward = self.g(state, actions[:, k])
            policy, value = self.f(state)
            s = 1.0 / K
            value_loss = value_loss + scale_gradient(xent(value, v_target[:, k + 1]), s)
            policy_loss = policy_loss + scale_gradient(xent(policy, target_policy[:, k + 1]), s)
            reward_loss = reward_loss + scale_gradient(xent(reward, r_target[:, k]), s)
            consistency_loss = consistency_loss + scale_gradient(self.consistency(state, obs[:, k + 1]), s)
            state = scale_gradient(state, 0.5)

        total = policy_loss + cfg['value_w'] * value_loss + reward_loss + cfg['consistency_w'] * consistency_loss
        self.updates += 1
        return (total * weights).mean(), dict(policy=policy_loss.mean().detach(), value=value_loss.mean().detach(),
                                              reward=reward_loss.mean().detach(), priorities=priorities)


def inputs(batch):
    K = cfg['unroll']
    return (torch.rand(batch, K + 1, cfg['obs_channels'], 96, 96),
            torch.randint(0, cfg['actions'], (batch, K)),
            torch.randn(batch, K + 1) * 10, torch.randn(batch, K + 1),
            torch.softmax(torch.randn(batch, K + 1, cfg['actions']), -1),
            torch.rand(batch))
