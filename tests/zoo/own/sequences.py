"""Recurrence, attention and conditional random fields by hand; language models as in courses."""
import math

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["lstm_tagger", "crf", "gru_seq2seq", "encoder_layers", "transformer", "mini_gpt", "rotary_gpt", "mixture", "linear_attention", "weight_norm_tcn", "conv_audio", "perceiver"]


class LstmTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5000, 128, padding_idx=0)
        self.lstm = nn.LSTM(128, 128, num_layers=2, bidirectional=True, batch_first=True, dropout=0.3)
        self.out = nn.Linear(256, 17)

    def forward(self, ids):
        x, _ = self.lstm(self.embed(ids))
        return self.out(F.dropout(x, 0.3, self.training))


class Crf(nn.Module):
    """The forward algorithm in a loop over time, in a method of its own."""

    def __init__(self, tags=9):
        super().__init__()
        self.embed, self.mix = nn.Embedding(3000, 64), nn.Conv1d(64, 64, 3, padding=1)
        self.emit, self.transitions = nn.Linear(64, tags), nn.Parameter(torch.zeros(tags, tags))

    def partition(self, emissions):
        score = emissions[:, 0]
        for t in range(1, emissions.shape[1]):
            score = torch.logsumexp(score.unsqueeze(2) + self.transitions + emissions[:, t].unsqueeze(1), dim=1)
        return torch.logsumexp(score, dim=1)

    def gold(self, emissions, tags):
        score = emissions[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, emissions.shape[1]):
            score = score + self.transitions[tags[:, t - 1], tags[:, t]] + emissions[:, t].gather(1, tags[:, t : t + 1]).squeeze(1)
        return score

    def forward(self, ids, tags):
        emissions = self.emit(F.relu(self.mix(self.embed(ids).transpose(1, 2)).transpose(1, 2)))
        return (self.partition(emissions) - self.gold(emissions, tags)).mean()


class Seq2Seq(nn.Module):
    """Teacher forcing with additive attention."""

    def __init__(self, width=128, words=2000):
        super().__init__()
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.encoder, self.cell = nn.GRU(width, width, batch_first=True), nn.GRUCell(2 * width, width)
        self.query, self.keys, self.score = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)
        self.out = nn.Linear(width, words)

    def attend(self, state, keys, memory):
        weights = self.score(torch.tanh(self.query(state).unsqueeze(1) + keys)).softmax(dim=1)
        return (weights * memory).sum(dim=1)

    def forward(self, source, target):
        memory, last = self.encoder(self.source(source))
        keys, state, outputs = self.keys(memory), last[-1], []
        for word in self.target(target).unbind(dim=1):
            state = self.cell(torch.cat([word, self.attend(state, keys, memory)], dim=-1), state)
            outputs.append(self.out(state))
        return torch.stack(outputs, dim=1)


class EncoderLayers(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.embed = nn.Embedding(4000, width)
        self.position = nn.Parameter(torch.zeros(1, 128, width))
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True), 3, enable_nested_tensor=False)
        self.head = nn.Linear(width, 12)

    def forward(self, ids):
        x = self.embed(ids) + self.position[:, : ids.shape[1]]
        return self.head(self.encoder(x).mean(dim=1))


class Whole(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.embed = nn.Embedding(3000, width)
        self.body = nn.Transformer(width, 4, 2, 2, 2 * width, dropout=0.1, batch_first=True)
        self.head = nn.Linear(width, 3000)
        self.scale = math.sqrt(width)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        x = self.body(self.embed(source) * self.scale, self.embed(target) * self.scale, tgt_mask=mask)
        return self.head(x)


class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.qkv(x).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        att = F.dropout(F.softmax(att, dim=-1), 0.1, self.training)
        y = (att @ v).transpose(1, 2).contiguous().view(b, t, c)
        return self.out(y)


class MiniGpt(nn.Module):
    def __init__(self, width=128, layers=3, words=2000, length=128):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(nn.ModuleDict(dict(n1=nn.LayerNorm(width), a=CausalSelfAttention(width, 4, length), n2=nn.LayerNorm(width),
                                                       m=nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)))) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for b in self.blocks:
            x = x + b["a"](b["n1"](x))
            x = x + b["m"](b["n2"](x))
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    def forward(self, x):
        return self._norm(x.float()).type_as(x) * self.weight


