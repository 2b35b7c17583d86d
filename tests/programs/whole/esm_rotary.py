# Protein masked language model, ESM-2 like (8M..35M family): pre-LN transformer,
# rotary positions, token dropout, tied LM head, contact regression on attentions.
import math
from typing import Dict, List, Optional, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F

PROTEIN_TOKS = ['<cls>', '<pad>', '<eos>', '<unk>',
                'L', 'A', 'G', 'V', 'S', 'E', 'R', 'T', 'I', 'D', 'P', 'K', 'Q', 'N', 'F', 'Y', 'M', 'H', 'W', 'C',
                'X', 'B', 'U', 'Z', 'O', '.', '-', '<null_1>', '<mask>']
TOK = {t: i for i, t in enumerate(PROTEIN_TOKS)}


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(x, cos, sin):
    cos = cos[:, : x.shape[-2], :]
    sin = sin[:, : x.shape[-2], :]
    return (x * cos) + (rotate_half(x) * sin)


class RotaryEmbedding(torch.nn.Module):
    def __init__(self, dim: int, *_, **__):
        super().__init__()
        inv_freq = 1.0 / (10000 ** (torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("inv_freq", inv_freq)

    def _tables(self, x, seq_dimension=1) -> Tuple[torch.Tensor, torch.Tensor]:
        t = torch.arange(x.shape[seq_dimension], device=x.device).type_as(self.inv_freq)
        freqs = torch.einsum("i,j->ij", t, self.inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos()[None, :, :], emb.sin()[None, :, :]

    def forward(self, q, k):
        cos, sin = self._tables(k, seq_dimension=-2)
        return apply_rotary_pos_emb(q, cos, sin), apply_rotary_pos_emb(k, cos, sin)


class SelfAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.head_dim = embed_dim // num_heads
        self.scaling = self.head_dim ** -0.5
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.rot_emb = RotaryEmbedding(self.head_dim)
        for lin in (self.k_proj, self.v_proj, self.q_proj):
            nn.init.xavier_uniform_(lin.weight, gain=1 / math.sqrt(2))
        nn.init.xavier_uniform_(self.out_proj.weight)

    def forward(self, x, key_padding_mask):
        # x: T x B x C, like fairseq
        tgt_len, bsz, embed_dim = x.size()
        q = self.q_proj(x) * self.scaling
        k = self.k_proj(x)
        v = self.v_proj(x)
        q = q.contiguous().view(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        k = k.contiguous().view(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        v = v.contiguous().view(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        q, k = self.rot_emb(q, k)
        attn_weights = torch.bmm(q, k.transpose(1, 2))
        attn_weights = attn_weights.view(bsz, self.num_heads, tgt_len, tgt_len)
        attn_weights = attn_weights.masked_fill(key_padding_mask.unsqueeze(1).unsqueeze(2), float("-inf"))
        attn_float = F.softmax(attn_weights, dim=-1, dtype=torch.float32)
        probs = attn_float.type_as(attn_weights).view(bsz * self.num_heads, tgt_len, tgt_len)
        attn = torch.bmm(probs, v)
        attn = attn.transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)
        return self.out_proj(attn), attn_float


def gelu(x):
    """original ESM gelu, not F.gelu"""
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class TransformerLayer(nn.Module):
    def __init__(self, embed_dim, ffn_embed_dim, attention_heads):
        super().__init__()
        self.self_attn = SelfAttention(embed_dim, attention_heads)
        self.self_attn_layer_norm = nn.LayerNorm(embed_dim)
        self.fc1 = nn.Linear(embed_dim, ffn_embed_dim)
        self.fc2 = nn.Linear(ffn_embed_dim, embed_dim)
        self.final_layer_norm = nn.LayerNorm(embed_dim)

    def forward(self, x, padding_mask):
        residual = x
        x, attn = self.self_attn(self.self_attn_layer_norm(x), padding_mask)
        x = residual + x
        residual = x
        x = self.fc2(gelu(self.fc1(self.final_layer_norm(x))))
        return residual + x, attn


class RobertaLMHead(nn.Module):
    def __init__(self, embed_dim, output_dim, weight):
        super().__init__()
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.layer_norm = nn.LayerNorm(embed_dim)
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(output_dim))

    def forward(self, features):
        x = self.layer_norm(gelu(self.dense(features)))
        return F.linear(x, self.weight) + self.bias


def symmetrize(x):
    return x + x.transpose(-1, -2)


def apc(x):
    "average product correct"
    a1 = x.sum(-1, keepdims=True)
    a2 = x.sum(-2, keepdims=True)
    a12 = x.sum((-1, -2), keepdims=True)
    avg = a1 * a2
    avg.div_(a12)  # in-place to reduce memory
    return x - avg


class Model(nn.Module):
    def __init__(self, num_layers=6, embed_dim=320, attention_heads=20, seqlen=128):
        super().__init__()
        self.num_layers = num_layers
        self.alphabet_size = len(PROTEIN_TOKS)
        self.cls_idx, self.padding_idx, self.eos_idx = TOK['<cls>'], TOK['<pad>'], TOK['<eos>']
        self.mask_idx = TOK['<mask>']
        self.embed_scale = 1
        self.embed_tokens = nn.Embedding(self.alphabet_size, embed_dim, padding_idx=self.padding_idx)
        self.layers = nn.ModuleList(
            [TransformerLayer(embed_dim, 4 * embed_dim, attention_heads) for _ in range(num_layers)])
        self.emb_layer_norm_after = nn.LayerNorm(embed_dim)
        self.lm_head = RobertaLMHead(embed_dim, self.alphabet_size, self.embed_tokens.weight)
        self.contact = nn.Linear(num_layers * attention_heads, 1)
        standard = torch.zeros(self.alphabet_size, dtype=torch.bool)
        standard[4:24] = True
        self.register_buffer("standard_aa", standard, persistent=False)

    def corrupt(self, tokens):
        """BERT corruption 15% : 80 / 10 / 10"""
        special = ~self.standard_aa[tokens]
        u = torch.rand(tokens.shape, device=tokens.device)
        selected = (u < 0.15) & ~special
        kind = torch.rand(tokens.shape, device=tokens.device)
        corrupted = torch.where(selected & (kind < 0.8), self.mask_idx, tokens)
        random_aa = torch.randint(4, 24, tokens.shape, device=tokens.device)
        corrupted = torch.where(selected & (kind >= 0.9), random_aa, corrupted)
        return corrupted, selected

    def encode(self, tokens, padding_mask):
        x = self.embed_scale * self.embed_tokens(tokens)
        # token dropout
        x.masked_fill_((tokens == self.mask_idx).unsqueeze(-1), 0.0)
        mask_ratio_train = 0.15 * 0.8
        src_lengths = (~padding_mask).sum(-1)
        mask_ratio_observed = (tokens == self.mask_idx).sum(-1).to(x.dtype) / src_lengths
        x = x * (1 - mask_ratio_train) / (1 - mask_ratio_observed)[:, None, None]
        x = x * (1 - padding_mask.unsqueeze(-1).type_as(x))

        attn_weights: List[torch.Tensor] = []
        x = x.transpose(0, 1)
        for layer in self.layers:
            x, attn = layer(x, padding_mask)
            attn_weights.append(attn)
        x = self.emb_layer_norm_after(x).transpose(0, 1)
        return x, torch.stack(attn_weights, 1)

    def predict_contacts(self, tokens, attentions):
        # attentions: B x L x H x T x T
        eos_mask = tokens.ne(self.eos_idx).to(attentions)
        eos_mask = eos_mask.unsqueeze(1) * eos_mask.unsqueeze(2)
        attentions = attentions * eos_mask[:, None, None, :, :]
        attentions = attentions[..., 1:-1, 1:-1]
        b, layers, heads, L, _ = attentions.size()
        attentions = attentions.view(b, layers * heads, L, L)
        attentions = apc(symmetrize(attentions))
        return self.contact(attentions.permute(0, 2, 3, 1)).squeeze(3)

    def forward(self, tokens, contact_map) -> Dict[str, Optional[torch.Tensor]]:
        padding_mask = tokens.eq(self.padding_idx)
        corrupted, selected = self.corrupt(tokens)
        hidden, attentions = self.encode(corrupted, padding_mask)
        logits = self.lm_head(hidden)

        nll = F.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction='none').view_as(tokens)
        sel = selected.to(nll.dtype)
        per_seq = (nll * sel).sum(1) / sel.sum(1).clamp(min=1)
        pppl = per_seq.detach().exp()              # pseudo-perplexity of every chain

        contact_logits = self.predict_contacts(tokens, attentions)
        valid = (contact_map >= 0).to(contact_logits.dtype)
        bce = F.binary_cross_entropy_with_logits(contact_logits, contact_map.clamp(min=0), reduction='none')
        contact_loss = (bce * valid).sum() / valid.sum().clamp(min=1)
        return {'loss': per_seq.mean() + 0.1 * contact_loss, 'pppl': pppl, 'logits': logits,
                'representation': (hidden * (~padding_mask).unsqueeze(-1)).sum(1) / (~padding_mask).sum(1, keepdim=True)}


def inputs(batch):
    L = 128
    t = torch.randint(4, 24, (batch, L))
    t[:, 0] = TOK['<cls>']
    t[:, -1] = TOK['<eos>']
    return t, (torch.rand(batch, L - 2, L - 2) < 0.05).float()
