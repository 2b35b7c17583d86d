"""Images, volumes, graphs, spectra, tables and agents."""
import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["vae", "fno", "dlrm", "deep_fm", "message_passing", "graph_attention", "conv3d", "video_frames", "actor_critic", "diffusion", "generator", "super_resolution", "nerf",
           "mlp_mixer", "squeeze_net", "residual_scaled", "spatial_transformer", "normalizing_flow", "point_net", "tab_transformer", "hypernetwork", "deep_equilibrium", "style_mod"]


class Vae(nn.Module):
    def __init__(self, latent=32):
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(784, 400), nn.ReLU())
        self.mu, self.logvar = nn.Linear(400, latent), nn.Linear(400, latent)
        self.decode = nn.Sequential(nn.Linear(latent, 400), nn.ReLU(), nn.Linear(400, 784), nn.Sigmoid())

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def forward(self, x):
        h = self.encode(x)
        mu, logvar = self.mu(h), self.logvar(h)
        again = self.decode(self.reparameterize(mu, logvar))
        return F.mse_loss(again, x.flatten(1), reduction="sum") - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


class SpectralConv(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.zeros(width, width, modes, dtype=torch.cfloat))

    def forward(self, x):
        f = torch.fft.rfft(x)
        out = torch.zeros(x.shape[0], x.shape[1], f.shape[-1], dtype=torch.cfloat, device=x.device)
        out[:, :, : self.modes] = torch.einsum("bix,iox->box", f[:, :, : self.modes], self.weight)
        return torch.fft.irfft(out, n=x.shape[-1])


class Fno(nn.Module):
    def __init__(self, width=32, modes=12):
        super().__init__()
        self.lift, self.drop = nn.Linear(2, width), nn.Linear(width, 1)
        self.spectral = nn.ModuleList(SpectralConv(width, modes) for _ in range(3))
        self.local = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(3))

    def forward(self, x, y):
        x = self.lift(x).permute(0, 2, 1)
        for s, w in zip(self.spectral, self.local):
            x = F.gelu(s(x) + w(x))
        return F.mse_loss(self.drop(x.permute(0, 2, 1)), y)


class Dlrm(nn.Module):
    def __init__(self, tables=(10000, 5000, 20000), width=32):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(n, width, mode="sum") for n in tables)
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + 6, 128), nn.ReLU(), nn.Linear(128, 1))
        self.register_buffer("rows", torch.tril_indices(4, 4, -1), persistent=False)

    def forward(self, dense, sparse, clicks):
        d = self.bottom(dense)
        z = torch.stack([d, *[t(sparse[:, i]) for i, t in enumerate(self.tables)]], dim=1)
        pairs = torch.bmm(z, z.transpose(1, 2))[:, self.rows[0], self.rows[1]]
        return F.binary_cross_entropy_with_logits(self.top(torch.cat([d, pairs], dim=1)).squeeze(1), clicks)


class DeepFm(nn.Module):
    def __init__(self, fields=10, size=1000, width=16):
        super().__init__()
        self.linear, self.factors = nn.Embedding(fields * size, 1), nn.Embedding(fields * size, width)
        self.register_buffer("offsets", torch.arange(fields) * size)
        self.deep = nn.Sequential(nn.Linear(fields * width, 200), nn.BatchNorm1d(200), nn.ReLU(), nn.Dropout(0.3), nn.Linear(200, 1))

    def forward(self, x, y):
        x = x + self.offsets
        e = self.factors(x)
        fm = 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1, keepdim=True)
        return F.binary_cross_entropy_with_logits((self.linear(x).sum(1) + fm + self.deep(e.flatten(1))).squeeze(1), y)


class MessagePassing(nn.Module):
    """Every sample is a graph of its own; edges are added up with index_add."""

    def __init__(self, width=64, layers=3):
        super().__init__()
        self.embed, self.width = nn.Linear(16, width), width
        self.message = nn.ModuleList(nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(layers))
        self.update = nn.ModuleList(nn.GRUCell(width, width) for _ in range(layers))
        self.head = nn.Linear(width, 7)

    def forward(self, nodes, source, target):
        x = self.embed(nodes)
        for message, update in zip(self.message, self.update):
            m = message(torch.cat([x[source], x[target]], dim=-1))
            total = torch.zeros_like(x).index_add(0, target, m.to(x.dtype))
            x = update(total, x)
        return self.head(x)


