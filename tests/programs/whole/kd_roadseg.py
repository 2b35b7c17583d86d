"""
Distil a frozen residual teacher into a small depthwise student for road-scene segmentation.

Intermediate features are grabbed with forward hooks (names given in `PAIRS`), so neither network had
to be modified.  Student decoder: flow-aligned feature pyramid (SFNet-like) with auxiliary heads.
"""
from typing import Any, Dict, Tuple
import torch
from torch import nn, Tensor
import torch.nn.functional as F

PAIRS: Dict[str, str] = {"stages.1": "layer2", "stages.2": "layer3"}
N_CLASSES = 11
IGNORE = 255


class FeatureTap:
    def __init__(self, root: nn.Module, names):
        self.feats: Dict[str, Tensor] = {}
        modules = dict(root.named_modules())
        for n in names:
            modules[n].register_forward_hook(self._make_hook(n))

    def _make_hook(self, name):
        def hook(module: nn.Module, args: Any, out: Tensor):
            self.feats[name] = out
        return hook

    def pop(self) -> Dict[str, Tensor]:
        feats, self.feats = self.feats, {}
        return feats


def conv_bn_relu(i, o, k=3, s=1, g=1, relu=True):
    layers = [nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o)]
    if relu:
        layers.append(nn.ReLU6(inplace=True))
    return nn.Sequential(*layers)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inplanes, planes, stride=1, dilation=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, dilation, dilation, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, dilation, dilation, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = conv_bn_relu(inplanes, planes, 1, stride, relu=False) if (stride, inplanes) != (1, planes) else None

    def forward(self, x):
        identity = x
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return F.relu(out, inplace=True)


class Teacher(nn.Module):
    def __init__(self, w=64):
        super().__init__()
        self.stem = nn.Sequential(conv_bn_relu(3, w, 7, 2), nn.MaxPool2d(3, 2, 1))
        self.layer1 = nn.Sequential(BasicBlock(w, w), BasicBlock(w, w))
        self.layer2 = nn.Sequential(BasicBlock(w, 2 * w, 2), BasicBlock(2 * w, 2 * w))
        self.layer3 = nn.Sequential(BasicBlock(2 * w, 4 * w, 2), BasicBlock(4 * w, 4 * w))
        self.layer4 = nn.Sequential(BasicBlock(4 * w, 4 * w, dilation=2), BasicBlock(4 * w, 4 * w, dilation=4))
        self.head = nn.Conv2d(4 * w, N_CLASSES, 1)

    def forward(self, x):
        return self.head(self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x))))))


class InvertedResidual(nn.Module):
    def __init__(self, i, o, stride, t=4):
        super().__init__()
        self.use_res = stride == 1 and i == o
        self.conv = nn.Sequential(conv_bn_relu(i, i * t, 1), conv_bn_relu(i * t, i * t, 3, stride, i * t),
                                  conv_bn_relu(i * t, o, 1, relu=False))

    def forward(self, x):
        return x + self.conv(x) if self.use_res else self.conv(x)


class FlowAlign(nn.Module):
    """warp the coarse map with a predicted offset field before adding it to the fine one"""

    def __init__(self, c):
        super().__init__()
        self.down_h, self.down_l = nn.Conv2d(c, c // 2, 1, bias=False), nn.Conv2d(c, c // 2, 1, bias=False)
        self.flow = nn.Conv2d(c, 2, 3, padding=1, bias=False)

    def forward(self, low, high):
        h, w = low.shape[-2:]
        up = F.interpolate(self.down_h(high), (h, w), mode="bilinear", align_corners=False)
        flow = self.flow(torch.cat([up, self.down_l(low)], 1)).permute(0, 2, 3, 1)
        gy = torch.linspace(-1, 1, h, device=low.device).view(-1, 1).expand(h, w)
        gx = torch.linspace(-1, 1, w, device=low.device).expand(h, w)
        grid = torch.stack((gx, gy), -1).unsqueeze(0) + flow / flow.new_tensor([w, h])
        return low + F.grid_sample(high, grid, align_corners=False)


class Student(nn.Module):
    def __init__(self, widths=(24, 40, 80), c=64):
        super().__init__()
        self.stem = conv_bn_relu(3, 16, 3, 2)
        chans = [16, *widths]
        self.stages = nn.ModuleList(
            nn.Sequential(InvertedResidual(a, b, 2), InvertedResidual(b, b, 1)) for a, b in zip(chans, chans[1:]))
        self.lateral = nn.ModuleList(nn.Conv2d(a, c, 1) for a in widths)
        self.align = nn.ModuleList(FlowAlign(c) for _ in widths[:-1])
        self.heads = nn.ModuleList(nn.Sequential(conv_bn_relu(c, c), nn.Conv2d(c, N_CLASSES, 1)) for _ in widths)

    def forward(self, x) -> Tuple[Tensor, ...]:
        x, feats = self.stem(x), []
        for stage, lat in zip(self.stages, self.lateral):
            x = stage(x)
            feats.append(lat(x))
        p = feats[-1]
        outs = [self.heads[-1](p)]
        for i in reversed(range(len(feats) - 1)):
            p = self.align[i](feats[i], p)
            outs.insert(0, self.heads[i](p))
        return tuple(outs)


class Model(nn.Module):
    def __init__(self, temperature: float = 2.0):
        super().__init__()
        self.T = temperature
        self.student, self.teacher = Student(), Teacher()
        for p in self.teacher.parameters():
            p.requires_grad_(False)
        self.s_tap = FeatureTap(self.student, PAIRS.keys())
        self.t_tap = FeatureTap(self.teacher, PAIRS.values())
        self.adapters = nn.ModuleDict({"layer2": nn.Conv2d(40, 128, 1), "layer3": nn.Conv2d(80, 256, 1)})

    def train(self, mode: bool = True):
        super().train(mode)
        self.teacher.eval()
        return self

    def kd(self, s, t):
        s = F.interpolate(s, size=t.shape[-2:], mode="bilinear", align_corners=False)
        kl = F.kl_div(F.log_softmax(s / self.T, 1), F.softmax(t / self.T, 1), reduction="none")
        return kl.sum(1).mean() * self.T ** 2

    def forward(self, img: Tensor, label: Tensor):
        with torch.no_grad():
            t_logits = self.teacher(img)
        outs = self.student(img)
        sf, tf = self.s_tap.pop(), self.t_tap.pop()
        ce = [F.cross_entropy(F.interpolate(o, scale_factor=label.shape[-1] // o.shape[-1], mode="bilinear"),
                              label, ignore_index=IGNORE) for o in outs]
        loss = ce[0] + 0.4 * sum(ce[1:]) + 0.5 * self.kd(outs[0], t_logits)
        for s_name, t_name in PAIRS.items():
            a, b = self.adapters[t_name](sf[s_name]), tf[t_name]
            att_a, att_b = [F.normalize(v.pow(2).mean(1).flatten(1)) for v in (a, b)]   # attention transfer
            loss += 10.0 * (att_a - att_b).pow(2).sum(1).mean()
        return loss, outs[0].argmax(1)


def inputs(batch):
    lab = torch.randint(0, N_CLASSES, (batch, 128, 128))
    lab[:, :6] = IGNORE
    return torch.randn(batch, 3, 128, 128), lab
