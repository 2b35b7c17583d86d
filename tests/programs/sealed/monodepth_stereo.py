# Self-supervised monocular depth from stereo pairs, in the spirit of monodepth / monodepth2.
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvBlock(nn.Module):
    """Layer to perform a convolution followed by ELU"""

    def __init__(self, in_channels, out_channels):
        super(ConvBlock, self).__init__()
        self.conv = Conv3x3(in_channels, out_channels)
        self.nonlin = nn.ELU(inplace=True)

    def forward(self, x):
        out = self.conv(x)
        out = self.nonlin(out)
        return out


class Conv3x3(nn.Module):
    """Layer to pad and convolve input"""

    def __init__(self, in_channels, out_channels, use_refl=True):
        super(Conv3x3, self).__init__()
        self.pad = nn.ReflectionPad2d(1) if use_refl else nn.ZeroPad2d(1)
        self.conv = nn.Conv2d(int(in_channels), int(out_channels), 3)

    def forward(self, x):
        return self.conv(self.pad(x))


def upsample(x):
    return F.interpolate(x, scale_factor=2, mode="nearest")


class SSIM(nn.Module):
    """Layer to compute the SSIM loss between a pair of images"""

    def __init__(self):
        super(SSIM, self).__init__()
        self.mu_x_pool = nn.AvgPool2d(3, 1)
        self.mu_y_pool = nn.AvgPool2d(3, 1)
        self.sig_x_pool = nn.AvgPool2d(3, 1)
        self.sig_y_pool = nn.AvgPool2d(3, 1)
        self.sig_xy_pool = nn.AvgPool2d(3, 1)
        self.refl = nn.ReflectionPad2d(1)
        self.C1 = 0.01 ** 2
        self.C2 = 0.03 ** 2

    def forward(self, x, y):
        x = self.refl(x)
        y = self.refl(y)

        mu_x = self.mu_x_pool(x)
        mu_y = self.mu_y_pool(y)

        sigma_x = self.sig_x_pool(x ** 2) - mu_x ** 2
        sigma_y = self.sig_y_pool(y ** 2) - mu_y ** 2
        sigma_xy = self.sig_xy_pool(x * y) - mu_x * mu_y

        SSIM_n = (2 * mu_x * mu_y + self.C1) * (2 * sigma_xy + self.C2)
        SSIM_d = (mu_x ** 2 + mu_y ** 2 + self.C1) * (sigma_x + sigma_y + self.C2)
        return torch.clamp((1 - SSIM_n / SSIM_d) / 2, 0, 1)


def get_smooth_loss(disp, img):
    """Edge-aware smoothness for a disparity image"""
    grad_disp_x = torch.abs(disp[:, :, :, :-1] - disp[:, :, :, 1:])
    grad_disp_y = torch.abs(disp[:, :, :-1, :] - disp[:, :, 1:, :])

    grad_img_x = torch.mean(torch.abs(img[:, :, :, :-1] - img[:, :, :, 1:]), 1, keepdim=True)
    grad_img_y = torch.mean(torch.abs(img[:, :, :-1, :] - img[:, :, 1:, :]), 1, keepdim=True)

    grad_disp_x *= torch.exp(-grad_img_x)
    grad_disp_y *= torch.exp(-grad_img_y)
    return grad_disp_x.mean() + grad_disp_y.mean()


class ResBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super(ResBlock, self).__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride > 1 or cin != cout:
            self.down = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        idn = x if self.down is None else self.down(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + idn)


class ResnetEncoder(nn.Module):
    def __init__(self):
        super(ResnetEncoder, self).__init__()
        self.num_ch_enc = [64, 64, 128, 256, 512]
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(ResBlock(64, 64), ResBlock(64, 64))
        self.layer2 = nn.Sequential(ResBlock(64, 128, 2), ResBlock(128, 128))
        self.layer3 = nn.Sequential(ResBlock(128, 256, 2), ResBlock(256, 256))
        self.layer4 = nn.Sequential(ResBlock(256, 512, 2), ResBlock(512, 512))

    def forward(self, input_image):
        features = []
        x = (input_image - 0.45) / 0.225
        x = self.conv1(x)
        x = self.bn1(x)
        features.append(self.relu(x))
        features.append(self.layer1(self.maxpool(features[-1])))
        features.append(self.layer2(features[-1]))
        features.append(self.layer3(features[-1]))
        features.append(self.layer4(features[-1]))
        return features