class GraphAttention(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads, self.width = heads, width
        self.w, self.left, self.right = nn.Linear(32, heads * width, bias=False), nn.Parameter(torch.zeros(heads, width)), nn.Parameter(torch.zeros(heads, width))
        self.head = nn.Linear(heads * width, 5)

    def forward(self, nodes, source, target):
        h = self.w(nodes).view(-1, self.heads, self.width)
        score = F.leaky_relu((h * self.left).sum(-1)[source] + (h * self.right).sum(-1)[target], 0.2).exp()
        norm = torch.zeros(nodes.shape[0], self.heads, device=nodes.device).scatter_add(0, target.unsqueeze(1).expand_as(score), score.float())
        weight = score / (norm[target] + 1e-9)
        out = torch.zeros_like(h, dtype=torch.float).index_add(0, target, (h[source] * weight.unsqueeze(-1)).float())
        return self.head(F.elu(out.flatten(1)))


class Conv3d(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Conv3d(i, o, 3, padding=1), nn.BatchNorm3d(o), nn.ReLU(inplace=True), nn.MaxPool3d(2)) for i, o in ((1, 16), (16, 32), (32, 64))])
        self.head = nn.Linear(64, 4)

    def forward(self, x):
        return self.head(self.layers(x).mean(dim=(2, 3, 4)))


class VideoFrames(nn.Module):
    """A 2-d network on every frame, an LSTM over their features."""

    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.lstm, self.head = nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 20)

    def forward(self, clip):
        b, t = clip.shape[:2]
        x, (h, _) = self.lstm(self.cnn(clip.flatten(0, 1)).view(b, t, -1))
        return self.head(h[-1])


class ActorCritic(nn.Module):
    def __init__(self, actions=6):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU())
        self.policy, self.value = nn.Linear(512, actions), nn.Linear(512, 1)

    def forward(self, frames, action, before, advantage, returns):
        x = self.trunk(frames)
        logp = F.log_softmax(self.policy(x), dim=-1)
        chosen = logp.gather(1, action.unsqueeze(1)).squeeze(1)
        ratio = (chosen - before).exp()
        clipped = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        entropy = -(logp.exp() * logp).sum(-1).mean()
        return -clipped + 0.5 * F.mse_loss(self.value(x).squeeze(1), returns) - 0.01 * entropy


class ResBlock(nn.Module):
    def __init__(self, i, o, time):
        super().__init__()
        self.n1, self.c1, self.time = nn.GroupNorm(8, i), nn.Conv2d(i, o, 3, padding=1), nn.Linear(time, o)
        self.n2, self.c2 = nn.GroupNorm(8, o), nn.Conv2d(o, o, 3, padding=1)
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x)))
        h = h + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(h)))


class Diffusion(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.stem, self.time = nn.Conv2d(3, width, 3, padding=1), nn.Sequential(nn.Linear(32, 128), nn.SiLU(), nn.Linear(128, 128))
        self.down = nn.ModuleList([ResBlock(width, width, 128), ResBlock(width, 2 * width, 128)])
        self.middle = ResBlock(2 * width, 2 * width, 128)
        self.up = nn.ModuleList([ResBlock(4 * width, width, 128), ResBlock(2 * width, width, 128)])
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, noise, t):
        freq = torch.exp(-torch.arange(16, device=t.device) / 16.0 * 9.2)
        angle = t[:, None].float() * freq[None]
        emb = self.time(torch.cat([angle.sin(), angle.cos()], dim=-1))
        h, hs = self.stem(x + noise), []
        for block in self.down:
            h = block(h, emb)
            hs.append(h)
            h = F.avg_pool2d(h, 2)
        h = self.middle(h, emb)
        for block in self.up:
            h = F.interpolate(h, scale_factor=2.0, mode="nearest")
            h = block(torch.cat([h, hs.pop()], dim=1), emb)
        return F.mse_loss(self.out(h), noise)


class Generator(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        sizes = [100, 4 * width, 2 * width, width]
        self.main = nn.Sequential(*[m for i, (a, b) in enumerate(zip(sizes, sizes[1:])) for m in (nn.ConvTranspose2d(a, b, 4, 2 if i else 1, 1 if i else 0, bias=False), nn.BatchNorm2d(b), nn.ReLU(True))],
                                  nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, z):
        return (self.main(z[:, :, None, None]) ** 2).mean()


class SuperResolution(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.head, self.body = nn.Conv2d(3, width, 3, padding=1), nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.PReLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(4))
        self.tail, self.shuffle = nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2)

    def forward(self, x, wanted):
        x = f = self.head(x)
        for block in self.body:
            f = f + 0.1 * block(f)
        return F.l1_loss(self.shuffle(self.tail(f + x)), wanted)


class Nerf(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.first, self.second = nn.Sequential(nn.Linear(63, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()), nn.Sequential(nn.Linear(width + 63, width), nn.ReLU())
        self.density, self.colour = nn.Linear(width, 1), nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 3), nn.Sigmoid())

    def encode(self, x):
        return torch.cat([x, *[f(x * 2.0**i) for i in range(10) for f in (torch.sin, torch.cos)]], dim=-1)

    def forward(self, points, distance, wanted):
        e = self.encode(points)
        h = self.second(torch.cat([self.first(e), e], dim=-1))
        alpha = 1 - torch.exp(-F.relu(self.density(h).squeeze(-1)) * distance)
        light = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], dim=1), dim=1)[:, :-1]
        return F.mse_loss(((alpha * light).unsqueeze(-1) * self.colour(h)).sum(1), wanted)


