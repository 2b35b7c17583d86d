"""Custom functions, checkpoints, detached and frozen parts."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

__all__ = ["own_swish", "saves_much", "straight_through", "gradient_reversal", "checkpointed", "checkpointed_in_pieces", "frozen_backbone", "detached_target", "quantizer"]


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))


class FusedNorm(torch.autograd.Function):
    """Saves more than its ops would, as kernels written by hand do."""

    @staticmethod
    def forward(ctx, x, weight):
        mean = x.mean(-1, keepdim=True)
        centred = x - mean
        scale = (centred.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()
        normal = centred * scale
        ctx.save_for_backward(x, centred, normal, scale, weight)
        return normal * weight

    @staticmethod
    def backward(ctx, grad):
        x, centred, normal, scale, weight = ctx.saved_tensors
        inner = grad * weight
        n = x.shape[-1]
        grad_x = scale / n * (n * inner - inner.sum(-1, keepdim=True) - normal * (inner * normal).sum(-1, keepdim=True))
        return grad_x, (grad * normal).flatten(0, -2).sum(0)


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class OwnSwish(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(6))
        self.head = nn.Linear(256, 30)

    def forward(self, x):
        for layer in self.layers:
            x = Swish.apply(layer(x))
        return self.head(x)


class SavesMuch(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.ones(width)) for _ in range(4))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.head = nn.Linear(width, 30)

    def forward(self, x):
        for weight, layer in zip(self.weights, self.layers):
            x = x + F.gelu(layer(FusedNorm.apply(x, weight)))
        return self.head(x)


class StraightThrough(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 8, 4, 2, 1))
        self.decode = nn.Sequential(nn.ConvTranspose2d(8, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1))

    def forward(self, x):
        code = Round.apply(torch.tanh(self.encode(x)) * 4) / 4
        return F.mse_loss(self.decode(code), x)


class GradientReversal(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(100, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.label, self.domain = nn.Linear(256, 10), nn.Linear(256, 2)

    def forward(self, x, label, domain):
        f = self.features(x)
        return F.cross_entropy(self.label(f), label) + F.cross_entropy(self.domain(Reverse.apply(f, 0.1)), domain)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(x)


class Checkpointed(nn.Module):
    def __init__(self, width=128, layers=4):
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, 1000)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        return self.head(x)


class CheckpointedInPieces(nn.Module):
    def __init__(self, width=256, layers=8):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()) for _ in range(layers)])
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(checkpoint_sequential(self.layers, 4, x, use_reentrant=False))


class FrozenBackbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 64, 7, 4, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.BatchNorm2d(128), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        for p in self.backbone.parameters():
            p.requires_grad = False
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 100))

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            f = self.backbone(x)
        return self.head(f)


class DetachedTarget(nn.Module):
    """A critic with a bootstrapped target, as in Q-learning."""

    def __init__(self):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 6))

    def forward(self, state, action, reward, after):
        value = self.q(state).gather(1, action.unsqueeze(1)).squeeze(1)
        target = reward + 0.99 * self.q(after).max(dim=1).values.detach()
        return F.smooth_l1_loss(value, target)


class Quantizer(nn.Module):
    """VQ-VAE: nearest codes, straight through."""

    def __init__(self, codes=256, width=32):
        super().__init__()
        self.encode, self.decode = nn.Conv2d(3, width, 4, 4), nn.ConvTranspose2d(width, 3, 4, 4)
        self.codes = nn.Embedding(codes, width)

    def forward(self, x):
        z = self.encode(x).permute(0, 2, 3, 1)
        flat = z.reshape(-1, z.shape[-1])
        distance = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.codes.weight.t() + self.codes.weight.pow(2).sum(1)
        q = self.codes(distance.argmin(1)).view(z.shape)
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        q = z + (q - z).detach()
        return F.mse_loss(self.decode(q.permute(0, 3, 1, 2)), x) + loss


def own_swish(batch):
    return OwnSwish(), (torch.zeros(batch, 400, 256),), {}


def saves_much(batch):
    return SavesMuch(), (torch.zeros(batch, 400, 192),), {}


def straight_through(batch):
    return StraightThrough(), (torch.zeros(batch, 3, 64, 64),), {}


def gradient_reversal(batch):
    z = torch.zeros(batch, dtype=torch.long)
    return GradientReversal(), (torch.zeros(batch, 100), z, z.clone()), {}


def checkpointed(batch):
    return Checkpointed(), (torch.zeros(batch, 128, dtype=torch.long),), {}


def checkpointed_in_pieces(batch):
    return CheckpointedInPieces(), (torch.zeros(batch, 256),), {}


def frozen_backbone(batch):
    return FrozenBackbone(), (torch.zeros(batch, 3, 160, 160),), {}


def detached_target(batch):
    return DetachedTarget(), (torch.zeros(batch, 16), torch.zeros(batch, dtype=torch.long), torch.zeros(batch), torch.zeros(batch, 16)), {}


def quantizer(batch):
    return Quantizer(), (torch.zeros(batch, 3, 64, 64),), {}
