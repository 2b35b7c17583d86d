import torch
import torch.nn as nn
import torch.nn.functional as F

__all__ = ['Model', 'se_resnet26d']


def drop_path(x, p, training):
    # stochastic depth per sample, https://arxiv.org/abs/1603.09382
    if p == 0. or not training:
        return x
    keep = 1 - p
    mask = keep + torch.rand((x.shape[0],) + (1,) * (x.dim() - 1), dtype=x.dtype, device=x.device)
    mask.floor_()
    return x.div(keep) * mask


class SELayer(nn.Module):
    def __init__(self, channel, reduction=16):
        super(SELayer, self).__init__()
        self.avg_pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(
            nn.Linear(channel, channel // reduction, bias=False),
            nn.ReLU(inplace=True),
            nn.Linear(channel // reduction, channel, bias=False),
            nn.Sigmoid()
        )

    def forward(self, x):
        b, c, _, _ = x.size()
        y = self.avg_pool(x).view(b, c)
        y = self.fc(y).view(b, c, 1, 1)
        return x * y.expand_as(x)


class SEBottleneck(nn.Module):
    expansion = 4

    def __init__(self, inplanes, planes, stride=1, downsample=None, reduction=16, drop=0.):
        super(SEBottleneck, self).__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, planes * 4, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * 4)
        self.relu = nn.ReLU(inplace=True)
        self.se = SELayer(planes * 4, reduction)
        self.downsample = downsample
        self.drop = drop

    def forward(self, x):
        residual = x

        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)

        out = self.conv2(out)
        out = self.bn2(out)
        out = self.relu(out)

        out = self.conv3(out)
        out = self.bn3(out)
        out = self.se(out)

        if self.downsample is not None:
            residual = self.downsample(x)

        out = drop_path(out, self.drop, self.training)
        out += residual
        out = self.relu(out)
        return out


class LabelSmoothLoss(nn.Module):
    def __init__(self, classes, smoothing=0.1, dim=-1):
        super(LabelSmoothLoss, self).__init__()
        self.confidence = 1.0 - smoothing
        self.smoothing = smoothing
        self.cls = classes
        self.dim = dim

    def forward(self, pred, target):
        pred = pred.log_softmax(dim=self.dim)
        with torch.no_grad():
            true_dist = torch.zeros_like(pred)
            true_dist.fill_(self.smoothing / (self.cls - 1))
            true_dist.scatter_(1, target.unsqueeze(1), self.confidence)
        return torch.mean(torch.sum(-true_dist * pred, dim=self.dim))


class ResNet(nn.Module):

    def __init__(self, block, layers, num_classes=1000, stem_width=32, drop_path_rate=0.15, dropout=0.2):
        super(ResNet, self).__init__()
        self.inplanes = 64
        # resnet-d style deep stem
        self.conv1 = nn.Sequential(
            nn.Conv2d(3, stem_width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(stem_width),
            nn.ReLU(inplace=True),
            nn.Conv2d(stem_width, stem_width, 3, stride=1, padding=1, bias=False),
            nn.BatchNorm2d(stem_width),
            nn.ReLU(inplace=True),
            nn.Conv2d(stem_width, self.inplanes, 3, stride=1, padding=1, bias=False),
        )
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)

        self._idx = 0
        self._n = sum(layers)
        self._dpr = drop_path_rate
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], stride=2)
        self.layer3 = self._make_layer(block, 256, layers[2], stride=2)
        self.layer4 = self._make_layer(block, 512, layers[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(512 * block.expansion, num_classes)

        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode='fan_out', nonlinearity='relu')
            elif isinstance(m, nn.BatchNorm2d):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
        # zero-init last BN of each branch
        for m in self.modules():
            if isinstance(m, SEBottleneck):
                nn.init.constant_(m.bn3.weight, 0)

    def _make_layer(self, block, planes, blocks, stride=1):
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            ds = []
            if stride != 1:
                ds.append(nn.AvgPool2d(2, stride=stride, ceil_mode=True, count_include_pad=False))
            ds += [nn.Conv2d(self.inplanes, planes * block.expansion, kernel_size=1, bias=False),
                   nn.BatchNorm2d(planes * block.expansion)]
            downsample = nn.Sequential(*ds)

        layers = []
        for i in range(blocks):
            p = self._dpr * self._idx / max(self._n - 1, 1)
            layers.append(block(self.inplanes, planes, stride if i == 0 else 1,
                                downsample if i == 0 else None, drop=p))
            self.inplanes = planes * block.expansion
            self._idx += 1
        return nn.Sequential(*layers)

    def features(self, x):
        x = self.conv1(x)
        x = self.bn1(x)
        x = self.relu(x)
        x = self.maxpool(x)

        x = self.layer1(x)
        x = self.layer2(x)
        x = self.layer3(x)
        x = self.layer4(x)
        return x

    def logits(self, x):
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        x = self.dropout(x)
        return self.fc(x)

    def forward(self, x):
        return self.logits(self.features(x))


def se_resnet26d(**kw):
    return ResNet(SEBottleneck, [2, 2, 2, 2], **kw)


class Model(nn.Module):
    """net + criterion in one module so DataParallel gathers scalars only"""

    def __init__(self, num_classes=505):
        super(Model, self).__init__()
        self.net = se_resnet26d(num_classes=num_classes)
        self.criterion = LabelSmoothLoss(num_classes, 0.1)

    def forward(self, images, target):
        output = self.net(images)
        loss = self.criterion(output, target)
        with torch.no_grad():
            _, pred = output.topk(5, 1, True, True)
            correct = pred.eq(target.view(-1, 1).expand_as(pred))
            top1 = correct[:, :1].float().sum(1).mean() * 100.
            top5 = correct.float().sum(1).mean() * 100.
        return loss, output, top1, top5


def inputs(batch):
    return torch.randn(batch, 3, 176, 176), torch.randint(0, 505, (batch,))
