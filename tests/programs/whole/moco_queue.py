# Momentum Contrast, single GPU version (no all_gather).
# Shuffling BN is emulated with split BN + a permutation of the key batch.
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride, norm):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = norm(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = norm(cout)
        self.short = None
        if stride != 1 or cin != cout:
            self.short = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), norm(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x if self.short is None else self.short(x)
        return F.relu_(y)


class ResNet18(nn.Sequential):
    """3x3 stem, no maxpool - images are small"""

    def __init__(self, feature_dim=128, norm=nn.BatchNorm2d, mlp=True):
        net = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), norm(64), nn.ReLU(inplace=True)]
        cin = 64
        for cout, stride in ((64, 2), (128, 2), (256, 2), (512, 2)):
            net.append(BasicBlock(cin, cout, stride, norm))
            net.append(BasicBlock(cout, cout, 1, norm))
            cin = cout
        net += [nn.AdaptiveAvgPool2d(1), nn.Flatten(1)]
        if mlp:
            net += [nn.Linear(512, 512), nn.ReLU(inplace=True)]
        net.append(nn.Linear(512, feature_dim))
        super().__init__(*net)


class ModelMoCo(nn.Module):
    def __init__(self, dim=128, K=4096, m=0.99, T=0.1, symmetric=True):
        super().__init__()
        self.K, self.m, self.T, self.symmetric = K, m, T, symmetric

        make = partial(ResNet18, feature_dim=dim, norm=partial(nn.BatchNorm2d, momentum=0.2))
        self.encoder_q = make()
        self.encoder_k = make()
        for pq, pk in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            pk.data.copy_(pq.data)
            pk.requires_grad = False  # not updated by gradient

        self.register_buffer("queue", F.normalize(torch.randn(dim, K), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _momentum_update_key_encoder(self):
        for pq, pk in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            pk.mul_(self.m).add_(pq.detach(), alpha=1. - self.m)

    @torch.no_grad()
    def _dequeue_and_enqueue(self, keys):
        n = keys.shape[0]
        idx = (self.queue_ptr + torch.arange(n, device=keys.device)) % self.K
        self.queue.index_copy_(1, idx, keys.t())
        self.queue_ptr.add_(n).remainder_(self.K)

    @torch.no_grad()
    def _shuffle(self, x):
        perm = torch.randperm(x.shape[0], device=x.device)
        return x.index_select(0, perm), torch.argsort(perm)

    def contrastive_loss(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            im_k_, back = self._shuffle(im_k)
            k = F.normalize(self.encoder_k(im_k_), dim=1)
            k = k[back]

        # positive logits: Nx1, negative logits: NxK
        l_pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
        logits = torch.cat([l_pos, l_neg], dim=1) / self.T
        labels = torch.zeros(logits.shape[0], dtype=torch.long, device=logits.device)
        return F.cross_entropy(logits, labels), q, k

    def forward(self, im1, im2):
        with torch.no_grad():
            self._momentum_update_key_encoder()

        if self.symmetric:
            loss_12, q1, k2 = self.contrastive_loss(im1, im2)
            loss_21, q2, k1 = self.contrastive_loss(im2, im1)
            loss = loss_12 + loss_21
            k = torch.cat([k1, k2], dim=0)
        else:
            loss, _, k = self.contrastive_loss(im1, im2)
        self._dequeue_and_enqueue(k)
        return loss


class Augment(nn.Module):
    """Cheap on-device augmentation: flip, brightness/contrast, gray, noise."""

    def __init__(self, p_gray=0.2):
        super().__init__()
        self.p_gray = p_gray
        self.register_buffer("luma", torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1))

    @torch.no_grad()
    def forward(self, x):
        b = x.shape[0]
        u = torch.rand(5, b, 1, 1, 1, device=x.device)
        x = torch.where(u[0] < 0.5, x.flip(-1), x)
        mean = x.mean((1, 2, 3), keepdim=True)
        x = (x - mean) * (0.6 + 0.8 * u[1]) + mean
        x = x * (0.6 + 0.8 * u[2])
        gray = (x * self.luma).sum(1, keepdim=True).expand_as(x)
        x = torch.where(u[3] < self.p_gray, gray, x)
        return x.add(torch.randn_like(x), alpha=0.02).clamp_(0, 1)


class Model(ModelMoCo):
    def __init__(self):
        super().__init__()
        self.aug = Augment()

    def forward(self, im):
        return super().forward(self.aug(im), self.aug(im))


def inputs(batch):
    return (torch.rand(batch, 3, 64, 64),)
