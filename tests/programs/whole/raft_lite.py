import math
import torch
import torch.nn as nn
import torch.nn.functional as F


def bilinear_sampler(img, coords):
    """ grid_sample with pixel coordinates """
    H, W = img.shape[-2:]
    xgrid, ygrid = coords.split([1, 1], dim=-1)
    xgrid = 2 * xgrid / (W - 1) - 1
    ygrid = 2 * ygrid / (H - 1) - 1
    return F.grid_sample(img, torch.cat([xgrid, ygrid], dim=-1), align_corners=True)


def coords_grid(batch, ht, wd, device):
    coords = torch.meshgrid(torch.arange(ht, device=device), torch.arange(wd, device=device), indexing="ij")
    coords = torch.stack(coords[::-1], dim=0).float()
    return coords[None].repeat(batch, 1, 1, 1)


class CorrBlock:
    """all-pairs correlation pyramid; plain object, no parameters"""

    def __init__(self, fmap1, fmap2, num_levels=3, radius=3):
        self.num_levels = num_levels
        self.radius = radius
        self.corr_pyramid = []

        corr = CorrBlock.corr(fmap1, fmap2)
        batch, h1, w1, dim, h2, w2 = corr.shape
        corr = corr.reshape(batch * h1 * w1, dim, h2, w2)
        self.corr_pyramid.append(corr)
        for i in range(self.num_levels - 1):
            corr = F.avg_pool2d(corr, 2, stride=2)
            self.corr_pyramid.append(corr)

    def __call__(self, coords):
        r = self.radius
        coords = coords.permute(0, 2, 3, 1)
        batch, h1, w1, _ = coords.shape

        out_pyramid = []
        for i in range(self.num_levels):
            corr = self.corr_pyramid[i]
            dx = torch.linspace(-r, r, 2 * r + 1, device=coords.device)
            dy = torch.linspace(-r, r, 2 * r + 1, device=coords.device)
            delta = torch.stack(torch.meshgrid(dy, dx, indexing="ij"), dim=-1)

            centroid_lvl = coords.reshape(batch * h1 * w1, 1, 1, 2) / 2 ** i
            delta_lvl = delta.view(1, 2 * r + 1, 2 * r + 1, 2)
            corr = bilinear_sampler(corr, centroid_lvl + delta_lvl)
            out_pyramid.append(corr.view(batch, h1, w1, -1))

        out = torch.cat(out_pyramid, dim=-1)
        return out.permute(0, 3, 1, 2).contiguous().float()

    @staticmethod
    def corr(fmap1, fmap2):
        batch, dim, ht, wd = fmap1.shape
        fmap1 = fmap1.view(batch, dim, ht * wd)
        fmap2 = fmap2.view(batch, dim, ht * wd)
        corr = torch.matmul(fmap1.transpose(1, 2), fmap2)
        corr = corr.view(batch, ht, wd, 1, ht, wd)
        return corr / math.sqrt(dim)


