import torch
import torch.nn as nn
import torch.nn.functional as F

CONTENT_LAYERS = ['relu2_2']
STYLE_LAYERS = ['relu1_2', 'relu2_2', 'relu3_3', 'relu4_2']
N_STYLES = 8


# ---------------------------------------------------------------- loss network
class VGGSlim(nn.Module):
    """VGG16 with a quarter of the channels, up to relu4_2. Frozen (we load converted weights)."""

    cfg = [('1_1', 3, 16), ('1_2', 16, 16), 'M', ('2_1', 16, 32), ('2_2', 32, 32), 'M',
           ('3_1', 32, 64), ('3_2', 64, 64), ('3_3', 64, 64), 'M', ('4_1', 64, 128), ('4_2', 128, 128)]

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict()
        for item in self.cfg:
            if item == 'M':
                self.layers[f'pool{len(self.layers)}'] = nn.AvgPool2d(2)
                continue
            name, i, o = item
            self.layers['conv' + name] = nn.Conv2d(i, o, 3, padding=1)
            self.layers['relu' + name] = nn.ReLU(inplace=True)
        self.register_buffer('mean', torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1))
        self.register_buffer('std', torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1))
        self.requires_grad_(False)
        self.eval()

    def train(self, mode=True):
        return super().train(False)

    def forward(self, x, want):
        x = (x - self.mean) / self.std
        feats = {}
        for k, layer in self.layers.items():
            x = layer(x)
            if k in want:
                feats[k] = x
        return feats


def gram_matrix(y):
    b, ch, h, w = y.size()
    features = y.view(b, ch, w * h)
    features_t = features.transpose(1, 2)
    return features.bmm(features_t) / (ch * h * w)


def tv(img):
    return (img[:, :, :, 1:] - img[:, :, :, :-1]).abs().mean() + (img[:, :, 1:] - img[:, :, :-1]).abs().mean()


# ---------------------------------------------------------------- transformer net
class CondInstanceNorm(nn.Module):
    def __init__(self, c, n_styles):
        super().__init__()
        self.eps = 1e-5
        self.gamma = nn.Parameter(torch.ones(n_styles, c))
        self.beta = nn.Parameter(torch.zeros(n_styles, c))

    def forward(self, x, style_id):
        mu = x.mean(dim=(2, 3), keepdim=True)
        sigma = x.var(dim=(2, 3), keepdim=True, unbiased=False).add(self.eps).sqrt()
        gamma = self.gamma[style_id].unsqueeze(-1).unsqueeze(-1)
        beta = self.beta[style_id].unsqueeze(-1).unsqueeze(-1)
        return gamma * (x - mu) / sigma + beta


class ConvLayer(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, upsample=None, act=True):
        super().__init__()
        self.upsample = upsample
        self.pad = nn.ReflectionPad2d(kernel_size // 2)
        self.conv2d = nn.Conv2d(in_channels, out_channels, kernel_size, stride)
        self.norm = CondInstanceNorm(out_channels, N_STYLES)
        self.act = act

    def forward(self, x, s):
        if self.upsample:
            x = F.interpolate(x, scale_factor=self.upsample, mode='nearest')
        out = self.norm(self.conv2d(self.pad(x)), s)
        return out.relu() if self.act else out


class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = ConvLayer(channels, channels, 3, 1)
        self.conv2 = ConvLayer(channels, channels, 3, 1, act=False)

    def forward(self, x, s):
        return x + self.conv2(self.conv1(x, s), s)


class TransformerNet(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.layers = nn.ModuleList([
            ConvLayer(3, c, 9, 1), ConvLayer(c, c * 2, 3, 2), ConvLayer(c * 2, c * 4, 3, 2),
            *(ResidualBlock(c * 4) for _ in range(4)),
            ConvLayer(c * 4, c * 2, 3, 1, upsample=2), ConvLayer(c * 2, c, 3, 1, upsample=2),
        ])
        self.final = nn.Sequential(nn.ReflectionPad2d(4), nn.Conv2d(c, 3, 9))

    def forward(self, x, s):
        for l in self.layers:
            x = l(x, s)
        return torch.sigmoid(self.final(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = TransformerNet()
        self.vgg = VGGSlim()
        self.cw, self.sw, self.tvw = 1.0, 1e4, 1e-2

    def forward(self, content, style, style_id):
        stylised = self.net(content, style_id)
        feats = self.vgg(stylised, STYLE_LAYERS)
        with torch.no_grad():
            c_feats = self.vgg(content, CONTENT_LAYERS)
            s_grams = {k: gram_matrix(v) for k, v in self.vgg(style, STYLE_LAYERS).items()}

        content_loss = sum(F.mse_loss(feats[l], c_feats[l]) for l in CONTENT_LAYERS)
        style_loss = 0.
        for l in STYLE_LAYERS:
            style_loss += F.mse_loss(gram_matrix(feats[l]), s_grams[l])
        losses = dict(content=self.cw * content_loss, style=self.sw * style_loss, tv=self.tvw * tv(stylised))
        losses['total'] = losses['content'] + losses['style'] + losses['tv']
        return losses


def inputs(batch):
    return torch.rand(batch, 3, 96, 96), torch.rand(batch, 3, 96, 96), torch.randint(N_STYLES, (batch,))
