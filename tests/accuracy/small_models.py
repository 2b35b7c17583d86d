"""Models of the zoo that no library brings: written the way users write them."""
import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self, inputs=784, hidden=2048, classes=10):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(0.2),
                                 nn.Linear(hidden, classes))

    def forward(self, x):
        return self.net(x)


class DoubleConv(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
                         nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class UNet(nn.Module):
    """The classic one: four levels down, four up, skips joined by concatenation."""

    def __init__(self, channels=3, classes=21, width=64):
        super().__init__()
        w = [width * 2**i for i in range(5)]
        self.inc = DoubleConv(channels, w[0])
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), DoubleConv(w[i], w[i + 1])) for i in range(4))
        self.up = nn.ModuleList(nn.ConvTranspose2d(w[i + 1], w[i], 2, stride=2) for i in reversed(range(4)))
        self.conv = nn.ModuleList(DoubleConv(w[i + 1], w[i]) for i in reversed(range(4)))
        self.outc = nn.Conv2d(w[0], classes, 1)

    def forward(self, x):
        skips = [self.inc(x)]
        for down in self.down:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up, conv in zip(self.up, self.conv):
            x = conv(torch.cat([skips.pop(), up(x)], dim=1))
        return self.outc(x)


class LstmLanguageModel(nn.Module):
    def __init__(self, vocabulary=10000, embedding=512, hidden=1024, layers=2, dropout=0.2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True, dropout=dropout)
        self.output = nn.Linear(hidden, vocabulary)

    def forward(self, input_ids):
        x = self.dropout(self.embedding(input_ids))
        x, _ = self.lstm(x)
        return self.output(self.dropout(x))


class Expert(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class MixtureOfExperts(nn.Module):
    """Top-k routing in the dense form: every expert sees every token and the gates of the others are zero, so that no
    shape depends on data."""

    def __init__(self, width, hidden, experts=4, top_k=2):
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width, hidden) for _ in range(experts))

    def forward(self, x):
        scores = F.softmax(self.router(x), dim=-1)
        top, index = torch.topk(scores, self.top_k, dim=-1)
        top = top / top.sum(dim=-1, keepdim=True)
        gates = torch.zeros_like(scores).scatter(-1, index, top)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            out = out + gates[..., i : i + 1] * expert(x)
        return out


class MoeBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.moe = MixtureOfExperts(width, 4 * width)

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, s, w))
        return x + self.moe(self.norm2(x))


class MoeLanguageModel(nn.Module):
    def __init__(self, vocabulary=16000, width=512, heads=8, layers=4):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(MoeBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, input_ids):
        x = self.tokens(input_ids) + self.positions(torch.arange(input_ids.shape[1], device=input_ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
