"""What lists hold that no line of the file fills, and frames that no module of the file has. Each function gives a module and what it is called with."""
import torch
from torch import nn


class SwishFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return gradient * (s * (1 + x * (1 - s)))


class Swish(nn.Module):
    def forward(self, x):
        return SwishFunction.apply(x)


class Layer(nn.Module):
    """As of a YOLO: convolution, norm, activation."""

    def __init__(self, inside, width, stride=1, act=None):
        super().__init__()
        self.conv = nn.Conv2d(inside, width, 3, stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.act = act or nn.SiLU(inplace=True)

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Join(nn.Module):
    def forward(self, x):
        return torch.cat(x, 1)


class Detect(nn.Module):
    def __init__(self, classes, widths):
        super().__init__()
        self.outputs = classes + 5
        self.m = nn.ModuleList(nn.Conv2d(w, 3 * self.outputs, 1) for w in widths)

    def forward(self, x):
        z = []
        for i in range(len(self.m)):
            x[i] = self.m[i](x[i])
            b, _, h, w = x[i].shape
            x[i] = x[i].view(b, 3, self.outputs, h, w).permute(0, 1, 3, 4, 2).contiguous()
            z.append(x[i].view(b, -1, self.outputs).sigmoid())
        return torch.cat(z, 1), x


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        rows = [(-1, Layer(3, 16, 2)), (-1, Layer(16, 32, 2)), (-1, Layer(32, 64, 2)), (-1, Layer(64, 64)), (-1, nn.Upsample(None, 2, "nearest")), ([-1, 1], Join()), (-1, Layer(96, 32)), (-1, Layer(32, 64, 2)),
                ([-1, 3], Join()), (-1, Layer(128, 64)), ([6, 9], Detect(20, (32, 64)))]
        self.sources = [f for f, _ in rows]
        self.model = nn.Sequential(*[m for _, m in rows])
        self.save = sorted({j for f in self.sources if isinstance(f, list) for j in f if j != -1})

    def forward(self, x):
        y = []
        for i, (f, m) in enumerate(zip(self.sources, self.model)):
            if f != -1:
                x = [x if j == -1 else y[j] for j in f]
            x = m(x)
            y.append(x if i in self.save else None)
        return x


class Sublayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, query, key, value, mask=None):
        q, k, v = self.qkv(query).chunk(3, dim=-1)
        scores = torch.softmax(q @ k.transpose(-2, -1) / 8, dim=-1)
        return self.out(scores @ v)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = Attention(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.first, self.second = Sublayer(width), Sublayer(width)

    def forward(self, x, mask):
        x = self.first(x, lambda y: self.attention.forward(y, y, y, mask=mask))
        return self.second(x, self.feed_forward)


class Encoder(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.stem, self.swish, self.head = nn.Linear(width, width), Swish(), nn.Linear(width, 10)

    def forward(self, x):
        x = self.swish(self.stem(x))
        for block in self.blocks:
            x = block.forward(x, None)
        return self.head(x.mean(1))


def detector(batch):
    return Detector(), (torch.rand(batch, 3, 64, 64),)


def handed(batch):
    return Encoder(), (torch.rand(batch, 40, 64),)


class States(nn.Module):
    """As a backbone of transformers that hands on all its states."""

    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(Layer(3 if i == 0 else width, width, 2 if i == 1 else 1, nn.ReLU()) for i in range(layers))

    def forward(self, x):
        states = ()
        for layer in self.layers:
            x = layer(x)
            states = states + (x,)
        return {"states": states}


class Segmenter(nn.Module):
    def __init__(self, width=16, classes=5):
        super().__init__()
        self.backbone = States(width, 6)
        self.head = nn.Sequential(nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.Conv2d(2 * width, classes, 1))

    def forward(self, x):
        outputs = self.backbone(x)
        every_state = outputs["states"]
        return self.head(every_state[-1])


def listed_states(batch):
    return Segmenter(), (torch.rand(batch, 3, 64, 64),)