class Mixer(nn.Module):
    def __init__(self, width=96, tokens=64):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        mlp = lambda i: nn.Sequential(nn.Linear(i, 2 * i), nn.GELU(), nn.Linear(2 * i, i))
        self.layers = nn.ModuleList(nn.ModuleList([nn.LayerNorm(width), mlp(tokens), nn.LayerNorm(width), mlp(width)]) for _ in range(3))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for n1, across, n2, along in self.layers:
            x = x + across(n1(x).transpose(1, 2)).transpose(1, 2)
            x = x + along(n2(x))
        return self.head(x.mean(1))


class SqueezeExcite(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(width, width // 8), nn.ReLU(inplace=True), nn.Linear(width // 8, width), nn.Sigmoid())

    def forward(self, x):
        b, c, _, _ = x.size()
        y = x.mean((2, 3)).view(b, c)
        return x * self.fc(y).view(b, c, 1, 1).expand_as(x)


class SqueezeNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.Hardswish(inplace=True), SqueezeExcite(width), nn.Conv2d(width, width, 3, 1, 1, groups=width), nn.BatchNorm2d(width), nn.ReLU6(),
                                 SqueezeExcite(width), nn.Conv2d(width, 2 * width, 1), nn.BatchNorm2d(2 * width))
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.net(x), 1).squeeze(-1).squeeze(-1))


class ResidualScaled(nn.Module):
    def __init__(self, width=256, layers=5):
        super().__init__()
        self.layers, self.gains = nn.ModuleList(nn.Linear(width, width) for _ in range(layers)), nn.ParameterList(nn.Parameter(torch.full((1,), 0.1)) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        for layer, gain in zip(self.layers, self.gains):
            residual = x
            x = F.leaky_relu(layer(self.norm(x)))
            x *= gain
            x += residual
        return x.log_softmax(-1)


class SpatialTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.locate = nn.Sequential(nn.Conv2d(1, 8, 7), nn.MaxPool2d(2, 2), nn.ReLU(True), nn.Conv2d(8, 10, 5), nn.MaxPool2d(2, 2), nn.ReLU(True), nn.Flatten(), nn.Linear(90, 6))
        self.net, self.head = nn.Sequential(nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(10, 20, 5), nn.Dropout2d(), nn.MaxPool2d(2), nn.ReLU()), nn.Linear(320, 10)

    def forward(self, x):
        theta = self.locate(x).view(-1, 2, 3)
        x = F.grid_sample(x, F.affine_grid(theta, x.size(), align_corners=False), align_corners=False)
        return F.log_softmax(self.head(self.net(x).flatten(1)), dim=1)


class Flow(nn.Module):
    """RealNVP: coupling layers, halves in turn."""

    def __init__(self, width=64, layers=4):
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(width // 2, 128), nn.Tanh(), nn.Linear(128, width)) for _ in range(layers))

    def forward(self, x):
        logdet = 0
        a, b = x.chunk(2, dim=1)
        for net in self.nets:
            s, t = net(a).chunk(2, dim=1)
            s = torch.tanh(s)
            a, b = b * torch.exp(s) + t, a
            logdet = logdet + s.sum(dim=1)
        z = torch.cat([a, b], dim=1)
        return (0.5 * z.pow(2).sum(dim=1) - logdet).mean()


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = nn.Sequential(*[m for a, b in ((3, 64), (64, 128), (128, 512)) for m in (nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())])
        self.head = nn.Sequential(nn.Linear(512, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.4), nn.Linear(256, 40))

    def forward(self, points):
        return self.head(torch.max(self.local(points.transpose(2, 1)), 2)[0])


class TabTransformer(nn.Module):
    def __init__(self, columns=8, width=32):
        super().__init__()
        self.embeds = nn.ModuleList(nn.Embedding(100, width) for _ in range(columns))
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 64, batch_first=True), 2)
        self.head = nn.Sequential(nn.Linear(columns * width + 5, 64), nn.SELU(), nn.Linear(64, 2))

    def forward(self, categories, numbers):
        x = torch.stack([e(categories[:, i]) for i, e in enumerate(self.embeds)], dim=1)
        return self.head(torch.cat([self.body(x).flatten(1), numbers], dim=1))


