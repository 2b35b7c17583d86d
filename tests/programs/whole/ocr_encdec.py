"""
line OCR: conv tower -> transformer encoder over columns -> char decoder (teacher forcing)

stuff I tried: CTC (worse on handwriting), 2d pos enc (no change), pre-norm (much more stable)
"""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB = 112       # chars + specials
PAD, BOS, EOS = 0, 1, 2
IMG_H, IMG_W = 48, 320
MAXLEN = 40


def conv_bn(i, o, k=3, s=1, p=1):
    return nn.Sequential(nn.Conv2d(i, o, k, s, p, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.1, inplace=True))


class SE(nn.Module):
    def __init__(self, c, r=8):
        super().__init__()
        self.f1 = nn.Conv2d(c, c // r, 1)
        self.f2 = nn.Conv2d(c // r, c, 1)

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        s = torch.sigmoid(self.f2(F.relu_(self.f1(s))))
        return x * s


class ConvTower(nn.Module):
    """48 x 320 -> 3 x 80 -> columns"""

    def __init__(self, d):
        super().__init__()
        self.b1 = nn.Sequential(conv_bn(1, 48), conv_bn(48, 48), nn.MaxPool2d(2))
        self.b2 = nn.Sequential(conv_bn(48, 96), conv_bn(96, 96), SE(96), nn.MaxPool2d(2))
        self.b3 = nn.Sequential(conv_bn(96, 192), conv_bn(192, 192), SE(192), nn.MaxPool2d((2, 1)))
        self.b4 = nn.Sequential(conv_bn(192, 256), SE(256), nn.MaxPool2d((2, 1)))
        self.sc3 = nn.Conv2d(96, 192, 1)
        self.proj = nn.Linear(256 * 3, d)
        self.drop = nn.Dropout2d(0.1)

    def forward(self, x):
        x = self.b1(x)
        x = self.b2(x)
        y = self.b3(x)
        y = y + F.avg_pool2d(self.sc3(x), (2, 1))
        y = self.drop(self.b4(y))
        y = y.permute(0, 3, 1, 2).flatten(2)   # B, W', C*H'
        return self.proj(y)


class Attn(nn.Module):
    def __init__(self, d, h, kvd=None, p=0.1):
        super().__init__()
        self.h = h
        self.p = p
        self.q = nn.Linear(d, d)
        self.kv = nn.Linear(kvd or d, 2 * d)
        self.o = nn.Linear(d, d)

    def forward(self, x, mem=None, bias=None, causal=False):
        mem = x if mem is None else mem
        B, T, D = x.shape
        S = mem.size(1)
        q = self.q(x).view(B, T, self.h, -1).transpose(1, 2)
        k, v = self.kv(mem).chunk(2, dim=-1)
        k = k.reshape(B, S, self.h, -1).transpose(1, 2)
        v = v.reshape(B, S, self.h, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal,
                                           dropout_p=self.p if self.training else 0.0)
        return self.o(y.transpose(1, 2).reshape(B, T, D))


class FF(nn.Sequential):
    def __init__(self, d, m=4, p=0.1):
        super().__init__(nn.Linear(d, d * m), nn.GELU(), nn.Dropout(p), nn.Linear(d * m, d), nn.Dropout(p))


class EncBlock(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.n1 = nn.LayerNorm(d)
        self.a = Attn(d, h)
        self.n2 = nn.LayerNorm(d)
        self.f = FF(d)
        # local mixing helps a lot, strokes are local
        self.dw = nn.Conv1d(d, d, 5, padding=2, groups=d)

    def forward(self, x):
        x = x + self.a(self.n1(x))
        x = x + self.dw(x.transpose(1, 2)).transpose(1, 2)
        return x + self.f(self.n2(x))


class DecBlock(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.n1, self.n2, self.n3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.sa = Attn(d, h)
        self.ca = Attn(d, h)
        self.f = FF(d)

    def forward(self, x, mem, bias):
        x = x + self.sa(self.n1(x), bias=bias)
        x = x + self.ca(self.n2(x), mem)
        return x + self.f(self.n3(x))


def sincos(n, d):
    pe = torch.zeros(n, d)
    t = torch.arange(n).float().unsqueeze(1)
    w = torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d))
    pe[:, 0::2] = torch.sin(t * w)
    pe[:, 1::2] = torch.cos(t * w)
    return pe


class Model(nn.Module):
    def __init__(self, d=288, h=6, n_enc=4, n_dec=3):
        super().__init__()
        self.cnn = ConvTower(d)
        self.enc = nn.ModuleList([EncBlock(d, h) for _ in range(n_enc)])
        self.enc_norm = nn.LayerNorm(d)
        self.tok = nn.Embedding(VOCAB, d, padding_idx=PAD)
        nn.init.normal_(self.tok.weight, std=d ** -0.5)
        self.dec = nn.ModuleList([DecBlock(d, h) for _ in range(n_dec)])
        self.dec_norm = nn.LayerNorm(d)
        self.out = nn.Linear(d, VOCAB)
        self.out.weight = self.tok.weight      # tied
        self.register_buffer("pe", sincos(128, d), persistent=False)
        self.scale = math.sqrt(d)
        self.len_head = nn.Linear(d, 1)        # aux: predict text length, stabilises attention early on

    def encode(self, img):
        img = (img - img.mean((1, 2, 3), keepdim=True)) / (img.std((1, 2, 3), keepdim=True) + 1e-5)
        x = self.cnn(img)
        x = F.dropout(x + self.pe[: x.size(1)], 0.1, self.training)
        for blk in self.enc:
            x = blk(x)
        return self.enc_norm(x)

    def decode(self, ids, mem):
        T = ids.size(1)
        # causal + pad mask as one additive bias
        causal = torch.triu(torch.full((T, T), float("-inf"), device=ids.device), 1)
        padm = torch.zeros_like(ids, dtype=mem.dtype).masked_fill(ids == PAD, -1e4)
        bias = causal[None, None] + padm[:, None, None, :]
        # word-dropout on the teacher forced inputs, otherwise it becomes a pure LM
        if self.training:
            keep = torch.rand_like(ids, dtype=torch.float) > 0.08
            ids = torch.where(keep | (ids == BOS), ids, torch.full_like(ids, 3))
        x = self.tok(ids) * self.scale + self.pe[:T]
        x = F.dropout(x, 0.1, self.training)
        for blk in self.dec:
            x = blk(x, mem, bias)
        return self.out(self.dec_norm(x))

    def forward(self, img, text):
        mem = self.encode(img)
        inp, tgt = text[:, :-1], text[:, 1:]
        logits = self.decode(inp, mem)
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), tgt.reshape(-1), ignore_index=PAD, label_smoothing=0.1)
        length = (tgt != PAD).sum(1).float() / MAXLEN
        len_loss = F.smooth_l1_loss(self.len_head(mem.mean(1)).squeeze(-1), length)
        with torch.no_grad():
            hit = (logits.argmax(-1) == tgt) & (tgt != PAD)
            acc = hit.sum() / (tgt != PAD).sum().clamp(min=1)
        return loss + 0.1 * len_loss, acc, logits.detach()


def inputs(batch):
    img = torch.rand(batch, 1, IMG_H, IMG_W)
    text = torch.randint(4, VOCAB, (batch, MAXLEN + 1))
    text[:, 0] = BOS
    text[:, 30:] = PAD
    text[:, 29] = EOS
    return img, text
