"""
Dual-encoder image/text contrastive pretraining with a momentum teacher and
feature queues (in the spirit of CLIP + ALBEF's ITC part).
"""
import copy
import math
from collections import OrderedDict
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class VisionCfg:
    image_size: int = 128
    patch_size: int = 16
    width: int = 320
    layers: int = 6
    heads: int = 5


@dataclass
class TextCfg:
    context_length: int = 48
    vocab_size: int = 16384
    width: int = 256
    layers: int = 6
    heads: int = 4


@dataclass
class ClipCfg:
    embed_dim: int = 256
    vision: VisionCfg = field(default_factory=VisionCfg)
    text: TextCfg = field(default_factory=TextCfg)
    queue_size: int = 2048
    momentum: float = 0.995
    alpha: float = 0.4


class QuickGELU(nn.Module):
    def forward(self, x: torch.Tensor):
        return x * torch.sigmoid(1.702 * x)


class ResidualAttentionBlock(nn.Module):
    def __init__(self, d_model: int, n_head: int, attn_mask: torch.Tensor = None):
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, n_head)
        self.ln_1 = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(OrderedDict([
            ("c_fc", nn.Linear(d_model, d_model * 4)),
            ("gelu", QuickGELU()),
            ("c_proj", nn.Linear(d_model * 4, d_model)),
        ]))
        self.ln_2 = nn.LayerNorm(d_model)
        self.register_buffer("attn_mask", attn_mask, persistent=False)

    def attention(self, x):
        return self.attn(x, x, x, need_weights=False, attn_mask=self.attn_mask)[0]

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x


