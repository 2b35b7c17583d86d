"""
Student: MobileNetV3-ish / EfficientNet-ish hybrid (hard-swish early... no wait, swish early, hswish late works better here)
Teacher: same family, wider & deeper, frozen.
Loss: CE + KL(T) + feature hint on the last two stages.
"""
import math
from collections import namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F

#                           k  t  c    n  s  se     act
BlockArgs = namedtuple('B', 'k t c n s se act')
STAGES = (
    BlockArgs(3, 1, 16, 1, 1, 0.25, 'swish'),
    BlockArgs(3, 4, 24, 2, 2, 0.0, 'swish'),
    BlockArgs(5, 4, 40, 2, 2, 0.25, 'swish'),
    BlockArgs(3, 6, 80, 3, 2, 0.0, 'hswish'),
    BlockArgs(5, 6, 112, 2, 1, 0.25, 'hswish'),
    BlockArgs(5, 6, 160, 3, 2, 0.25, 'hswish'),
)


class SwishFn(torch.autograd.Function):
    """keeps only the input; sigmoid is recomputed in backward"""

    @staticmethod
    def forward(ctx, i):
        result = i * torch.sigmoid(i)
        ctx.save_for_backward(i)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        i, = ctx.saved_tensors
        s = torch.sigmoid(i)
        return grad_output * (s * (1 + i * (1 - s)))


class MemoryEfficientSwish(nn.Module):
    def forward(self, x):
        return SwishFn.apply(x)


class h_sigmoid(nn.Module):
    def forward(self, x):
        return F.relu6(x + 3., inplace=True) / 6.


class h_swish(nn.Module):
    def __init__(self):
        super().__init__()
        self.sigmoid = h_sigmoid()

    def forward(self, x):
        return x * self.sigmoid(x)


ACT = {'swish': MemoryEfficientSwish, 'hswish': h_swish}


def _make_divisible(v, divisor=8, min_value=None):
    min_value = min_value or divisor
    new_v = max(min_value, int(v + divisor / 2) // divisor * divisor)
    if new_v < 0.9 * v:
        new_v += divisor
    return new_v


class SqueezeExcite(nn.Module):
    def __init__(self, ch, mid, act):
        super().__init__()
        self.reduce = nn.Conv2d(ch, mid, 1)
        self.act = ACT[act]()
        self.expand = nn.Conv2d(mid, ch, 1)
        self.gate = h_sigmoid()

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        return x * self.gate(self.expand(self.act(self.reduce(s))))


class MBConv(nn.Module):
    def __init__(self, cin, cout, k, t, s, se, act, drop_connect=0.0):
        super().__init__()
        mid = _make_divisible(cin * t)
        self.use_res = s == 1 and cin == cout
        self.drop_connect = drop_connect
        ops = []
        if t != 1:
            ops += [nn.Conv2d(cin, mid, 1, bias=False), nn.BatchNorm2d(mid, eps=1e-3, momentum=0.01), ACT[act]()]
        ops += [nn.Conv2d(mid, mid, k, s, k // 2, groups=mid, bias=False),
                nn.BatchNorm2d(mid, eps=1e-3, momentum=0.01), ACT[act]()]
        if se:
            ops.append(SqueezeExcite(mid, max(8, int(cin * se)), act))
        ops += [nn.Conv2d(mid, cout, 1, bias=False), nn.BatchNorm2d(cout, eps=1e-3, momentum=0.01)]
        self.ops = nn.Sequential(*ops)

    def forward(self, x):
        y = self.ops(x)
        if self.use_res:
            if self.training and self.drop_connect:
                keep = 1 - self.drop_connect
                y = y / keep * torch.floor(keep + torch.rand(y.shape[0], 1, 1, 1, dtype=y.dtype, device=y.device))
            y = y + x
        return y


class Net(nn.Module):
    def __init__(self, width=1.0, depth=1.0, num_classes=120, dropout=0.2, drop_connect=0.2):
        super().__init__()
        c = _make_divisible(16 * width)
        self.stem = nn.Sequential(nn.Conv2d(3, c, 3, 2, 1, bias=False), nn.BatchNorm2d(c), h_swish())
        total = sum(math.ceil(a.n * depth) for a in STAGES)
        i = 0
        self.stages = nn.ModuleDict()
        self.out_ch = []
        for si, a in enumerate(STAGES):
            cout = _make_divisible(a.c * width)
            blocks = []
            for j in range(math.ceil(a.n * depth)):
                blocks.append(MBConv(c, cout, a.k, a.t, a.s if j == 0 else 1, a.se, a.act, drop_connect * i / total))
                c = cout
                i += 1
            self.stages['s%d' % si] = nn.Sequential(*blocks)
            self.out_ch.append(c)
        head = _make_divisible(c * 6)
        self.head = nn.Sequential(nn.Conv2d(c, head, 1, bias=False), nn.BatchNorm2d(head), h_swish())
        self.classifier = nn.Sequential(nn.Linear(head, 1024), h_swish(), nn.Dropout(dropout),
                                        nn.Linear(1024, num_classes))
        self.reset()

    def reset(self):
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                fan = m.kernel_size[0] * m.kernel_size[1] * m.out_channels // m.groups
                m.weight.data.normal_(0, math.sqrt(2. / fan))
                if m.bias is not None:
                    m.bias.data.zero_()
            elif isinstance(m, nn.Linear):
                m.weight.data.normal_(0, 0.01)
                m.bias.data.zero_()

    def forward(self, x):
        feats = {}
        x = self.stem(x)
        for name, stage in self.stages.items():
            x = stage(x)
            feats[name] = x
        x = self.head(x).mean((2, 3))
        return self.classifier(x), feats


class Model(nn.Module):
    hint_stages = ('s4', 's5')

    def __init__(self, T=4.0, alpha=0.7, beta=50.0):
        super().__init__()
        self.student = Net(1.0, 1.0)
        self.teacher = Net(1.6, 1.5, dropout=0.0, drop_connect=0.0)
        for p in self.teacher.parameters():
            p.requires_grad_(False)
        self.adapters = nn.ModuleDict({
            k: nn.Conv2d(self.student.out_ch[int(k[1])], self.teacher.out_ch[int(k[1])], 1, bias=False)
            for k in self.hint_stages})
        self.T, self.alpha, self.beta = T, alpha, beta

    def train(self, mode=True):
        super().train(mode)
        self.teacher.eval()   # BN stats of the teacher stay put
        return self

    @staticmethod
    def attention_map(f):
        return F.normalize(f.pow(2).mean(1).flatten(1))

    def forward(self, x, y):
        with torch.no_grad():
            t_logits, t_feats = self.teacher(x)
        s_logits, s_feats = self.student(x)

        ce = F.cross_entropy(s_logits, y)
        kd = F.kl_div(F.log_softmax(s_logits / self.T, 1), F.log_softmax(t_logits / self.T, 1),
                      reduction='batchmean', log_target=True) * self.T ** 2
        hint = 0.
        for k in self.hint_stages:
            sf = self.adapters[k](s_feats[k])
            hint = hint + F.mse_loss(F.normalize(sf), F.normalize(t_feats[k]))
            hint = hint + (self.attention_map(sf) - self.attention_map(t_feats[k])).pow(2).mean()
        loss = (1 - self.alpha) * ce + self.alpha * kd + self.beta * hint
        return {'loss': loss, 'ce': ce.detach(), 'kd': kd.detach(), 'hint': hint.detach(), 'logits': s_logits}


def inputs(batch):
    return torch.randn(batch, 3, 192, 192), torch.randint(0, 120, (batch,))
