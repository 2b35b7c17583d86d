"""LaMa-like inpainting for old film scans: FFC generator, patch critic and feature matching."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class FourierUnit(nn.Module):

    def __init__(self, in_channels, out_channels, groups=1, fft_norm='ortho'):
        super(FourierUnit, self).__init__()
        self.groups = groups
        self.conv_layer = nn.Conv2d(in_channels * 2, out_channels * 2, kernel_size=1, groups=self.groups, bias=False)
        self.bn = nn.BatchNorm2d(out_channels * 2)
        self.relu = nn.ReLU(inplace=True)
        self.fft_norm = fft_norm

    def forward(self, x):
        batch = x.shape[0]
        h, w = x.shape[-2:]

        # (batch, c, h, w/2+1, 2)
        ffted = torch.fft.rfftn(x, dim=(-2, -1), norm=self.fft_norm)
        ffted = torch.stack((ffted.real, ffted.imag), dim=-1)
        ffted = ffted.permute(0, 1, 4, 2, 3).contiguous()  # (batch, c, 2, h, w/2+1)
        ffted = ffted.view((batch, -1,) + ffted.size()[3:])

        ffted = self.conv_layer(ffted)
        ffted = self.relu(self.bn(ffted))

        ffted = ffted.view((batch, -1, 2,) + ffted.size()[2:]).permute(0, 1, 3, 4, 2).contiguous()
        ffted = torch.complex(ffted[..., 0], ffted[..., 1])
        return torch.fft.irfftn(ffted, s=(h, w), dim=(-2, -1), norm=self.fft_norm)


class SpectralTransform(nn.Module):

    def __init__(self, in_channels, out_channels):
        super(SpectralTransform, self).__init__()
        mid = out_channels // 2
        self.conv1 = nn.Sequential(nn.Conv2d(in_channels, mid, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU(inplace=True))
        self.fu = FourierUnit(mid, mid)
        self.lfu = FourierUnit(mid, mid)
        self.conv2 = nn.Conv2d(mid, out_channels, 1, bias=False)

    def forward(self, x):
        x = self.conv1(x)
        output = self.fu(x)

        n, c, h, w = x.shape
        split_s = h // 2
        xs = torch.cat(torch.split(x[:, :c // 4], split_s, dim=-2), dim=1).contiguous()
        xs = torch.cat(torch.split(xs, split_s, dim=-1), dim=1).contiguous()
        xs = self.lfu(xs)
        xs = xs.repeat(1, 1, 2, 2).contiguous()
        return self.conv2(x + output + xs)


class FFC(nn.Module):
    def __init__(self, dim, ratio_g=0.5, k=3):
        super().__init__()
        cg = int(dim * ratio_g)
        cl = dim - cg
        self.cl, self.cg = cl, cg
        conv = lambda i, o: nn.Conv2d(i, o, k, padding=k // 2, bias=False, padding_mode='reflect')
        self.convl2l, self.convl2g, self.convg2l = conv(cl, cl), conv(cl, cg), conv(cg, cl)
        self.convg2g = SpectralTransform(cg, cg)
        self.bn_l, self.bn_g = nn.BatchNorm2d(cl), nn.BatchNorm2d(cg)

    def forward(self, x):
        x_l, x_g = x if isinstance(x, tuple) else x.split([self.cl, self.cg], dim=1)
        out_l = self.convl2l(x_l) + self.convg2l(x_g)
        out_g = self.convl2g(x_l) + self.convg2g(x_g)
        return F.relu(self.bn_l(out_l)), F.relu(self.bn_g(out_g))


class FFCResnetBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv1, self.conv2 = FFC(dim), FFC(dim)

    def forward(self, x):
        id_l, id_g = x
        x_l, x_g = self.conv2(self.conv1(x))
        return id_l + x_l, id_g + x_g


class ConcatTupleLayer(nn.Module):
    def forward(self, x):
        assert isinstance(x, tuple)
        return torch.cat(x, dim=1)


class Generator(nn.Module):
    def __init__(self, ngf=24, n_down=2, n_blocks=4):
        super().__init__()
        model = [nn.ReflectionPad2d(3), nn.Conv2d(4, ngf, 7), nn.BatchNorm2d(ngf), nn.ReLU(True)]
        for i in range(n_down):
            mult = 2 ** i
            model += [nn.Conv2d(ngf * mult, ngf * mult * 2, 3, stride=2, padding=1), nn.BatchNorm2d(ngf * mult * 2), nn.ReLU(True)]
        mult = 2 ** n_down
        model += [FFC(ngf * mult)]
        model += [FFCResnetBlock(ngf * mult) for _ in range(n_blocks)]
        model += [ConcatTupleLayer()]
        for i in range(n_down):
            mult = 2 ** (n_down - i)
            model += [nn.ConvTranspose2d(ngf * mult, ngf * mult // 2, 3, 2, 1, output_padding=1),
                      nn.BatchNorm2d(ngf * mult // 2), nn.ReLU(True)]
        model += [nn.ReflectionPad2d(3), nn.Conv2d(ngf, 3, 7), nn.Sigmoid()]
        self.model = nn.Sequential(*model)

    def forward(self, x):
        return self.model(x)


class NLayerDiscriminator(nn.Module):
    def __init__(self, ndf=32, n_layers=3):
        super().__init__()
        nf, seq = ndf, [[nn.Conv2d(3, ndf, 4, 2, 1), nn.LeakyReLU(0.2, True)]]
        for n in range(1, n_layers):
            nf_prev, nf = nf, min(nf * 2, 256)
            seq += [[nn.Conv2d(nf_prev, nf, 4, 2, 1), nn.InstanceNorm2d(nf), nn.LeakyReLU(0.2, True)]]
        seq += [[nn.Conv2d(nf, 1, 4, 1, 1)]]
        for n, s in enumerate(seq):
            setattr(self, 'model' + str(n), nn.Sequential(*s))
        self.n = len(seq)

    def forward(self, x):
        res = [x]
        for n in range(self.n):
            res.append(getattr(self, 'model' + str(n))(res[-1]))
        return res[-1], res[1:-1]


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        self.gen = Generator()
        self.disc = NLayerDiscriminator()

    def forward(self, image, mask):
        masked = image * (1 - mask)
        pred = self.gen(torch.cat([masked, mask], dim=1))
        inpainted = mask * pred + (1 - mask) * image

        fake_logits, fake_feats = self.disc(pred)
        real_logits, real_feats = self.disc(image)
        # L1 is weighted up on the known area, as in the paper
        l1 = (F.l1_loss(pred, image, reduction='none') * (mask * 1. + (1 - mask) * 10.)).mean()
        adv = F.softplus(-fake_logits).mean()
        fm = torch.stack([F.mse_loss(f, r.detach()) for f, r in zip(fake_feats, real_feats)]).mean()

        # critic: only the hole is fake
        d_fake, _ = self.disc(inpainted.detach())
        m = F.interpolate(mask, size=d_fake.shape[-2:], mode='bilinear', align_corners=False)
        d_loss = (F.softplus(-real_logits) + m * F.softplus(d_fake) + (1 - m) * F.softplus(-d_fake)).mean()
        return l1 + 10 * adv + 100 * fm, d_loss, inpainted


def inputs(batch):
    mask = torch.zeros(batch, 1, 96, 96)
    mask[:, :, 20:70, 30:60] = 1.
    return torch.rand(batch, 3, 96, 96), mask