class VisionTransformer(nn.Module):
    def __init__(self, cfg: VisionCfg, output_dim: int):
        super().__init__()
        scale = cfg.width ** -0.5
        n_patches = (cfg.image_size // cfg.patch_size) ** 2
        self.conv1 = nn.Conv2d(3, cfg.width, cfg.patch_size, stride=cfg.patch_size, bias=False)
        self.class_embedding = nn.Parameter(scale * torch.randn(cfg.width))
        self.positional_embedding = nn.Parameter(scale * torch.randn(n_patches + 1, cfg.width))
        self.ln_pre = nn.LayerNorm(cfg.width)
        self.transformer = nn.Sequential(
            *[ResidualAttentionBlock(cfg.width, cfg.heads) for _ in range(cfg.layers)])
        self.ln_post = nn.LayerNorm(cfg.width)
        self.proj = nn.Parameter(scale * torch.randn(cfg.width, output_dim))

    def forward(self, x):
        x = self.conv1(x)
        x = x.reshape(x.shape[0], x.shape[1], -1).permute(0, 2, 1)
        cls = self.class_embedding.to(x.dtype) + torch.zeros(
            x.shape[0], 1, x.shape[-1], dtype=x.dtype, device=x.device)
        x = torch.cat([cls, x], dim=1) + self.positional_embedding.to(x.dtype)
        x = self.ln_pre(x).permute(1, 0, 2)   # NLD -> LND
        x = self.transformer(x).permute(1, 0, 2)
        return self.ln_post(x[:, 0, :]) @ self.proj


class TextTransformer(nn.Module):
    def __init__(self, cfg: TextCfg, output_dim: int):
        super().__init__()
        mask = torch.full((cfg.context_length, cfg.context_length), float("-inf")).triu_(1)
        self.token_embedding = nn.Embedding(cfg.vocab_size, cfg.width)
        self.positional_embedding = nn.Parameter(torch.empty(cfg.context_length, cfg.width))
        self.transformer = nn.Sequential(
            *[ResidualAttentionBlock(cfg.width, cfg.heads, mask) for _ in range(cfg.layers)])
        self.ln_final = nn.LayerNorm(cfg.width)
        self.text_projection = nn.Parameter(torch.empty(cfg.width, output_dim))
        nn.init.normal_(self.token_embedding.weight, std=0.02)
        nn.init.normal_(self.positional_embedding, std=0.01)
        nn.init.normal_(self.text_projection, std=cfg.width ** -0.5)

    def forward(self, text):
        x = self.token_embedding(text) + self.positional_embedding
        x = self.transformer(x.permute(1, 0, 2)).permute(1, 0, 2)
        x = self.ln_final(x)
        # EOT is the highest id in every caption
        eot = text.argmax(dim=-1)
        x = x[torch.arange(x.shape[0], device=x.device), eot]
        return x @ self.text_projection


class Model(nn.Module):
    def __init__(self, cfg: ClipCfg = None):
        super().__init__()
        cfg = cfg or ClipCfg()
        self.cfg = cfg
        self.visual = VisionTransformer(cfg.vision, cfg.embed_dim)
        self.text = TextTransformer(cfg.text, cfg.embed_dim)
        self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

        self.visual_m = copy.deepcopy(self.visual)
        self.text_m = copy.deepcopy(self.text)
        for m in (self.visual_m, self.text_m):
            m.requires_grad_(False)

        self.register_buffer("image_queue", F.normalize(torch.randn(cfg.embed_dim, cfg.queue_size), dim=0))
        self.register_buffer("text_queue", F.normalize(torch.randn(cfg.embed_dim, cfg.queue_size), dim=0))

    @property
    def _pairs(self):
        return [(self.visual, self.visual_m), (self.text, self.text_m)]

    @torch.no_grad()
    def _momentum_update(self):
        for online, teacher in self._pairs:
            for p, p_m in zip(online.parameters(), teacher.parameters()):
                p_m.mul_(self.cfg.momentum).add_(p.detach(), alpha=1.0 - self.cfg.momentum)

    @torch.no_grad()
    def _enqueue(self, img_feat, txt_feat):
        # newest first; the oldest columns fall off the end
        K = self.cfg.queue_size
        self.image_queue.copy_(torch.cat([img_feat.t(), self.image_queue], dim=1)[:, :K])
        self.text_queue.copy_(torch.cat([txt_feat.t(), self.text_queue], dim=1)[:, :K])

    def forward(self, image, text):
        img = F.normalize(self.visual(image), dim=-1)
        txt = F.normalize(self.text(text), dim=-1)
        scale = self.logit_scale.clamp(max=math.log(100.0)).exp()

        with torch.no_grad():
            self._momentum_update()
            img_m = F.normalize(self.visual_m(image), dim=-1)
            txt_m = F.normalize(self.text_m(text), dim=-1)
            img_all = torch.cat([img_m.t(), self.image_queue.clone()], dim=1)
            txt_all = torch.cat([txt_m.t(), self.text_queue.clone()], dim=1)

            sim_i2t_m = scale * img_m @ txt_all
            sim_t2i_m = scale * txt_m @ img_all
            hard = torch.eye(sim_i2t_m.shape[0], sim_i2t_m.shape[1], device=image.device)
            a = self.cfg.alpha
            tgt_i2t = a * F.softmax(sim_i2t_m, dim=1) + (1 - a) * hard
            tgt_t2i = a * F.softmax(sim_t2i_m, dim=1) + (1 - a) * hard

        sim_i2t = scale * img @ txt_all
        sim_t2i = scale * txt @ img_all
        loss_i2t = -torch.sum(F.log_softmax(sim_i2t, dim=1) * tgt_i2t, dim=1).mean()
        loss_t2i = -torch.sum(F.log_softmax(sim_t2i, dim=1) * tgt_t2i, dim=1).mean()

        # plain in-batch CLIP term keeps the temperature honest
        logits = scale * img @ txt.t()
        labels = torch.arange(logits.shape[0], device=logits.device)
        loss_clip = 0.5 * (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels))

        self._enqueue(img_m, txt_m)
        return {
            "loss": 0.5 * (loss_i2t + loss_t2i) + loss_clip,
            "logits_per_image": logits.detach(),
            "logit_scale": scale.detach(),
        }


def inputs(batch):
    return torch.randn(batch, 3, 128, 128), torch.randint(1, 16384, (batch, 48))
