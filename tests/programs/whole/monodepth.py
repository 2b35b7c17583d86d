# Self-supervised monocular depth (monodepth2): resnet-18 encoder + skip decoder,
# separate pose net, min reprojection over source frames, auto-masking, 4 scales.
# reference: Godard et al., "Digging into self-supervised monocular depth prediction"

import torch
import torch.nn as nn
import torch.nn.functional as F

H, W = 96, 320
MIN_DEPTH, MAX_DEPTH = 0.1, 100.0


# ------------------------------------------------------------------ layers
class BasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride=1):
        super(BasicBlock, self).__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(nn.Conv2d(inplanes, planes, 1, stride, bias=False),
                                            nn.BatchNorm2d(planes))

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResnetEncoder(nn.Module):
    def __init__(self, num_input_images=1, blocks=(2, 2, 2, 2)):
        super(ResnetEncoder, self).__init__()
        self.num_ch_enc = [64, 64, 128, 256, 512]
        self.conv1 = nn.Conv2d(3 * num_input_images, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        c = 64
        for i, (planes, n) in enumerate(zip([64, 128, 256, 512], blocks)):
            layer = [BasicBlock(c, planes, 1 if i == 0 else 2)]
            layer += [BasicBlock(planes, planes) for _ in range(n - 1)]
            setattr(self, "layer%d" % (i + 1), nn.Sequential(*layer))
            c = planes

    def forward(self, input_image):
        self_features = []
        x = (input_image - 0.45) / 0.225
        x = self.conv1(x)
        x = self.bn1(x)
        self_features.append(self.relu(x))
        self_features.append(self.layer1(self.maxpool(self_features[-1])))
        self_features.append(self.layer2(self_features[-1]))
        self_features.append(self.layer3(self_features[-1]))
        self_features.append(self.layer4(self_features[-1]))
        return self_features


class ConvBlock(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.pad = nn.ReflectionPad2d(1)
        self.conv = nn.Conv2d(int(i), int(o), 3)
        self.nonlin = nn.ELU(inplace=True)

    def forward(self, x):
        return self.nonlin(self.conv(self.pad(x)))


def upsample(x):
    return F.interpolate(x, scale_factor=2, mode="nearest")


class DepthDecoder(nn.Module):
    def __init__(self, num_ch_enc, scales=range(4)):
        super(DepthDecoder, self).__init__()
        self.scales = scales
        ch = [16, 32, 64, 128, 256]
        self.convs = nn.ModuleDict()
        for i in range(4, -1, -1):
            n_in = num_ch_enc[-1] if i == 4 else ch[i + 1]
            self.convs["upconv_%d_0" % i] = ConvBlock(n_in, ch[i])
            n_in = ch[i] + (num_ch_enc[i - 1] if i > 0 else 0)
            self.convs["upconv_%d_1" % i] = ConvBlock(n_in, ch[i])
        for s in scales:
            self.convs["dispconv_%d" % s] = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(ch[s], 1, 3))

    def forward(self, feats):
        outputs = {}
        x = feats[-1]
        for i in range(4, -1, -1):
            x = self.convs["upconv_%d_0" % i](x)
            x = [upsample(x)]
            if i > 0:
                x += [feats[i - 1]]
            x = self.convs["upconv_%d_1" % i](torch.cat(x, 1))
            if i in self.scales:
                outputs[("disp", i)] = torch.sigmoid(self.convs["dispconv_%d" % i](x))
        return outputs


class PoseDecoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.squeeze = nn.Conv2d(c, 256, 1)
        self.net = nn.Sequential(nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU(), nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU(),
                                 nn.Conv2d(256, 6, 1))

    def forward(self, f):
        out = self.net(F.relu(self.squeeze(f[-1]))).mean(3).mean(2)
        out = 0.01 * out.view(-1, 1, 6)
        return out[..., :3], out[..., 3:]


# ------------------------------------------------------------------ geometry
def rot_from_axisangle(vec):
    angle = torch.norm(vec, 2, 2, True)
    axis = vec / (angle + 1e-7)
    ca, sa = torch.cos(angle), torch.sin(angle)
    C = 1 - ca
    x, y, z = axis[..., 0].unsqueeze(1), axis[..., 1].unsqueeze(1), axis[..., 2].unsqueeze(1)
    rot = torch.zeros((vec.shape[0], 4, 4), device=vec.device)
    rot[:, 0, 0] = torch.squeeze(x * x * C + ca, (1, 2))
    rot[:, 0, 1] = torch.squeeze(x * y * C - z * sa, (1, 2))
    rot[:, 0, 2] = torch.squeeze(z * x * C + y * sa, (1, 2))
    rot[:, 1, 0] = torch.squeeze(x * y * C + z * sa, (1, 2))
    rot[:, 1, 1] = torch.squeeze(y * y * C + ca, (1, 2))
    rot[:, 1, 2] = torch.squeeze(y * z * C - x * sa, (1, 2))
    rot[:, 2, 0] = torch.squeeze(z * x * C - y * sa, (1, 2))
    rot[:, 2, 1] = torch.squeeze(y * z * C + x * sa, (1, 2))
    rot[:, 2, 2] = torch.squeeze(z * z * C + ca, (1, 2))
    rot[:, 3, 3] = 1
    return rot


def transformation_from_parameters(axisangle, translation, invert=False):
    R = rot_from_axisangle(axisangle)
    t = translation.clone()
    if invert:
        R = R.transpose(1, 2)
        t *= -1
    T = torch.eye(4, device=R.device).repeat(R.shape[0], 1, 1)
    T[:, :3, 3] = t.squeeze(1)
    return torch.matmul(R, T) if invert else torch.matmul(T, R)


class SSIM(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool2d(3, 1)
        self.refl = nn.ReflectionPad2d(1)
        self.C1, self.C2 = 0.01 ** 2, 0.03 ** 2

    def forward(self, x, y):
        x, y = self.refl(x), self.refl(y)
        mu_x, mu_y = self.pool(x), self.pool(y)
        sigma_x = self.pool(x ** 2) - mu_x ** 2
        sigma_y = self.pool(y ** 2) - mu_y ** 2
        sigma_xy = self.pool(x * y) - mu_x * mu_y
        n = (2 * mu_x * mu_y + self.C1) * (2 * sigma_xy + self.C2)
        d = (mu_x ** 2 + mu_y ** 2 + self.C1) * (sigma_x + sigma_y + self.C2)
        return torch.clamp((1 - n / d) / 2, 0, 1)


def get_smooth_loss(disp, img):
    gdx = torch.abs(disp[:, :, :, :-1] - disp[:, :, :, 1:])
    gdy = torch.abs(disp[:, :, :-1, :] - disp[:, :, 1:, :])
    gix = torch.mean(torch.abs(img[:, :, :, :-1] - img[:, :, :, 1:]), 1, keepdim=True)
    giy = torch.mean(torch.abs(img[:, :, :-1, :] - img[:, :, 1:, :]), 1, keepdim=True)
    return (gdx * torch.exp(-gix)).mean() + (gdy * torch.exp(-giy)).mean()


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        self.encoder = ResnetEncoder()
        self.depth = DepthDecoder(self.encoder.num_ch_enc)
        self.pose_encoder = ResnetEncoder(num_input_images=2)
        self.pose = PoseDecoder(512)
        self.ssim = SSIM()
        ys, xs = torch.meshgrid(torch.arange(H).float(), torch.arange(W).float(), indexing="ij")
        self.register_buffer("pix", torch.stack([xs.flatten(), ys.flatten(), torch.ones(H * W)])[None])

    def warp(self, src, depth, K, T):
        cam = torch.matmul(torch.inverse(K)[:, :3, :3], self.pix) * depth.flatten(2)
        cam = torch.cat([cam, torch.ones_like(cam[:, :1])], 1)
        p = torch.matmul(torch.matmul(K, T)[:, :3, :], cam)
        xy = (p[:, :2] / (p[:, 2:3] + 1e-7)).view(-1, 2, H, W).permute(0, 2, 3, 1)
        scale = torch.tensor([W - 1, H - 1], device=src.device, dtype=src.dtype)
        return F.grid_sample(src, (xy / scale - 0.5) * 2, padding_mode="border", align_corners=True)

    def photometric(self, pred, target):
        l1 = torch.abs(target - pred).mean(1, True)
        return 0.85 * self.ssim(pred, target).mean(1, True) + 0.15 * l1

    def forward(self, prev, cur, nxt, K):
        disps = self.depth(self.encoder(cur))
        T_prev = transformation_from_parameters(*self.pose(self.pose_encoder(torch.cat([prev, cur], 1))), invert=True)
        T_next = transformation_from_parameters(*self.pose(self.pose_encoder(torch.cat([cur, nxt], 1))))

        identity = torch.cat([self.photometric(s, cur) for s in (prev, nxt)], 1)
        losses = {}
        total = 0
        for s in range(4):
            disp = disps[("disp", s)]
            full = F.interpolate(disp, [H, W], mode="bilinear", align_corners=False)
            depth = 1 / (1 / MAX_DEPTH + (1 / MIN_DEPTH - 1 / MAX_DEPTH) * full)
            reproj = torch.cat([self.photometric(self.warp(img, depth, K, T), cur)
                                for img, T in ((prev, T_prev), (nxt, T_next))], 1)
            # random numbers to break ties
            ident = identity + torch.randn(identity.shape, device=identity.device) * 0.00001
            to_optimise, idxs = torch.min(torch.cat((ident, reproj), dim=1), dim=1)
            loss = to_optimise.mean()
            norm_disp = disp / (disp.mean(2, True).mean(3, True) + 1e-7)
            color = F.interpolate(cur, [H // 2 ** s, W // 2 ** s], mode="area")
            loss = loss + 1e-3 * get_smooth_loss(norm_disp, color) / (2 ** s)
            losses["loss/%d" % s] = loss.detach()
            losses["automask/%d" % s] = (idxs > 1).float().mean()
            total = total + loss
        losses["loss"] = total / 4
        losses["disp"] = disps[("disp", 0)].detach()
        return losses


def inputs(batch):
    K = torch.tensor([[0.58 * W, 0, 0.5 * W, 0], [0, 1.92 * H, 0.5 * H, 0], [0, 0, 1, 0], [0, 0, 0, 1.]])
    img = lambda: torch.rand(batch, 3, H, W)
    return img(), img(), img(), K.repeat(batch, 1, 1)
