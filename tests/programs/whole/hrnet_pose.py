"""HRNet-W24 (reduced) for 17 COCO keypoints. Top-down crops of 192x128, heatmaps of 48x32."""
import torch
import torch.nn as nn
import torch.nn.functional as F

BN_MOMENTUM = 0.1

CONFIG = dict(
    num_joints=17,
    stem=48,
    sigma=1.5,
    heatmap=(48, 32),
    stages=[
        dict(name="stage2", modules=1, branches=2, blocks=[2, 2], channels=[24, 48]),
        dict(name="stage3", modules=2, branches=3, blocks=[2, 2, 2], channels=[24, 48, 96]),
        dict(name="stage4", modules=1, branches=4, blocks=[2, 2, 2, 2], channels=[24, 48, 96, 192]),
    ],
)


def conv3x3(cin, cout, stride=1):
    return nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inplanes, planes, downsample=None):
        super().__init__()
        self.conv1 = conv3x3(inplanes, planes)
        self.bn1 = nn.BatchNorm2d(planes, momentum=BN_MOMENTUM)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = nn.BatchNorm2d(planes, momentum=BN_MOMENTUM)
        self.downsample = downsample

    def forward(self, x):
        residual = x if self.downsample is None else self.downsample(x)
        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)
        out = self.conv2(out)
        out = self.bn2(out)
        out += residual
        return self.relu(out)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inplanes, planes, downsample=None):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inplanes, planes, 1, bias=False), nn.BatchNorm2d(planes), nn.ReLU(True),
            conv3x3(planes, planes), nn.BatchNorm2d(planes), nn.ReLU(True),
            nn.Conv2d(planes, planes * 4, 1, bias=False), nn.BatchNorm2d(planes * 4))
        self.downsample = downsample

    def forward(self, x):
        residual = self.downsample(x) if self.downsample is not None else x
        return F.relu_(self.body(x) + residual)


def make_layer(block, inplanes, planes, n):
    down = None
    if inplanes != planes * block.expansion:
        down = nn.Sequential(nn.Conv2d(inplanes, planes * block.expansion, 1, bias=False),
                             nn.BatchNorm2d(planes * block.expansion, momentum=BN_MOMENTUM))
    layers = [block(inplanes, planes, down)]
    layers += [block(planes * block.expansion, planes) for _ in range(n - 1)]
    return nn.Sequential(*layers)


class HighResolutionModule(nn.Module):
    def __init__(self, blocks, channels, multi_scale_output=True):
        super().__init__()
        self.n = len(channels)
        self.branches = nn.ModuleList([make_layer(BasicBlock, c, c, b) for c, b in zip(channels, blocks)])
        self.fuse_layers = self._make_fuse_layers(channels, multi_scale_output)
        self.relu = nn.ReLU(False)

    def _make_fuse_layers(self, ch, multi):
        fuse_layers = []
        for i in range(self.n if multi else 1):
            fuse_layer = []
            for j in range(self.n):
                if j > i:
                    fuse_layer.append(nn.Sequential(
                        nn.Conv2d(ch[j], ch[i], 1, bias=False), nn.BatchNorm2d(ch[i]),
                        nn.Upsample(scale_factor=2 ** (j - i), mode="nearest")))
                elif j == i:
                    fuse_layer.append(None)
                else:
                    convs = []
                    for k in range(i - j):
                        last = k == i - j - 1
                        cout = ch[i] if last else ch[j]
                        mods = [conv3x3(ch[j], cout, stride=2), nn.BatchNorm2d(cout)]
                        if not last:
                            mods.append(nn.ReLU(True))
                        convs.append(nn.Sequential(*mods))
                    fuse_layer.append(nn.Sequential(*convs))
            fuse_layers.append(nn.ModuleList(fuse_layer))
        return nn.ModuleList(fuse_layers)

    def forward(self, x):
        x = [b(t) for b, t in zip(self.branches, x)]
        x_fuse = []
        for i in range(len(self.fuse_layers)):
            y = x[0] if i == 0 else self.fuse_layers[i][0](x[0])
            for j in range(1, self.n):
                y = y + (x[j] if i == j else self.fuse_layers[i][j](x[j]))
            x_fuse.append(self.relu(y))
        return x_fuse


def make_transition(prev, cur):
    layers = []
    for i, c in enumerate(cur):
        if i < len(prev):
            if prev[i] != c:
                layers.append(nn.Sequential(conv3x3(prev[i], c), nn.BatchNorm2d(c), nn.ReLU(True)))
            else:
                layers.append(None)
        else:
            layers.append(nn.Sequential(conv3x3(prev[-1], c, stride=2), nn.BatchNorm2d(c), nn.ReLU(True)))
    return nn.ModuleList(layers)