class DepthDecoder(nn.Module):
    def __init__(self, num_ch_enc, scales=range(4), num_output_channels=1):
        super(DepthDecoder, self).__init__()
        self.scales = scales
        self.num_ch_enc = num_ch_enc
        self.num_ch_dec = [16, 32, 64, 128, 256]

        self.convs = OrderedDict()
        for i in range(4, -1, -1):
            # upconv_0
            num_ch_in = self.num_ch_enc[-1] if i == 4 else self.num_ch_dec[i + 1]
            self.convs[("upconv", i, 0)] = ConvBlock(num_ch_in, self.num_ch_dec[i])
            # upconv_1
            num_ch_in = self.num_ch_dec[i]
            if i > 0:
                num_ch_in += self.num_ch_enc[i - 1]
            self.convs[("upconv", i, 1)] = ConvBlock(num_ch_in, self.num_ch_dec[i])
        for s in self.scales:
            self.convs[("dispconv", s)] = Conv3x3(self.num_ch_dec[s], num_output_channels)

        self.decoder = nn.ModuleList(list(self.convs.values()))
        self.sigmoid = nn.Sigmoid()

    def forward(self, input_features):
        outputs = {}
        x = input_features[-1]
        for i in range(4, -1, -1):
            x = self.convs[("upconv", i, 0)](x)
            x = [upsample(x)]
            if i > 0:
                x += [input_features[i - 1]]
            x = torch.cat(x, 1)
            x = self.convs[("upconv", i, 1)](x)
            if i in self.scales:
                outputs[("disp", i)] = self.sigmoid(self.convs[("dispconv", i)](x))
        return outputs


class Model(nn.Module):
    H, W = 96, 256

    def __init__(self, max_disp=0.3, smooth_w=1e-3):
        super(Model, self).__init__()
        self.encoder = ResnetEncoder()
        self.decoder = DepthDecoder(self.encoder.num_ch_enc, num_output_channels=2)
        self.ssim = SSIM()
        self.max_disp = max_disp
        self.smooth_w = smooth_w
        ys, xs = torch.meshgrid(torch.linspace(-1, 1, self.H), torch.linspace(-1, 1, self.W), indexing="ij")
        self.register_buffer("grid", torch.stack([xs, ys], -1).unsqueeze(0))

    def warp(self, img, disp, sign):
        # disp in fraction of the image width
        offset = torch.zeros_like(self.grid[..., 1:]).expand(disp.shape[0], -1, -1, -1)
        flow = torch.cat([sign * 2 * disp.permute(0, 2, 3, 1), offset], -1)
        return F.grid_sample(img, self.grid + flow, padding_mode="border", align_corners=True)

    def reprojection(self, pred, target):
        l1_loss = torch.abs(target - pred).mean(1, True)
        ssim_loss = self.ssim(pred, target).mean(1, True)
        return 0.85 * ssim_loss + 0.15 * l1_loss

    def forward(self, left, right):
        disps = self.decoder(self.encoder(left))
        losses = {}
        total = 0
        # identity reprojection: auto-masking of pixels that do not move
        ident = self.reprojection(right, left)
        for scale in range(4):
            d = disps[("disp", scale)]
            up = F.interpolate(d, [self.H, self.W], mode="bilinear", align_corners=False) * self.max_disp
            dl, dr = up[:, :1], up[:, 1:]

            rec_l = self.warp(right, dl, -1)
            rec_r = self.warp(left, dr, +1)
            noisy = ident + torch.randn_like(ident) * 1e-5
            photo_l = torch.min(torch.cat([self.reprojection(rec_l, left), noisy], 1), dim=1)[0].mean()
            photo_r = self.reprojection(rec_r, right).mean()

            # left-right consistency
            lr = torch.abs(self.warp(dr, dl, -1) - dl).mean()

            color = F.interpolate(left, scale_factor=1 / 2 ** scale, mode="area") if scale else left
            norm = d[:, :1] / (d[:, :1].mean(2, True).mean(3, True) + 1e-7)
            smooth = get_smooth_loss(norm, color)

            loss = photo_l + photo_r + lr + self.smooth_w * smooth / (2 ** scale)
            losses["loss/%d" % scale] = loss
            total += loss
        losses["loss"] = total / 4
        losses["disp_0"] = disps[("disp", 0)]
        return losses


def inputs(batch):
    left = torch.rand(batch, 3, Model.H, Model.W)
    return left, torch.roll(left, 5, dims=3)
