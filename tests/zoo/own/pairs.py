"""Networks that are applied more than once, or next to each other."""
import copy

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["siamese", "triplet", "teacher", "discriminator", "two_towers"]


def _encoder(width=64):
    return nn.Sequential(nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64),
                         nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, width))


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = _encoder()
        self.margin = 1.0

    def forward(self, a, b):
        distance = F.pairwise_distance(self.encoder(a), self.encoder(b))
        return (distance.pow(2) + F.relu(self.margin - distance).pow(2)).mean()


class Triplet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = _encoder(128)

    def embed(self, x):
        return F.normalize(self.encoder(x), dim=-1)

    def forward(self, anchor, positive, negative):
        a, p, n = self.embed(anchor), self.embed(positive), self.embed(negative)
        return F.triplet_margin_loss(a, p, n, margin=0.2)


class Teacher(nn.Module):
    """A student that follows the running average of itself."""

    def __init__(self):
        super().__init__()
        self.student = nn.Sequential(_encoder(128), nn.ReLU(), nn.Linear(128, 128))
        self.teacher = copy.deepcopy(self.student)
        for p in self.teacher.parameters():
            p.requires_grad_(False)

    def forward(self, a, b):
        with torch.no_grad():
            target = F.normalize(self.teacher(b), dim=-1)
        found = F.normalize(self.student(a), dim=-1)
        return 2 - 2 * (found * target).sum(dim=-1).mean()


class Discriminator(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        norm = nn.utils.parametrizations.spectral_norm
        self.layers = nn.ModuleList([norm(nn.Conv2d(c, d, 4, 2, 1)) for c, d in ((3, width), (width, 2 * width), (2 * width, 4 * width))])
        self.head = nn.Linear(4 * width, 1)

    def score(self, x):
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.2)
        return self.head(x.sum(dim=(2, 3)))

    def forward(self, real, fake):
        return F.relu(1 - self.score(real)).mean() + F.relu(1 + self.score(fake)).mean()


class TwoTowers(nn.Module):
    def __init__(self, users=20000, items=5000, width=64):
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        self.up = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, width))
        self.ip = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, width))
        self.temperature = nn.Parameter(torch.tensor(0.07))

    def forward(self, user, item):
        u = F.normalize(self.up(self.users(user)), dim=-1)
        i = F.normalize(self.ip(self.items(item)), dim=-1)
        logits = u @ i.t() / self.temperature
        target = torch.arange(logits.shape[0], device=logits.device)
        return (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2


def siamese(batch):
    return Siamese(), (torch.zeros(batch, 3, 96, 96), torch.zeros(batch, 3, 96, 96)), {}


def triplet(batch):
    return Triplet(), tuple(torch.zeros(batch, 3, 96, 96) for _ in range(3)), {}


def teacher(batch):
    return Teacher(), (torch.zeros(batch, 3, 128, 128), torch.zeros(batch, 3, 128, 128)), {}


def discriminator(batch):
    return Discriminator(), (torch.zeros(batch, 3, 64, 64), torch.zeros(batch, 3, 64, 64)), {}


def two_towers(batch):
    return TwoTowers(), (torch.zeros(batch, dtype=torch.long), torch.zeros(batch, dtype=torch.long)), {}