class JointsOHKMMSELoss(nn.Module):
    """Heatmap MSE, plus the mean of the topk hardest joints."""

    def __init__(self, topk=8):
        super().__init__()
        self.topk = topk

    def forward(self, output, target, target_weight):
        per_joint = 0.5 * ((output - target) ** 2).mean(dim=(2, 3)) * target_weight
        hard, _ = per_joint.topk(self.topk, dim=1, sorted=False)
        return per_joint.mean() + (hard.sum(dim=1) / self.topk).mean()


class Model(nn.Module):
    def __init__(self, cfg=CONFIG):
        super().__init__()
        self.cfg = cfg
        stem = cfg["stem"]
        self.conv1 = conv3x3(3, stem, stride=2)
        self.bn1 = nn.BatchNorm2d(stem, momentum=BN_MOMENTUM)
        self.conv2 = conv3x3(stem, stem, stride=2)
        self.bn2 = nn.BatchNorm2d(stem, momentum=BN_MOMENTUM)
        self.layer1 = make_layer(Bottleneck, stem, 48, 2)
        prev = [48 * Bottleneck.expansion]
        for i, st in enumerate(cfg["stages"]):
            setattr(self, "transition%d" % (i + 1), make_transition(prev, st["channels"]))
            last = i == len(cfg["stages"]) - 1
            mods = [HighResolutionModule(st["blocks"], st["channels"], not last or m < st["modules"] - 1)
                    for m in range(st["modules"])]
            setattr(self, st["name"], nn.Sequential(*mods))
            prev = st["channels"]
        self.final_layer = nn.Conv2d(prev[0], cfg["num_joints"], 1)
        self.criterion = JointsOHKMMSELoss()
        h, w = cfg["heatmap"]
        self.register_buffer("gy", torch.arange(h).float().view(1, 1, h, 1))
        self.register_buffer("gx", torch.arange(w).float().view(1, 1, 1, w))
        self.init_weights()

    def init_weights(self):
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.normal_(m.weight, std=0.001 if m is self.final_layer else 0.02)
            elif isinstance(m, nn.BatchNorm2d):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)

    @torch.no_grad()
    def render_targets(self, joints):
        x, y, vis = joints[..., 0, None, None], joints[..., 1, None, None], joints[..., 2]
        d2 = (self.gx - x) ** 2 + (self.gy - y) ** 2
        hm = torch.exp(-d2 / (2 * self.cfg["sigma"] ** 2))
        hm[hm < 0.01] = 0.0
        return hm, (vis > 0).float()

    def soft_argmax(self, hm, beta=10.0):
        p = (hm.flatten(2) * beta).softmax(-1).view_as(hm)
        return torch.stack([(p * self.gx).sum((2, 3)), (p * self.gy).sum((2, 3))], dim=-1)

    def forward(self, img, joints):
        x = F.relu(self.bn1(self.conv1(img)), inplace=True)
        x = F.relu(self.bn2(self.conv2(x)), inplace=True)
        ys = [self.layer1(x)]
        for i, st in enumerate(self.cfg["stages"]):
            trans = getattr(self, "transition%d" % (i + 1))
            xs = []
            for k in range(st["branches"]):
                src = ys[k] if k < len(ys) else ys[-1]
                xs.append(trans[k](src) if trans[k] is not None else src)
            ys = getattr(self, st["name"])(xs)
        heat = self.final_layer(ys[0])

        target, weight = self.render_targets(joints)
        loss = self.criterion(heat, target, weight)
        coords = self.soft_argmax(heat)
        coord_loss = (F.smooth_l1_loss(coords, joints[..., :2], reduction="none").sum(-1) * weight).mean()
        with torch.no_grad():
            dist = (coords - joints[..., :2]).norm(dim=-1)
            pck = ((dist < 2.0) * weight).sum() / weight.sum().clamp(min=1)
        return {"loss": loss + 1e-3 * coord_loss, "heatmaps": heat, "coords": coords.detach(), "pck": pck}


def inputs(batch):
    h, w = CONFIG["heatmap"]
    xy = torch.rand(batch, 17, 2) * torch.tensor([w - 1.0, h - 1.0])
    vis = torch.randint(0, 3, (batch, 17, 1)).float()
    return torch.randn(batch, 3, h * 4, w * 4), torch.cat([xy, vis], -1)
