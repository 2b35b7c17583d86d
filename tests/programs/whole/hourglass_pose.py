import torch
from torch import nn
import torch.nn.functional as F
from typing import Dict, List

NUM_KPTS = 17
FLIP_PAIRS = [(1, 2), (3, 4), (5, 6), (7, 8), (9, 10), (11, 12), (13, 14), (15, 16)]


class Conv(nn.Module):
    def __init__(self, inp_dim, out_dim, kernel_size=3, stride=1, bn=False, relu=True):
        super(Conv, self).__init__()
        self.inp_dim = inp_dim
        self.conv = nn.Conv2d(inp_dim, out_dim, kernel_size, stride, padding=(kernel_size - 1) // 2, bias=not bn)
        self.relu = None
        self.bn = None
        if relu:
            self.relu = nn.ReLU(inplace=True)
        if bn:
            self.bn = nn.BatchNorm2d(out_dim)

    def forward(self, x):
        assert x.size(1) == self.inp_dim, "{} {}".format(x.size(1), self.inp_dim)
        x = self.conv(x)
        if self.bn is not None:
            x = self.bn(x)
        if self.relu is not None:
            x = self.relu(x)
        return x


class Residual(nn.Module):
    def __init__(self, inp_dim, out_dim):
        super(Residual, self).__init__()
        self.bn1 = nn.BatchNorm2d(inp_dim)
        self.conv1 = Conv(inp_dim, out_dim // 2, 1, relu=False)
        self.bn2 = nn.BatchNorm2d(out_dim // 2)
        self.conv2 = Conv(out_dim // 2, out_dim // 2, 3, relu=False)
        self.bn3 = nn.BatchNorm2d(out_dim // 2)
        self.conv3 = Conv(out_dim // 2, out_dim, 1, relu=False)
        self.skip_layer = Conv(inp_dim, out_dim, 1, relu=False)
        self.need_skip = inp_dim != out_dim

    def forward(self, x):
        residual = self.skip_layer(x) if self.need_skip else x
        out = self.conv1(F.relu(self.bn1(x)))
        out = self.conv2(F.relu(self.bn2(out)))
        out = self.conv3(F.relu(self.bn3(out)))
        out += residual
        return out


class Hourglass(nn.Module):
    def __init__(self, n, f, increase=0):
        super(Hourglass, self).__init__()
        nf = f + increase
        self.up1 = Residual(f, f)
        self.pool1 = nn.MaxPool2d(2, 2)
        self.low1 = Residual(f, nf)
        self.n = n
        # recursive
        self.low2 = Hourglass(n - 1, nf) if self.n > 1 else Residual(nf, nf)
        self.low3 = Residual(nf, f)
        self.up2 = nn.Upsample(scale_factor=2, mode='nearest')

    def forward(self, x):
        up1 = self.up1(x)
        pool1 = self.pool1(x)
        low1 = self.low1(pool1)
        low2 = self.low2(low1)
        low3 = self.low3(low2)
        up2 = self.up2(low3)
        return up1 + up2


class Merge(nn.Module):
    def __init__(self, x_dim, y_dim):
        super(Merge, self).__init__()
        self.conv = Conv(x_dim, y_dim, 1, relu=False, bn=False)

    def forward(self, x):
        return self.conv(x)


class SoftArgmax2D(nn.Module):
    """differentiable keypoint coordinates, in heatmap pixels"""

    def __init__(self, h, w, beta=25.0):
        super().__init__()
        ys, xs = torch.meshgrid(torch.arange(h).float(), torch.arange(w).float(), indexing='ij')
        self.register_buffer('xs', xs.reshape(-1))
        self.register_buffer('ys', ys.reshape(-1))
        self.beta = nn.Parameter(torch.tensor(beta))

    def forward(self, hm):
        p = F.softmax(hm.flatten(2) * self.beta, dim=-1)
        return torch.stack([(p * self.xs).sum(-1), (p * self.ys).sum(-1)], dim=-1)


def render_gaussians(kpts, size, sigma=1.5):
    # kpts B,K,2 in pixels -> B,K,size,size
    r = torch.arange(size, device=kpts.device, dtype=kpts.dtype)
    gx = torch.exp(-(r[None, None] - kpts[..., 0:1]) ** 2 / (2 * sigma ** 2))
    gy = torch.exp(-(r[None, None] - kpts[..., 1:2]) ** 2 / (2 * sigma ** 2))
    return torch.einsum('bky,bkx->bkyx', gy, gx)


class Model(nn.Module):
    def __init__(self, nstack=2, inp_dim=96, oup_dim=NUM_KPTS, bn=True, hm_size=32):
        super(Model, self).__init__()
        self.nstack = nstack
        self.hm_size = hm_size
        self.pre = nn.Sequential(
            Conv(3, 32, 7, 2, bn=True, relu=True),
            Residual(32, 64),
            nn.MaxPool2d(2, 2),
            Residual(64, 64),
            Residual(64, inp_dim),
        )
        self.hgs = nn.ModuleList([nn.Sequential(Hourglass(3, inp_dim, 32 * 0)) for i in range(nstack)])
        self.features = nn.ModuleList([
            nn.Sequential(Residual(inp_dim, inp_dim), Conv(inp_dim, inp_dim, 1, bn=True, relu=True))
            for i in range(nstack)])
        self.outs = nn.ModuleList([Conv(inp_dim, oup_dim, 1, relu=False, bn=False) for i in range(nstack)])
        self.merge_features = nn.ModuleList([Merge(inp_dim, inp_dim) for i in range(nstack - 1)])
        self.merge_preds = nn.ModuleList([Merge(oup_dim, inp_dim) for i in range(nstack - 1)])
        self.soft_argmax = SoftArgmax2D(hm_size, hm_size)

    def _heatmap_losses(self, preds: List[torch.Tensor], gt, vis):
        losses = []
        for p in preds:
            l = ((p - gt) ** 2).mean(dim=(2, 3))
            losses.append((l * vis).sum() / vis.sum().clamp(min=1.0))
        return torch.stack(losses)

    def forward(self, imgs, kpts, vis) -> Dict[str, torch.Tensor]:
        x = self.pre(imgs)
        combined_hm_preds = []
        for i in range(self.nstack):
            hg = self.hgs[i](x)
            feature = self.features[i](hg)
            preds = self.outs[i](feature)
            combined_hm_preds.append(preds)
            if i < self.nstack - 1:
                x = x + self.merge_preds[i](preds) + self.merge_features[i](feature)

        gt = render_gaussians(kpts, self.hm_size)
        hm_losses = self._heatmap_losses(combined_hm_preds, gt, vis)
        coords = self.soft_argmax(combined_hm_preds[-1])
        coord_loss = (F.smooth_l1_loss(coords, kpts, reduction='none').sum(-1) * vis).mean()
        # left and right limbs should have roughly the same spread
        l, r = [a for a, _ in FLIP_PAIRS], [b for _, b in FLIP_PAIRS]
        hm = combined_hm_preds[-1]
        sym = (hm[:, l].std(dim=(2, 3)) - hm[:, r].std(dim=(2, 3))).abs().mean()
        return {'loss': hm_losses.sum() + 0.01 * coord_loss + 0.1 * sym, 'coords': coords, 'hm_losses': hm_losses}


def inputs(batch):
    torch.manual_seed(1)
    return (torch.randn(batch, 3, 128, 128),
            torch.rand(batch, NUM_KPTS, 2) * 31,
            (torch.rand(batch, NUM_KPTS) > 0.2).float())
