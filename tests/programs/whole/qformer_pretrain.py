"""BLIP-2 stage-1 style pretraining with a small ViT: ITC + ITM + image-grounded captioning."""
from typing import Optional, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F


class Config:
    image_size = 112
    patch_size = 14
    vision_width = 256
    vision_layers = 5
    hidden_size = 256
    num_layers = 4
    num_heads = 4
    cross_attention_freq = 2
    num_query = 24
    vocab_size = 6000
    max_text = 24
    embed_dim = 128
    pad_id, dec_id = 0, 2

    @property
    def num_patches(self):
        return (self.image_size // self.patch_size) ** 2


class MLP(nn.Module):
    def __init__(self, dim, ratio=4):
        super().__init__()
        self.fc1 = nn.Linear(dim, dim * ratio)
        self.fc2 = nn.Linear(dim * ratio, dim)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


class VisionBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = MLP(dim)

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class ViT(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        w = config.vision_width
        self.patch = nn.Conv2d(3, w, config.patch_size, config.patch_size, bias=False)
        self.cls = nn.Parameter(torch.randn(w) * w ** -0.5)
        self.pos = nn.Parameter(torch.randn(config.num_patches + 1, w) * w ** -0.5)
        self.blocks = nn.Sequential(*[VisionBlock(w, config.num_heads) for _ in range(config.vision_layers)])
        self.ln_post = nn.LayerNorm(w)

    def forward(self, pixels):
        x = self.patch(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], 1, -1), x], dim=1) + self.pos
        return self.ln_post(self.blocks(x))


class BertAttention(nn.Module):
    def __init__(self, config: Config, kv_dim: Optional[int] = None):
        super().__init__()
        d = config.hidden_size
        self.num_heads, self.head_dim = config.num_heads, d // config.num_heads
        self.query = nn.Linear(d, d)
        self.key = nn.Linear(kv_dim or d, d)
        self.value = nn.Linear(kv_dim or d, d)
        self.dense = nn.Linear(d, d)
        self.norm = nn.LayerNorm(d, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def transpose_for_scores(self, x):
        new_shape = x.size()[:-1] + (self.num_heads, self.head_dim)
        return x.view(*new_shape).permute(0, 2, 1, 3)

    def forward(self, hidden, mask=None, encoder_hidden=None):
        source = hidden if encoder_hidden is None else encoder_hidden
        q, k, v = (self.transpose_for_scores(f(s)) for f, s in
                   ((self.query, hidden), (self.key, source), (self.value, source)))
        ctx = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        ctx = ctx.permute(0, 2, 1, 3).flatten(2)
        return self.norm(self.dropout(self.dense(ctx)) + hidden)


class QFormerLayer(nn.Module):
    def __init__(self, config: Config, layer_idx: int):
        super().__init__()
        self.attention = BertAttention(config)
        self.has_cross = layer_idx % config.cross_attention_freq == 0
        if self.has_cross:
            self.crossattention = BertAttention(config, config.vision_width)
        self.ffn_text, self.ffn_query = MLP(config.hidden_size), MLP(config.hidden_size)
        self.norm_text, self.norm_query = (nn.LayerNorm(config.hidden_size, eps=1e-12) for _ in "tq")

    def forward(self, hidden, mask, image=None, query_length=0):
        hidden = self.attention(hidden, mask)
        outs = []
        if query_length > 0:
            q = hidden[:, :query_length]
            if self.has_cross:
                q = self.crossattention(q, encoder_hidden=image)
            outs.append(self.norm_query(q + self.ffn_query(q)))
        t = hidden[:, query_length:]
        if t.shape[1] > 0:
            outs.append(self.norm_text(t + self.ffn_text(t)))
        return torch.cat(outs, dim=1)


class QFormer(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.word = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_id)
        self.position = nn.Embedding(config.max_text, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=1e-12)
        self.layers = nn.ModuleList([QFormerLayer(config, i) for i in range(config.num_layers)])

    def forward(self, query=None, ids=None, image=None, causal=False):
        parts, n_q = [], 0
        if query is not None:
            n_q = query.shape[1]
            parts.append(query)
        n_t = 0 if ids is None else ids.shape[1]
        if ids is not None:
            parts.append(self.word(ids) + self.position.weight[:n_t])
        hidden = self.norm(torch.cat(parts, 1))

        keep = torch.ones(n_q + n_t, n_q + n_t, dtype=torch.bool, device=hidden.device)
        if causal:      # queries only see queries, text sees queries and its past
            keep = keep.tril()
            keep[:n_q, :n_q] = True
        keep = keep[None, None]
        if ids is not None:
            pad = F.pad(ids != self.config.pad_id, (n_q, 0), value=True)
            keep = keep & pad[:, None, None, :]
        for layer in self.layers:
            hidden = layer(hidden, keep, image, n_q)
        return hidden


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = config = Config()
        self.visual = ViT(config)
        self.qformer = QFormer(config)
        self.query_tokens = nn.Parameter(torch.zeros(1, config.num_query, config.hidden_size).normal_(std=0.02))
        self.vision_proj = nn.Linear(config.hidden_size, config.embed_dim)
        self.text_proj = nn.Linear(config.hidden_size, config.embed_dim)
        self.itm_head = nn.Linear(config.hidden_size, 2)
        self.lm_bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.temp = nn.Parameter(0.07 * torch.ones([]))

    def itc(self, q_out, ids) -> Tuple[torch.Tensor, torch.Tensor]:
        image_feats = F.normalize(self.vision_proj(q_out), dim=-1)
        text_feat = F.normalize(self.text_proj(self.qformer(ids=ids)[:, 0, :]), dim=-1)
        sim = torch.einsum("iqd,td->itq", image_feats, text_feat).max(-1).values / self.temp
        targets = torch.arange(sim.size(0), device=sim.device)
        loss = (F.cross_entropy(sim, targets, label_smoothing=0.1) + F.cross_entropy(sim.t(), targets, label_smoothing=0.1)) / 2
        return loss, sim

    def forward(self, pixels, ids):
        image = self.visual(pixels)
        bs = image.size(0)
        query = self.query_tokens.expand(bs, -1, -1)
        q_out = self.qformer(query, image=image)
        loss_itc, sim = self.itc(q_out, ids)

        # hard negatives: the most similar other text for every image
        with torch.no_grad():
            sim = sim.detach() - 1e4 * torch.eye(bs, device=sim.device)
            neg = sim.argmax(dim=1)
        all_ids = torch.cat([ids, ids[neg]], dim=0)
        fused = self.qformer(self.query_tokens.expand(2 * bs, -1, -1), all_ids, torch.cat([image, image], dim=0))
        itm_logits = self.itm_head(fused[:, :self.config.num_query]).mean(dim=1)
        itm_labels = torch.cat([torch.ones(bs, dtype=torch.long, device=ids.device), torch.zeros(bs, dtype=torch.long, device=ids.device)])
        loss = loss_itc + F.cross_entropy(itm_logits, itm_labels)

        decoder_ids = ids.clone()
        decoder_ids[:, 0] = self.config.dec_id
        hidden = self.qformer(query, decoder_ids, image, causal=True)[:, self.config.num_query:]
        logits = F.linear(hidden[:, :-1], self.qformer.word.weight, self.lm_bias)
        labels = ids[:, 1:].masked_fill(ids[:, 1:] == self.config.pad_id, -100)
        loss += F.cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1), ignore_index=-100)
        return loss


def inputs(batch):
    ids = torch.randint(3, 6000, (batch, 24))
    ids[:, 0] = 1
    ids[:, 18:] = 0
    return torch.randn(batch, 3, 112, 112), ids
