"""Dense retrieval bi-encoder (DPR / SimCSE / E5 recipe): shared encoder, mean pooling, InfoNCE with in-batch
negatives plus one hard negative per query, symmetric term, and an EMA teacher for a small distillation loss."""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


def mean_pooling(token_embeddings, attention_mask):
    input_mask_expanded = attention_mask.unsqueeze(-1).expand(token_embeddings.size()).float()
    return torch.sum(token_embeddings * input_mask_expanded, 1) / torch.clamp(input_mask_expanded.sum(1), min=1e-9)


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads, ffn, drop):
        super().__init__()
        self.heads = heads
        self.drop = drop
        self.in_proj = nn.Linear(dim, 3 * dim)
        self.out_proj = nn.Linear(dim, dim)
        self.norm1 = nn.LayerNorm(dim, eps=1e-12)
        self.norm2 = nn.LayerNorm(dim, eps=1e-12)
        self.fc1 = nn.Linear(dim, ffn)
        self.fc2 = nn.Linear(ffn, dim)

    def forward(self, x, attn_mask):
        B, L, D = x.shape
        q, k, v = self.in_proj(x).chunk(3, -1)
        q, k, v = [t.reshape(B, L, self.heads, D // self.heads).transpose(1, 2) for t in (q, k, v)]
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, dropout_p=self.drop if self.training else 0.0)
        a = a.transpose(1, 2).reshape(B, L, D)
        # post-norm as in BERT
        x = self.norm1(x + F.dropout(self.out_proj(a), self.drop, self.training))
        h = self.fc2(F.gelu(self.fc1(x)))
        return self.norm2(x + F.dropout(h, self.drop, self.training))


class TextEncoder(nn.Module):
    def __init__(self, vocab=20000, dim=384, layers=4, heads=12, ffn=1536, max_len=256, drop=0.1):
        super().__init__()
        self.word = nn.Embedding(vocab, dim, padding_idx=0)
        self.pos = nn.Embedding(max_len, dim)
        self.ln = nn.LayerNorm(dim, eps=1e-12)
        self.drop = nn.Dropout(drop)
        self.layers = nn.ModuleList(EncoderLayer(dim, heads, ffn, drop) for _ in range(layers))
        # BERT pooler, kept so that the checkpoint loads, not used with mean pooling
        self.pooler = nn.Linear(dim, dim)
        self.register_buffer("position_ids", torch.arange(max_len).expand((1, -1)))

    def forward(self, ids):
        mask = ids != 0
        L = ids.shape[1]
        x = self.word(ids) + self.pos(self.position_ids[:, :L])
        x = self.drop(self.ln(x))
        attn_mask = mask[:, None, None, :]
        hs = []
        for l in self.layers:
            x = l(x, attn_mask)
            hs.append(x)
        # first-last average
        x = (hs[0] + hs[-1]) / 2
        return mean_pooling(x, mask)


class Model(nn.Module):
    def __init__(self, temperature=0.05, dim=384, proj=256):
        super().__init__()
        self.encoder = TextEncoder()
        self.proj = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, proj))
        self.proj_ema = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, proj))
        for p, t in zip(self.proj.parameters(), self.proj_ema.parameters()):
            t.data.copy_(p.data)
            t.requires_grad = False
        self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / temperature))

    def forward(self, query, doc, hard_neg):
        q_h = self.encoder(query)
        d_h = self.encoder(doc)
        n_h = self.encoder(hard_neg)
        q = F.normalize(self.proj(q_h), dim=-1)
        d = F.normalize(self.proj(d_h), dim=-1)
        n = F.normalize(self.proj(n_h), dim=-1)
        scale = self.logit_scale.exp().clamp(max=100)
        labels = torch.arange(q.size(0), device=q.device)
        all_docs = torch.cat([d, n], dim=0)
        sim = scale * q @ all_docs.t()
        loss_q = F.cross_entropy(sim, labels)
        loss_d = F.cross_entropy(scale * d @ q.t(), labels)

        with torch.no_grad():
            tq = F.normalize(self.proj_ema(q_h), dim=-1)
            td = F.normalize(self.proj_ema(torch.cat([d_h, n_h])), dim=-1)
            target = F.softmax(scale * tq @ td.t(), dim=-1)
        distill = F.kl_div(F.log_softmax(sim, dim=-1), target, reduction="batchmean")

        loss = (loss_q + loss_d) / 2 + 0.1 * distill
        acc = (sim.argmax(-1) == labels).float().mean()
        return {"loss": loss, "acc": acc, "q": q, "d": d}


def inputs(batch):
    q = torch.randint(1, 20000, (batch, 48))
    d = torch.randint(1, 20000, (batch, 224))
    n = torch.randint(1, 20000, (batch, 224))
    q[:, 30:] = 0
    d[:, 200:] = 0
    n[:, 180:] = 0
    return q, d, n