def _rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class RotaryBlock(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.n1, self.n2 = RmsNorm(width), RmsNorm(width)
        self.q, self.kv, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * groups * self.size, bias=False), nn.Linear(width, width, bias=False)
        self.w1, self.w2, self.w3 = nn.Linear(width, 3 * width, bias=False), nn.Linear(3 * width, width, bias=False), nn.Linear(width, 3 * width, bias=False)

    def forward(self, x, cos, sin):
        h = self.n1(x)
        q = self.q(h).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        k, v = self.kv(h).unflatten(-1, (2, self.groups, self.size)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(_rotate(q, cos, sin), _rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        h = self.n2(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class RotaryGpt(nn.Module):
    def __init__(self, width=128, layers=3, words=4000):
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.layers = nn.ModuleList(RotaryBlock(width, 4, 2) for _ in range(layers))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, words, bias=False)
        angle = torch.outer(torch.arange(256), 10000 ** (-torch.arange(0, 16) / 16))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids):
        x = self.tokens(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


class Mixture(nn.Module):
    """Dense top-k routing with a load-balancing term."""

    def __init__(self, width=128, experts=4):
        super().__init__()
        self.embed, self.gate = nn.Embedding(2000, width), nn.Linear(width, experts)
        self.up, self.down = nn.Parameter(torch.zeros(experts, width, 2 * width)), nn.Parameter(torch.zeros(experts, 2 * width, width))
        self.head = nn.Linear(width, 2000)

    def forward(self, ids, labels):
        x = self.embed(ids)
        probabilities = self.gate(x).softmax(-1)
        top, index = probabilities.topk(2, dim=-1)
        gates = torch.zeros_like(probabilities).scatter(-1, index, top / top.sum(-1, keepdim=True))
        y = torch.einsum("btw,ewh->bteh", x, self.up)
        y = torch.einsum("bteh,ehw->btew", F.relu(y), self.down)
        x = x + (y * gates.unsqueeze(-1)).sum(dim=2)
        balance = (probabilities.mean(dim=(0, 1)) * gates.gt(0).float().mean(dim=(0, 1))).sum()
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten()) + 0.01 * balance


class LinearAttention(nn.Module):
    def __init__(self, width=128, heads=4):
        super().__init__()
        self.heads, self.embed = heads, nn.Embedding(2000, width)
        self.qkv, self.out, self.head = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 2000)

    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        memory = torch.einsum("bthd,bthe->bthde", k, v).cumsum(dim=1)
        y = torch.einsum("bthd,bthde->bthe", q, memory) / (torch.einsum("bthd,bthd->bth", q, k.cumsum(dim=1)).unsqueeze(-1) + 1e-6)
        return self.head(x + self.out(y.flatten(2)))


class WeightNormTcn(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.convs = nn.ModuleList(norm(nn.Conv1d(16 if i == 0 else width, width, 3, dilation=2**i)) for i in range(4))
        self.out = nn.Linear(width, 16)

    def forward(self, x):
        for i, conv in enumerate(self.convs):
            y = F.relu(conv(F.pad(x, (2 * 2**i, 0))))
            x = y if y.shape != x.shape else x + y
        return self.out(x[:, :, -1])


class ConvAudio(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(1, 64, 10, stride=5), nn.GroupNorm(1, 64), nn.GELU(), nn.Conv1d(64, 128, 8, stride=4), nn.GELU(), nn.Conv1d(128, 128, 4, stride=2), nn.GELU())
        self.gru, self.head = nn.GRU(128, 128, batch_first=True), nn.Linear(128, 30)

    def forward(self, wave):
        x = self.front(wave.unsqueeze(1)).transpose(1, 2)
        x, _ = self.gru(x)
        return self.head(x)


class Perceiver(nn.Module):
    def __init__(self, width=128, latents=32):
        super().__init__()
        self.latents = nn.Parameter(torch.zeros(latents, width))
        self.read, self.embed = nn.MultiheadAttention(width, 4, batch_first=True), nn.Linear(20, width)
        self.think = nn.TransformerEncoderLayer(width, 4, 256, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.embed(x)
        z, _ = self.read(self.latents.expand(x.shape[0], -1, -1), x, x)
        return self.head(self.think(z).mean(1))


def _ids(batch, length):
    return torch.zeros(batch, length, dtype=torch.long)


def lstm_tagger(batch):
    return LstmTagger(), (_ids(batch, 60),), {}


def crf(batch):
    return Crf(), (_ids(batch, 24), _ids(batch, 24)), {}


def gru_seq2seq(batch):
    return Seq2Seq(), (_ids(batch, 20), _ids(batch, 16)), {}


def encoder_layers(batch):
    return EncoderLayers(), (_ids(batch, 100),), {}


def transformer(batch):
    return Whole(), (_ids(batch, 40), _ids(batch, 30)), {}


def mini_gpt(batch):
    return MiniGpt(), (_ids(batch, 100), _ids(batch, 100)), {}


def rotary_gpt(batch):
    return RotaryGpt(), (_ids(batch, 120),), {}


def mixture(batch):
    return Mixture(), (_ids(batch, 64), _ids(batch, 64)), {}


def linear_attention(batch):
    return LinearAttention(), (_ids(batch, 64),), {}


def weight_norm_tcn(batch):
    return WeightNormTcn(), (torch.zeros(batch, 16, 500),), {}


def conv_audio(batch):
    return ConvAudio(), (torch.zeros(batch, 16000),), {}


def perceiver(batch):
    return Perceiver(), (torch.zeros(batch, 300, 20),), {}
