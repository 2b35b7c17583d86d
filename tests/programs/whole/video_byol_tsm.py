"""
Self-supervised pretraining of a TSM / R(2+1)D hybrid on short gesture clips, BYOL style.

The target network is an EMA copy of the online one.  `update_target()` is called by the training
loop after optimizer.step().
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def temporal_shift(x, fold_div=8):
    """x: (N, C, T, H, W); moves 1/fold_div of the channels one step forward, 1/fold_div backward."""
    c = x.size(1)
    fold = c // fold_div
    out = torch.zeros_like(x)
    out[:, :fold, :-1] = x[:, :fold, 1:]                      # shift left
    out[:, fold:2 * fold, 1:] = x[:, fold:2 * fold, :-1]      # shift right
    out[:, 2 * fold:] = x[:, 2 * fold:]
    return out


class SpatioTemporal(nn.Module):
    """(2+1)D factorised convolution"""
    def __init__(self, cin, cout, stride=(1, 1, 1)):
        super().__init__()
        st, sh, sw = stride
        mid = (cin * cout * 27) // (cin * 9 + 3 * cout)
        self.spatial = nn.Conv3d(cin, mid, (1, 3, 3), stride=(1, sh, sw), padding=(0, 1, 1), bias=False)
        self.bn = nn.BatchNorm3d(mid)
        self.temporal = nn.Conv3d(mid, cout, (3, 1, 1), stride=(st, 1, 1), padding=(1, 0, 0), bias=False)

    def forward(self, x):
        return self.temporal(self.bn(self.spatial(x)).relu_())


class TSMBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        s = (1, stride, stride)
        self.conv1 = nn.Conv3d(cin, cout, (1, 3, 3), s, (0, 1, 1), bias=False)
        self.bn1 = nn.BatchNorm3d(cout)
        self.conv2 = nn.Conv3d(cout, cout, (1, 3, 3), 1, (0, 1, 1), bias=False)
        self.bn2 = nn.BatchNorm3d(cout)
        self.down = None
        if stride > 1 or cin != cout:
            self.down = nn.Sequential(nn.Conv3d(cin, cout, 1, s, bias=False), nn.BatchNorm3d(cout))

    def forward(self, x):
        identity = x if self.down is None else self.down(x)
        x = temporal_shift(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.bn2(self.conv2(x))
        x += identity
        return F.relu(x, inplace=True)


class R21DBlock(TSMBlock):
    def __init__(self, cin, cout, stride=1):
        super().__init__(cin, cout, stride)
        del self.conv1, self.conv2, self.down
        self.conv1 = SpatioTemporal(cin, cout, (stride,) * 3)
        self.conv2 = SpatioTemporal(cout, cout)
        self.down = nn.Sequential(nn.AvgPool3d(stride, stride), nn.Conv3d(cin, cout, 1, bias=False), nn.BatchNorm3d(cout))

    def forward(self, x):
        h = self.bn1(self.conv1(x)).relu()
        h = self.bn2(self.conv2(h))
        return (h + self.down(x)).relu()


def mlp_head(cin, hidden, cout):
    head = nn.Sequential()
    head.add_module('fc1', nn.Linear(cin, hidden))
    head.add_module('bn', nn.BatchNorm1d(hidden))
    head.add_module('act', nn.ReLU(inplace=True))
    head.add_module('fc2', nn.Linear(hidden, cout))
    return head


class Encoder(nn.Module):
    def __init__(self, width=24, proj=128):
        super().__init__()
        w = width
        self.stem = nn.Sequential(nn.Conv3d(3, w, (1, 7, 7), (1, 2, 2), (0, 3, 3), bias=False),
                                  nn.BatchNorm3d(w), nn.ReLU(inplace=True))
        self.stage1 = TSMBlock(w, w)
        self.stage2 = TSMBlock(w, 2 * w, 2)
        self.stage3 = R21DBlock(2 * w, 4 * w, 2)
        self.stage4 = R21DBlock(4 * w, 8 * w, 2)
        self.attn = nn.Conv3d(8 * w, 1, 1)
        self.projector = mlp_head(8 * w, 512, proj)

    def forward(self, clip):
        x = self.stem(clip)
        for name in ('stage1', 'stage2', 'stage3', 'stage4'):
            x = getattr(self, name)(x)
        a = self.attn(x).flatten(2).softmax(-1)
        x = torch.bmm(x.flatten(2), a.transpose(1, 2)).squeeze(-1)
        return self.projector(x)


def regression_loss(p, z):
    p = F.normalize(p, dim=-1)
    z = F.normalize(z, dim=-1)
    return 2 - 2 * (p * z).sum(dim=-1)


class Model(nn.Module):
    momentum = 0.99

    def __init__(self):
        super().__init__()
        self.online = Encoder()
        self.predictor = mlp_head(128, 512, 128)
        self.target = Encoder()
        self.target.load_state_dict(self.online.state_dict())
        for p in self.target.parameters():
            p.requires_grad = False

    @torch.no_grad()
    def update_target(self):
        for po, pt in zip(self.online.parameters(), self.target.parameters()):
            pt.data.mul_(self.momentum).add_(po.data, alpha=1 - self.momentum)

    def forward(self, clip1, clip2):
        with torch.no_grad():
            z1, z2 = self.target(clip1), self.target(clip2)
        p1 = self.predictor(self.online(clip1))
        p2 = self.predictor(self.online(clip2))
        loss = regression_loss(p1, z2.detach()) + regression_loss(p2, z1.detach())
        return loss.mean()


def inputs(batch):
    x = torch.randn(batch, 3, 8, 64, 64)
    # second view: horizontal flip + brightness jitter
    y = x.flip(-1) * 0.9 + 0.05 * torch.randn_like(x)
    return x, y
