import copy
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

# Small T5 for news summarisation (trained from scratch on a sentencepiece vocab)

config = {
    "vocab_size": 10000,
    "d_model": 320,
    "d_kv": 40,
    "d_ff": 1024,
    "num_heads": 8,
    "num_layers": 4,
    "num_decoder_layers": 4,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "dropout_rate": 0.1,
    "layer_norm_epsilon": 1e-6,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
    "label_smoothing": 0.1,
}


class T5LayerNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        # no mean subtraction, no bias
        variance = hidden_states.to(torch.float32).pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states


class GatedFF(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.layer_norm = T5LayerNorm(cfg["d_model"], cfg["layer_norm_epsilon"])
        self.wi_0 = nn.Linear(cfg["d_model"], cfg["d_ff"], bias=False)
        self.wi_1 = nn.Linear(cfg["d_model"], cfg["d_ff"], bias=False)
        self.wo = nn.Linear(cfg["d_ff"], cfg["d_model"], bias=False)
        self.dropout = nn.Dropout(cfg["dropout_rate"])

    def forward(self, hidden_states):
        x = self.layer_norm(hidden_states)
        gelu = F.gelu(self.wi_0(x), approximate="tanh")
        x = gelu * self.wi_1(x)
        x = self.dropout(x)
        x = self.wo(x)
        return hidden_states + self.dropout(x)


class T5Attention(nn.Module):
    def __init__(self, cfg, is_decoder, has_relative_attention_bias=False):
        super().__init__()
        self.is_decoder = is_decoder
        self.n_heads = cfg["num_heads"]
        self.d_kv = cfg["d_kv"]
        self.inner_dim = self.n_heads * self.d_kv
        self.num_buckets = cfg["relative_attention_num_buckets"]
        self.max_distance = cfg["relative_attention_max_distance"]
        self.has_bias = has_relative_attention_bias

        self.layer_norm = T5LayerNorm(cfg["d_model"], cfg["layer_norm_epsilon"])
        self.q = nn.Linear(cfg["d_model"], self.inner_dim, bias=False)
        self.k = nn.Linear(cfg["d_model"], self.inner_dim, bias=False)
        self.v = nn.Linear(cfg["d_model"], self.inner_dim, bias=False)
        self.o = nn.Linear(self.inner_dim, cfg["d_model"], bias=False)
        if has_relative_attention_bias:
            self.relative_attention_bias = nn.Embedding(self.num_buckets, self.n_heads)
        self.p = cfg["dropout_rate"]

    @staticmethod
    def _relative_position_bucket(relative_position, bidirectional, num_buckets, max_distance):
        relative_buckets = 0
        if bidirectional:
            num_buckets //= 2
            relative_buckets += (relative_position > 0).to(torch.long) * num_buckets
            relative_position = torch.abs(relative_position)
        else:
            relative_position = -torch.min(relative_position, torch.zeros_like(relative_position))
        max_exact = num_buckets // 2
        is_small = relative_position < max_exact
        large = max_exact + (
            torch.log(relative_position.float() / max_exact)
            / math.log(max_distance / max_exact)
            * (num_buckets - max_exact)
        ).to(torch.long)
        large = torch.min(large, torch.full_like(large, num_buckets - 1))
        relative_buckets += torch.where(is_small, relative_position, large)
        return relative_buckets

    def compute_bias(self, query_length, key_length, device):
        context_position = torch.arange(query_length, dtype=torch.long, device=device)[:, None]
        memory_position = torch.arange(key_length, dtype=torch.long, device=device)[None, :]
        buckets = self._relative_position_bucket(
            memory_position - context_position, not self.is_decoder, self.num_buckets, self.max_distance
        )
        values = self.relative_attention_bias(buckets)  # (q, k, heads)
        return values.permute([2, 0, 1]).unsqueeze(0)

    def forward(self, hidden_states, mask, kv=None, position_bias=None):
        normed = self.layer_norm(hidden_states)
        src = normed if kv is None else kv
        bsz, qlen = normed.shape[:2]
        klen = src.shape[1]

        q = self.q(normed).view(bsz, qlen, self.n_heads, self.d_kv).transpose(1, 2)
        k = self.k(src).view(bsz, klen, self.n_heads, self.d_kv).transpose(1, 2)
        v = self.v(src).view(bsz, klen, self.n_heads, self.d_kv).transpose(1, 2)

        scores = torch.matmul(q, k.transpose(3, 2))  # no scaling in T5
        if position_bias is None:
            if self.has_bias:
                position_bias = self.compute_bias(qlen, klen, scores.device)
            else:
                position_bias = torch.zeros((1, self.n_heads, qlen, klen), device=scores.device, dtype=scores.dtype)
            position_bias = position_bias + mask  # (batch, heads, q, k)
        scores += position_bias
        attn = F.softmax(scores.float(), dim=-1).type_as(scores)
        attn = F.dropout(attn, p=self.p, training=self.training)
        out = torch.matmul(attn, v).transpose(1, 2).contiguous().view(bsz, qlen, self.inner_dim)
        out = F.dropout(self.o(out), p=self.p, training=self.training)
        return hidden_states + out, position_bias


class T5Block(nn.Module):
    def __init__(self, cfg, is_decoder, has_bias):
        super().__init__()
        self.self_attn = T5Attention(cfg, is_decoder, has_bias)
        self.cross_attn = T5Attention(cfg, is_decoder) if is_decoder else None
        self.ff = GatedFF(cfg)

    def forward(self, x, mask, bias=None, memory=None, memory_mask=None, cross_bias=None):
        x, bias = self.self_attn(x, mask, position_bias=bias)
        if self.cross_attn is not None:
            x, cross_bias = self.cross_attn(x, memory_mask, kv=memory, position_bias=cross_bias)
        return self.ff(x), bias, cross_bias


class T5Stack(nn.Module):
    def __init__(self, cfg, embed_tokens, is_decoder, n):
        super().__init__()
        self.embed_tokens = embed_tokens
        self.block = nn.ModuleList([T5Block(cfg, is_decoder, has_bias=(i == 0)) for i in range(n)])
        self.final_layer_norm = T5LayerNorm(cfg["d_model"], cfg["layer_norm_epsilon"])
        self.dropout = nn.Dropout(cfg["dropout_rate"])
        self.is_decoder = is_decoder

    def forward(self, ids, mask, memory=None, memory_mask=None):
        x = self.dropout(self.embed_tokens(ids))
        if self.is_decoder:
            L = ids.size(1)
            causal = torch.arange(L, device=ids.device)[None, :] <= torch.arange(L, device=ids.device)[:, None]
            mask = mask[:, None, :].bool() & causal[None]
            ext = (1.0 - mask[:, None].to(x.dtype)) * torch.finfo(x.dtype).min
        else:
            ext = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        if memory_mask is not None:
            memory_mask = (1.0 - memory_mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        bias, cross_bias = None, None
        for blk in self.block:
            x, bias, cross_bias = blk(x, ext, bias, memory, memory_mask, cross_bias)
        return self.dropout(self.final_layer_norm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        cfg = copy.deepcopy(config)
        self.cfg = cfg
        self.shared = nn.Embedding(cfg["vocab_size"], cfg["d_model"])
        self.encoder = T5Stack(cfg, self.shared, False, cfg["num_layers"])
        self.decoder = T5Stack(cfg, self.shared, True, cfg["num_decoder_layers"])
        self.lm_head = nn.Linear(cfg["d_model"], cfg["vocab_size"], bias=False)
        self.lm_head.weight = self.shared.weight
        nn.init.normal_(self.shared.weight, std=1.0)

    def _shift_right(self, labels):
        shifted = labels.new_zeros(labels.shape)
        shifted[..., 1:] = labels[..., :-1].clone()
        shifted[..., 0] = self.cfg["decoder_start_token_id"]
        shifted.masked_fill_(shifted == -100, self.cfg["pad_token_id"])
        return shifted

    def label_smoothed_nll(self, logits, labels, eps):
        log_probs = -F.log_softmax(logits, dim=-1)
        labels = labels.unsqueeze(-1)
        padding_mask = labels.eq(-100)
        labels = torch.clamp(labels, min=0)
        nll_loss = log_probs.gather(dim=-1, index=labels)
        smoothed_loss = log_probs.sum(dim=-1, keepdim=True, dtype=torch.float32)
        nll_loss.masked_fill_(padding_mask, 0.0)
        smoothed_loss.masked_fill_(padding_mask, 0.0)
        num_active = padding_mask.numel() - padding_mask.long().sum()
        nll_loss = nll_loss.sum() / num_active
        smoothed_loss = smoothed_loss.sum() / (num_active * log_probs.shape[-1])
        return (1 - eps) * nll_loss + eps * smoothed_loss

    def forward(self, input_ids, attention_mask, labels):
        memory = self.encoder(input_ids, attention_mask)
        dec_in = self._shift_right(labels)
        dec_mask = torch.ones_like(dec_in)
        out = self.decoder(dec_in, dec_mask, memory, attention_mask)
        # tied embeddings -> rescale (see mesh tensorflow)
        out = out * (self.cfg["d_model"] ** -0.5)
        logits = self.lm_head(out)
        loss = self.label_smoothed_nll(logits, labels, self.cfg["label_smoothing"])
        return {"loss": loss, "logits": logits}


def inputs(batch):
    src = torch.randint(2, 10000, (batch, 256))
    mask = torch.ones(batch, 256, dtype=torch.long)
    mask[1:, 200:] = 0
    labels = torch.randint(2, 10000, (batch, 64))
    labels[1:, 50:] = -100
    return src, mask, labels
