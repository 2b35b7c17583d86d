"""Tensors in lists, dictionaries, tuples and canvases."""
import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["unet_list", "pyramid_dict", "canvas", "all_states", "named_outputs", "running_list", "masked_fill_canvas"]


def _block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(8, o), nn.SiLU())


class UNetList(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        widths = [width * 2**i for i in range(depth + 1)]
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.downs = nn.ModuleList(_block(a, b) for a, b in zip(widths, widths[1:]))
        self.ups = nn.ModuleList(_block(a + b, a) for a, b in reversed(list(zip(widths, widths[1:]))))
        self.head = nn.Conv2d(width, 5, 1)

    def forward(self, x):
        x = self.stem(x)
        skips = []
        for down in self.downs:
            skips.append(x)
            x = down(F.max_pool2d(x, 2))
        for up in self.ups:
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = up(torch.cat([x, skips.pop()], dim=1))
        return self.head(x)


class PyramidDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleDict({f"c{i}": _block(a, b) for i, (a, b) in enumerate(((3, 32), (32, 64), (64, 128)))})
        self.sides = nn.ModuleDict({f"c{i}": nn.Conv2d(c, 64, 1) for i, c in enumerate((32, 64, 128))})
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        features = {}
        for name, stage in self.stages.items():
            x = F.avg_pool2d(stage(x), 2)
            features[name] = x
        sides = {name: self.sides[name](f) for name, f in features.items()}
        top = sides["c2"]
        for name in ("c1", "c0"):
            top = sides[name] + F.interpolate(top, size=sides[name].shape[-2:], mode="bilinear", align_corners=False)
        return self.head(top.mean(dim=(2, 3)))


class Canvas(nn.Module):
    """Results are written into a tensor made beforehand."""

    def __init__(self, width=128, pieces=4):
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)) for _ in range(pieces))
        self.head = nn.Linear(width, 100)

    def forward(self, x):
        out = torch.zeros_like(x)
        step = x.shape[1] // len(self.experts)
        for i, expert in enumerate(self.experts):
            out[:, i * step : (i + 1) * step] = expert(x[:, i * step : (i + 1) * step])
        return self.head(out)


class AllStates(nn.Module):
    def __init__(self, width=96, layers=4):
        super().__init__()
        self.embed = nn.Linear(32, width)
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)) for _ in range(layers))
        self.mix = nn.Parameter(torch.zeros(layers + 1))
        self.head = nn.Linear(width, 20)

    def forward(self, x):
        hidden = self.embed(x)
        states = (hidden,)
        for layer in self.layers:
            hidden = hidden + layer(hidden)
            states = states + (hidden,)
        weights = self.mix.softmax(0)
        return self.head(sum(w * s for w, s in zip(weights, states)))


class NamedOutputs(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, width), nn.ReLU())
        self.heads = nn.ModuleDict(dict(age=nn.Linear(width, 1), mood=nn.Linear(width, 7), place=nn.Linear(width, 50)))

    def forward(self, x, age, mood, place):
        features = self.trunk(x)
        out = {name: head(features) for name, head in self.heads.items()}
        losses = dict(age=F.mse_loss(out["age"].squeeze(-1), age), mood=F.cross_entropy(out["mood"], mood), place=F.cross_entropy(out["place"], place))
        return dict(loss=losses["age"] + losses["mood"] + 0.5 * losses["place"], **out)


class RunningList(nn.Module):
    """A recurrent cell by hand, its states in a list that is stacked at the end."""

    def __init__(self, width=128):
        super().__init__()
        self.cell = nn.GRUCell(32, width)
        self.out = nn.Linear(width, 40)
        self.width = width

    def forward(self, x):
        h = x.new_zeros(x.shape[0], self.width)
        outputs = []
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            outputs.append(h)
        return self.out(torch.stack(outputs, dim=1))


class MaskedCanvas(nn.Module):
    """Masked autoencoding with a mask token and torch.where."""

    def __init__(self, width=128):
        super().__init__()
        self.embed = nn.Conv2d(3, width, 8, stride=8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.pixels = nn.Linear(width, 192)

    def forward(self, images, mask):
        x = self.embed(images).flatten(2).transpose(1, 2)
        x = torch.where(mask.unsqueeze(-1), self.token.expand_as(x), x)
        x = x + self.body(x)
        found = self.pixels(x)
        wanted = F.unfold(images, 8, stride=8).transpose(1, 2)
        loss = (found - wanted).pow(2).mean(dim=-1)
        return (loss * mask).sum() / mask.sum().clamp(min=1)


def unet_list(batch):
    return UNetList(), (torch.zeros(batch, 3, 96, 96),), {}


def pyramid_dict(batch):
    return PyramidDict(), (torch.zeros(batch, 3, 96, 96),), {}


def canvas(batch):
    return Canvas(), (torch.zeros(batch, 64, 128),), {}


def all_states(batch):
    return AllStates(), (torch.zeros(batch, 200, 32),), {}


def named_outputs(batch):
    z = torch.zeros(batch, dtype=torch.long)
    return NamedOutputs(), (torch.zeros(batch, 64), torch.zeros(batch), z, z.clone()), {}


def running_list(batch):
    return RunningList(), (torch.zeros(batch, 24, 32),), {}


def masked_fill_canvas(batch):
    return MaskedCanvas(), (torch.zeros(batch, 3, 96, 96), torch.zeros(batch, 144, dtype=torch.bool)), {}