class BottleneckBlock(nn.Module):
    def __init__(self, in_planes, planes, norm, stride=1):
        super(BottleneckBlock, self).__init__()
        mk = {'instance': lambda c: nn.InstanceNorm2d(c), 'none': lambda c: nn.Sequential(),
              'batch': lambda c: nn.BatchNorm2d(c)}[norm]
        self.conv1 = nn.Conv2d(in_planes, planes // 4, kernel_size=1, padding=0)
        self.conv2 = nn.Conv2d(planes // 4, planes // 4, kernel_size=3, padding=1, stride=stride)
        self.conv3 = nn.Conv2d(planes // 4, planes, kernel_size=1, padding=0)
        self.relu = nn.ReLU(inplace=True)
        self.norm1, self.norm2, self.norm3 = mk(planes // 4), mk(planes // 4), mk(planes)
        self.downsample = None
        if not (stride == 1 and in_planes == planes):
            self.downsample = nn.Sequential(nn.Conv2d(in_planes, planes, kernel_size=1, stride=stride), mk(planes))

    def forward(self, x):
        y = x
        y = self.relu(self.norm1(self.conv1(y)))
        y = self.relu(self.norm2(self.conv2(y)))
        y = self.relu(self.norm3(self.conv3(y)))
        if self.downsample is not None:
            x = self.downsample(x)
        return self.relu(x + y)


def small_encoder(output_dim, norm):
    return nn.Sequential(
        nn.Conv2d(3, 32, kernel_size=7, stride=2, padding=3),
        nn.InstanceNorm2d(32) if norm == 'instance' else nn.Identity(),
        nn.ReLU(inplace=True),
        BottleneckBlock(32, 32, norm), BottleneckBlock(32, 32, norm),
        BottleneckBlock(32, 64, norm, stride=2), BottleneckBlock(64, 64, norm),
        BottleneckBlock(64, 96, norm, stride=2), BottleneckBlock(96, 96, norm),
        nn.Conv2d(96, output_dim, kernel_size=1),
    )


class ConvGRU(nn.Module):
    def __init__(self, hidden_dim=96, input_dim=64 + 82):
        super(ConvGRU, self).__init__()
        self.convz = nn.Conv2d(hidden_dim + input_dim, hidden_dim, 3, padding=1)
        self.convr = nn.Conv2d(hidden_dim + input_dim, hidden_dim, 3, padding=1)
        self.convq = nn.Conv2d(hidden_dim + input_dim, hidden_dim, 3, padding=1)

    def forward(self, h, x):
        hx = torch.cat([h, x], dim=1)
        z = torch.sigmoid(self.convz(hx))
        r = torch.sigmoid(self.convr(hx))
        q = torch.tanh(self.convq(torch.cat([r * h, x], dim=1)))
        h = (1 - z) * h + z * q
        return h


class UpdateBlock(nn.Module):
    def __init__(self, corr_planes, hidden=96, context=64):
        super().__init__()
        self.convc1 = nn.Conv2d(corr_planes, 96, 1)
        self.convf1 = nn.Conv2d(2, 64, 7, padding=3)
        self.convf2 = nn.Conv2d(64, 32, 3, padding=1)
        self.conv = nn.Conv2d(128, 80, 3, padding=1)
        self.gru = ConvGRU(hidden, 82 + context)
        self.flow_head = nn.Sequential(nn.Conv2d(hidden, 128, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(128, 2, 3, padding=1))

    def forward(self, net, inp, corr, flow):
        cor = F.relu(self.convc1(corr))
        flo = F.relu(self.convf2(F.relu(self.convf1(flow))))
        motion = F.relu(self.conv(torch.cat([cor, flo], dim=1)))
        inp = torch.cat([inp, motion, flow], dim=1)
        net = self.gru(net, inp)
        return net, self.flow_head(net)


def sequence_loss(flow_preds, flow_gt, valid, gamma=0.8, max_flow=400.):
    n_predictions = len(flow_preds)
    flow_loss = 0.0
    mag = torch.sum(flow_gt ** 2, dim=1).sqrt()
    valid = (valid >= 0.5) & (mag < max_flow)
    for i in range(n_predictions):
        i_weight = gamma ** (n_predictions - i - 1)
        i_loss = (flow_preds[i] - flow_gt).abs()
        flow_loss += i_weight * (valid[:, None] * i_loss).mean()
    epe = torch.sum((flow_preds[-1] - flow_gt) ** 2, dim=1).sqrt()
    return flow_loss, (epe * valid).detach().mean()


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        self.hidden_dim = hdim = 96
        self.context_dim = cdim = 64
        self.iters = 5
        self.fnet = small_encoder(128, 'instance')
        self.cnet = small_encoder(hdim + cdim, 'none')
        self.update_block = UpdateBlock(3 * 49, hdim, cdim)

    def forward(self, image1, image2, flow_gt, valid):
        image1 = 2 * (image1 / 255.0) - 1.0
        image2 = 2 * (image2 / 255.0) - 1.0
        N, _, H, W = image1.shape
        fmap1, fmap2 = self.fnet(image1), self.fnet(image2)
        corr_fn = CorrBlock(fmap1, fmap2)

        net, inp = torch.split(self.cnet(image1), [self.hidden_dim, self.context_dim], dim=1)
        net = torch.tanh(net)
        inp = torch.relu(inp)

        coords0 = coords_grid(N, H // 8, W // 8, image1.device)
        coords1 = coords_grid(N, H // 8, W // 8, image1.device)
        flow_predictions = []
        for itr in range(self.iters):
            coords1 = coords1.detach()
            corr = corr_fn(coords1)
            net, delta_flow = self.update_block(net, inp, corr, coords1 - coords0)
            coords1 = coords1 + delta_flow
            flow_up = 8 * F.interpolate(coords1 - coords0, size=(H, W), mode='bilinear', align_corners=True)
            flow_predictions.append(flow_up)
        return sequence_loss(flow_predictions, flow_gt, valid)


def inputs(batch):
    return (torch.rand(batch, 3, 128, 192) * 255, torch.rand(batch, 3, 128, 192) * 255,
            torch.randn(batch, 2, 128, 192) * 4, torch.ones(batch, 128, 192))