class HyperNetwork(nn.Module):
    """Weights of a layer that another network makes."""

    def __init__(self, width=48):
        super().__init__()
        self.width, self.make = width, nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, width * width + width))
        self.head = nn.Linear(width, 10)

    def forward(self, x, condition):
        made = self.make(condition)
        weight, bias = made[:, : self.width**2].view(-1, self.width, self.width), made[:, self.width**2 :]
        x = torch.baddbmm(bias.unsqueeze(1), x, weight).relu()
        return self.head(x)


class Equilibrium(nn.Module):
    """A fixed point without gradients, then one step with."""

    def __init__(self, width=128):
        super().__init__()
        self.inject, self.f, self.head = nn.Linear(64, width), nn.Sequential(nn.Linear(width, width), nn.Tanh()), nn.Linear(width, 10)

    def forward(self, x):
        u = self.inject(x)
        z = torch.zeros_like(u)
        with torch.no_grad():
            for _ in range(8):
                z = self.f(z + u)
        return self.head(self.f(z + u))


class Modulated(nn.Module):
    """StyleGAN's modulated convolution: a group for every sample."""

    def __init__(self, width=32):
        super().__init__()
        self.weight, self.style = nn.Parameter(torch.zeros(1, width, width, 3, 3)), nn.Linear(16, width)
        self.const, self.rgb = nn.Parameter(torch.zeros(1, width, 32, 32)), nn.Conv2d(width, 3, 1)

    def forward(self, w):
        b = w.shape[0]
        weight = self.weight * self.style(w).view(b, 1, -1, 1, 1)
        weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4], keepdim=True) + 1e-8)
        x = self.const.repeat(b, 1, 1, 1)
        x = F.conv2d(x.reshape(1, -1, 32, 32), weight.flatten(0, 1), padding=1, groups=b).view(b, -1, 32, 32)
        return F.softplus(-self.rgb(F.leaky_relu(x, 0.2))).mean()


def _long(*sizes):
    return torch.zeros(*sizes, dtype=torch.long)


def vae(batch):
    return Vae(), (torch.zeros(batch, 1, 28, 28),), {}


def fno(batch):
    return Fno(), (torch.zeros(batch, 256, 2), torch.zeros(batch, 256, 1)), {}


def dlrm(batch):
    return Dlrm(), (torch.zeros(batch, 13), _long(batch, 3, 8), torch.zeros(batch)), {}


def deep_fm(batch):
    return DeepFm(), (_long(batch, 10), torch.zeros(batch)), {}


def message_passing(batch):
    return MessagePassing(), (torch.zeros(100 * batch, 16), _long(400 * batch), _long(400 * batch)), {}


def graph_attention(batch):
    return GraphAttention(), (torch.zeros(200 * batch, 32), _long(1000 * batch), _long(1000 * batch)), {}


def conv3d(batch):
    return Conv3d(), (torch.zeros(batch, 1, 32, 32, 32),), {}


def video_frames(batch):
    return VideoFrames(), (torch.zeros(batch, 8, 3, 64, 64),), {}


def actor_critic(batch):
    return ActorCritic(), (torch.zeros(batch, 4, 84, 84), _long(batch), torch.zeros(batch), torch.zeros(batch), torch.zeros(batch)), {}


def diffusion(batch):
    return Diffusion(), (torch.zeros(batch, 3, 32, 32), torch.zeros(batch, 3, 32, 32), _long(batch)), {}


def generator(batch):
    return Generator(), (torch.zeros(batch, 100),), {}


def super_resolution(batch):
    return SuperResolution(), (torch.zeros(batch, 3, 48, 48), torch.zeros(batch, 3, 96, 96)), {}


def nerf(batch):
    return Nerf(), (torch.zeros(batch, 64, 3), torch.zeros(batch, 64), torch.zeros(batch, 3)), {}


def mlp_mixer(batch):
    return Mixer(), (torch.zeros(batch, 3, 64, 64),), {}


def squeeze_net(batch):
    return SqueezeNet(), (torch.zeros(batch, 3, 112, 112),), {}


def residual_scaled(batch):
    return ResidualScaled(), (torch.zeros(batch, 50, 256),), {}


def spatial_transformer(batch):
    return SpatialTransformer(), (torch.zeros(batch, 1, 28, 28),), {}


def normalizing_flow(batch):
    return Flow(), (torch.zeros(batch, 64),), {}


def point_net(batch):
    return PointNet(), (torch.zeros(batch, 512, 3),), {}


def tab_transformer(batch):
    return TabTransformer(), (_long(batch, 8), torch.zeros(batch, 5)), {}


def hypernetwork(batch):
    return HyperNetwork(), (torch.zeros(batch, 40, 48), torch.zeros(batch, 10)), {}


def deep_equilibrium(batch):
    return Equilibrium(), (torch.zeros(batch, 100, 64),), {}


def style_mod(batch):
    return Modulated(), (torch.zeros(batch, 16),), {}
