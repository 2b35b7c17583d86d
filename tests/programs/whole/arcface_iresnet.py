import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn import Parameter


using_ckpt = False


def conv3x3(in_planes, out_planes, stride=1):
    return nn.Conv2d(in_planes, out_planes, 3, stride, 1, bias=False)


def conv1x1(in_planes, out_planes, stride=1):
    return nn.Conv2d(in_planes, out_planes, 1, stride, bias=False)


class IBasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride=1, downsample=None):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inplanes, eps=1e-05)
        self.conv1 = conv3x3(inplanes, planes)
        self.bn2 = nn.BatchNorm2d(planes, eps=1e-05)
        self.prelu = nn.PReLU(planes)
        self.conv2 = conv3x3(planes, planes, stride)
        self.bn3 = nn.BatchNorm2d(planes, eps=1e-05)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x):
        identity = x
        out = self.bn1(x)
        out = self.conv1(out)
        out = self.bn2(out)
        out = self.prelu(out)
        out = self.conv2(out)
        out = self.bn3(out)
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return out


class IResNet(nn.Module):
    fc_scale = 7 * 7

    def __init__(self, layers, widths=(48, 96, 192, 384), dropout=0.4, num_features=256):
        super().__init__()
        self.inplanes = widths[0]
        self.conv1 = nn.Conv2d(3, self.inplanes, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(self.inplanes, eps=1e-05)
        self.prelu = nn.PReLU(self.inplanes)
        self.layer1 = self._make_layer(widths[0], layers[0])
        self.layer2 = self._make_layer(widths[1], layers[1])
        self.layer3 = self._make_layer(widths[2], layers[2])
        self.layer4 = self._make_layer(widths[3], layers[3])
        self.bn2 = nn.BatchNorm2d(widths[3], eps=1e-05)
        self.dropout = nn.Dropout(p=dropout, inplace=True)
        self.fc = nn.Linear(widths[3] * self.fc_scale, num_features)
        self.features = nn.BatchNorm1d(num_features, eps=1e-05)
        nn.init.constant_(self.features.weight, 1.0)
        self.features.weight.requires_grad = False

        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.normal_(m.weight, 0, 0.1)
        for m in self.modules():
            if isinstance(m, IBasicBlock):
                nn.init.constant_(m.bn2.weight, 1)

    def _make_layer(self, planes, blocks, stride=2):
        downsample = nn.Sequential(
            conv1x1(self.inplanes, planes, stride),
            nn.BatchNorm2d(planes, eps=1e-05),
        )
        layers = [IBasicBlock(self.inplanes, planes, stride, downsample)]
        self.inplanes = planes
        for _ in range(1, blocks):
            layers.append(IBasicBlock(self.inplanes, planes))
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.conv1(x)
        x = self.bn1(x)
        x = self.prelu(x)
        x = self.layer1(x)
        x = self.layer2(x)
        x = self.layer3(x)
        x = self.layer4(x)
        x = self.bn2(x)
        x = torch.flatten(x, 1)
        x = self.dropout(x)
        x = self.fc(x)
        x = self.features(x)
        return x


class ArcMarginProduct(nn.Module):
    r"""Implement of large margin arc distance with K sub-centers:
        Args:
            s: norm of input feature
            m: margin
            cos(theta + m)
        """

    def __init__(self, in_features, out_features, s=64.0, m=0.50, k=2, easy_margin=False):
        super().__init__()
        self.s, self.m, self.k = s, m, k
        self.out_features = out_features
        self.weight = Parameter(torch.FloatTensor(out_features * k, in_features))
        nn.init.xavier_uniform_(self.weight)
        self.easy_margin = easy_margin
        self.cos_m = math.cos(m)
        self.sin_m = math.sin(m)
        self.th = math.cos(math.pi - m)
        self.mm = math.sin(math.pi - m) * m

    def forward(self, input, label):
        # --------------------------- cos(theta) & phi(theta) ---------------------------
        cosine = F.linear(F.normalize(input), F.normalize(self.weight))
        cosine = cosine.view(-1, self.out_features, self.k).max(dim=2)[0]
        sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(1e-6, 1))
        phi = cosine * self.cos_m - sine * self.sin_m
        if self.easy_margin:
            phi = torch.where(cosine > 0, phi, cosine)
        else:
            phi = torch.where(cosine > self.th, phi, cosine - self.mm)
        # --------------------------- convert label to one-hot ---------------------------
        one_hot = torch.zeros(cosine.size(), device=input.device)
        one_hot.scatter_(1, label.view(-1, 1).long(), 1)
        output = (one_hot * phi) + ((1.0 - one_hot) * cosine)
        output *= self.s
        return output, cosine


class FocalLoss(nn.Module):
    def __init__(self, gamma=0.):
        super().__init__()
        self.gamma = gamma
        self.ce = nn.CrossEntropyLoss(reduction='none')

    def forward(self, input, target):
        logp = self.ce(input, target)
        p = torch.exp(-logp)
        loss = (1 - p) ** self.gamma * logp
        return loss.mean()


class Model(nn.Module):
    def __init__(self, num_ids=8000, emb=256):
        super().__init__()
        self.backbone = IResNet([2, 2, 2, 2], num_features=emb)
        self.head = ArcMarginProduct(emb, num_ids)
        self.criterion = FocalLoss(gamma=2)
        # running mean of the feature norm, to spot unreadable faces (MagFace idea, not in the loss)
        self.register_buffer('norm_mean', torch.tensor(20.0))

    def forward(self, img, label):
        x = torch.where(torch.rand(img.shape[0], 1, 1, 1, device=img.device) < 0.5, img.flip(3), img)
        feat = self.backbone(x)
        logits, cosine = self.head(feat, label)
        loss = self.criterion(logits, label)
        with torch.no_grad():
            n = feat.norm(dim=1)
            self.norm_mean.mul_(0.99).add_(0.01 * n.mean())
            quality = n / self.norm_mean
            pos_cos = cosine.gather(1, label.view(-1, 1)).mean()
        return loss, feat, quality, pos_cos


def inputs(batch):
    return torch.rand(batch, 3, 112, 112) * 2 - 1, torch.randint(0, 8000, (batch,))
