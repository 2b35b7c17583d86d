"""
EEG Conformer, BCI competition IV 2a (22 channels, 1000 samples, 4 classes)
conv module (EEGNet style, depthwise over the electrodes) + transformer encoder + fc
kaggle notebook version, mixup + segmentation&reconstruction done inside the model so that the
dataloader stays stupid
"""
import math
import torch
import torch.nn.functional as F
from torch import nn, Tensor
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

N_CH = 22
N_T = 1000
N_CLS = 4


class MaxNorm(nn.Module):
    # EEGNet max-norm constraint as a parametrization
    def __init__(self, limit, dim=(1, 2, 3)):
        super().__init__()
        self.limit, self.dim = limit, dim

    def forward(self, w):
        n = w.pow(2).sum(dim=self.dim, keepdim=True).add(1e-12).sqrt()
        return w * (n.clamp(max=self.limit) / n)


class PatchEmbedding(nn.Module):
    def __init__(self, emb_size=40, k=40, D=4):
        super().__init__()
        # three temporal branches, different kernel lengths (alpha / beta / gamma ...)
        self.temporal = nn.ModuleList([
            nn.Conv2d(1, k, (1, ks), padding=(0, ks // 2), bias=False) for ks in (15, 31, 63)
        ])
        self.bn_t = nn.BatchNorm2d(3 * k)
        self.spatial = nn.Conv2d(3 * k, 3 * k * D, (N_CH, 1), groups=3 * k, bias=False)
        parametrize.register_parametrization(self.spatial, 'weight', MaxNorm(1.0))
        self.shallownet = nn.Sequential(
            nn.BatchNorm2d(3 * k * D),
            nn.ELU(inplace=True),
            nn.AvgPool2d((1, 8)),
            nn.Dropout(0.5),
            nn.Conv2d(3 * k * D, 3 * k * D, (1, 17), padding=(0, 8), groups=3 * k * D, bias=False),  # separable
            nn.Conv2d(3 * k * D, emb_size, 1, bias=False),
            nn.BatchNorm2d(emb_size),
            nn.ELU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([c(x) for c in self.temporal], dim=1)
        x = self.bn_t(x)
        x = self.spatial(x)
        x = self.shallownet(x)
        return x.squeeze(2).transpose(1, 2)       # b e 1 n -> b n e


class RelPosAttention(nn.Module):
    """transformer-xl style, with the pad/reshape shift"""
    def __init__(self, d, heads, drop):
        super().__init__()
        self.h, self.dk = heads, d // heads
        self.qkv = nn.Linear(d, 3 * d)
        self.pos = nn.Linear(d, d, bias=False)
        self.u = nn.Parameter(torch.zeros(heads, self.dk))
        self.v = nn.Parameter(torch.zeros(heads, self.dk))
        self.drop = nn.Dropout(drop)
        self.out = nn.Linear(d, d)
        nn.init.xavier_uniform_(self.u)
        nn.init.xavier_uniform_(self.v)

    @staticmethod
    def shift(x):
        b, h, t, p = x.shape
        x = F.pad(x, (1, 0)).view(b, h, p + 1, t)[:, :, 1:]
        return x.view(b, h, t, p)[..., :t]

    def forward(self, x, pe):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, self.dk).unbind(2)
        p = self.pos(pe).view(1, -1, self.h, self.dk)
        ac = torch.einsum('bihd,bjhd->bhij', q + self.u, k)
        bd = torch.einsum('bihd,xjhd->bhij', q + self.v, p)
        att = (ac + self.shift(bd)) / math.sqrt(self.dk)
        att = self.drop(att.softmax(-1))
        return self.out(torch.einsum('bhij,bjhd->bihd', att, v).reshape(b, t, d))


class ConvModule(nn.Module):
    def __init__(self, d, ks=31, drop=0.1):
        super().__init__()
        self.ln = nn.LayerNorm(d)
        self.pw1 = weight_norm(nn.Conv1d(d, 2 * d, 1))
        self.dw = nn.Conv1d(d, d, ks, padding=ks // 2, groups=d)
        self.gn = nn.GroupNorm(1, d)
        self.pw2 = weight_norm(nn.Conv1d(d, d, 1))
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        y = self.ln(x).transpose(1, 2)
        y = F.glu(self.pw1(y), dim=1)
        y = F.silu(self.gn(self.dw(y)), inplace=True)
        return self.drop(self.pw2(y)).transpose(1, 2)


def ffn(d, mult=4, drop=0.1):
    return nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d * mult), nn.SiLU(inplace=True), nn.Dropout(drop),
                         nn.Linear(d * mult, d), nn.Dropout(drop))


class ConformerBlock(nn.Module):
    def __init__(self, d, heads, drop=0.1, p_skip=0.0):
        super().__init__()
        self.ff1, self.ff2 = ffn(d, drop=drop), ffn(d, drop=drop)
        self.ln_att = nn.LayerNorm(d)
        self.att = RelPosAttention(d, heads, drop)
        self.conv = ConvModule(d, drop=drop)
        self.ln = nn.LayerNorm(d)
        self.p_skip = p_skip

    def droppath(self, y):
        if not self.training or self.p_skip == 0.:
            return y
        keep = 1 - self.p_skip
        return y * torch.empty(y.shape[0], 1, 1, device=y.device).bernoulli_(keep).div_(keep)

    def forward(self, x, pe):
        x = x + 0.5 * self.droppath(self.ff1(x))
        x = x + self.droppath(self.att(self.ln_att(x), pe))
        x = x + self.droppath(self.conv(x))
        x = x + 0.5 * self.droppath(self.ff2(x))
        return self.ln(x)


class Model(nn.Module):
    def __init__(self, d=128, depth=6, heads=8, alpha=0.4, n_seg=8):
        super().__init__()
        self.alpha, self.n_seg = alpha, n_seg
        self.patch = PatchEmbedding(emb_size=d)
        n_tok = N_T // 8
        pos = torch.arange(n_tok - 1, -n_tok, -1.0).unsqueeze(1)
        div = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
        pe = torch.zeros(2 * n_tok - 1, d)
        pe[:, 0::2], pe[:, 1::2] = torch.sin(pos * div), torch.cos(pos * div)
        self.register_buffer('pe', pe)
        self.blocks = nn.ModuleList([ConformerBlock(d, heads, 0.2, 0.1 * i / depth) for i in range(depth)])
        self.pool = nn.Linear(d, 1)
        self.head = nn.Sequential(nn.Linear(2 * d, 64), nn.ELU(), nn.Dropout(0.3), nn.Linear(64, N_CLS))
        # running per-electrode statistics (no batchnorm on raw signals)
        self.register_buffer('mu', torch.zeros(1, N_CH, 1))
        self.register_buffer('sd', torch.ones(1, N_CH, 1))

    @torch.no_grad()
    def standardize(self, x):
        if self.training:
            self.mu.lerp_(x.mean((0, 2), keepdim=True), 0.01)
            self.sd.lerp_(x.std((0, 2), keepdim=True), 0.01)
        return (x - self.mu) / (self.sd + 1e-6)

    @torch.no_grad()
    def augment(self, x, y):
        B = x.shape[0]
        # mixup, one lambda per trial, Kumaraswamy(a, a) instead of Beta(a, a), it has a closed form
        u = torch.rand(B, device=x.device)
        lam = (1 - (1 - u) ** (1 / self.alpha)) ** (1 / self.alpha)
        lam = torch.maximum(lam, 1 - lam)
        perm = torch.randperm(B, device=x.device)
        x = lam.view(-1, 1, 1) * x + (1 - lam).view(-1, 1, 1) * x[perm]
        # S&R: every segment from a random trial of the batch, 10% of the segments
        seg = x.view(B, N_CH, self.n_seg, -1)
        other = seg[torch.randperm(B, device=x.device)]
        swap = torch.rand(B, 1, self.n_seg, 1, device=x.device) < 0.1
        x = torch.where(swap, other, seg).reshape(B, N_CH, N_T)
        # electrode dropout
        x = F.dropout1d(x, 0.05)
        return x, y[perm], lam

    def forward(self, eeg, label):
        x = self.standardize(eeg)
        y2, lam = label, torch.ones_like(label, dtype=x.dtype)
        if self.training:
            x, y2, lam = self.augment(x, label)
        x = self.patch(x.unsqueeze(1))
        for blk in self.blocks:
            x = blk(x, self.pe)
        w = self.pool(x).softmax(dim=1)
        feat = torch.cat([(w * x).sum(1), x.amax(1)], dim=-1)
        logits = self.head(feat)
        l1 = F.cross_entropy(logits, label, reduction='none', label_smoothing=0.05)
        l2 = F.cross_entropy(logits, y2, reduction='none', label_smoothing=0.05)
        return (lam * l1 + (1 - lam) * l2).mean(), logits


def inputs(batch):
    return torch.randn(batch, N_CH, N_T), torch.randint(0, N_CLS, (batch,))
