import math
import torch
from torch import nn
import torch.nn.functional as F

# BERT4Rec + sampled softmax, ML-20M sized catalogue
# id 0 = pad, id V-1 = [MASK]

args = dict(
    num_items=26744,
    max_len=200,
    hidden=128,
    heads=4,
    layers=3,
    dropout=0.1,
    mask_prob=0.2,
    num_neg=512,
    temperature=0.07,
    n_pred=40,
)


class LogUniformSampler(nn.Module):
    """tf.random.log_uniform_candidate_sampler; item ids must be sorted by popularity."""

    def __init__(self, range_max, n_sample):
        super().__init__()
        self.range_max = range_max
        self.n_sample = n_sample
        log_indices = torch.arange(1., range_max + 2., 1.).log_()
        dist = (log_indices[1:] - log_indices[:-1]) / log_indices[-1]
        self.register_buffer('log_q', (-(-dist.double().log1p_() * 2 * n_sample).expm1_()).log_().float(),
                             persistent=False)

    @torch.no_grad()
    def sample(self, like):
        u = torch.rand(self.n_sample, device=like.device)
        ids = torch.exp(u * math.log(self.range_max + 1)).floor().long() - 1
        return ids.clamp_(0, self.range_max - 1)


class BERTEmbedding(nn.Module):
    def __init__(self, vocab_size, max_len, d, dropout):
        super().__init__()
        self.token = nn.Embedding(vocab_size, d, padding_idx=0)
        self.position = nn.Embedding(max_len, d)
        self.time_proj = nn.Linear(1, d)
        self.norm = nn.LayerNorm(d)
        self.dropout = nn.Dropout(dropout)

    def forward(self, seq, dt):
        pos = self.position.weight.unsqueeze(0).repeat(seq.size(0), 1, 1)
        x = self.token(seq) + pos + self.time_proj(torch.log1p(dt).unsqueeze(-1))
        return self.dropout(self.norm(x))


class GELU(nn.Module):
    # original BERT gelu
    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


class Attention(nn.Module):
    def forward(self, query, key, value, mask=None, dropout=None):
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.size(-1))
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        p_attn = F.softmax(scores, dim=-1)
        if dropout is not None:
            p_attn = dropout(p_attn)
        return torch.matmul(p_attn, value), p_attn


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        assert d_model % h == 0
        self.d_k = d_model // h
        self.h = h
        self.linear_layers = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(3)])
        self.output_linear = nn.Linear(d_model, d_model)
        self.attention = Attention()
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query, key, value, mask=None):
        batch_size = query.size(0)
        query, key, value = [l(x).view(batch_size, -1, self.h, self.d_k).transpose(1, 2)
                             for l, x in zip(self.linear_layers, (query, key, value))]
        x, attn = self.attention(query, key, value, mask=mask, dropout=self.dropout)
        x = x.transpose(1, 2).contiguous().view(batch_size, -1, self.h * self.d_k)
        return self.output_linear(x)


class SublayerConnection(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))


class TransformerBlock(nn.Module):
    def __init__(self, hidden, attn_heads, feed_forward_hidden, dropout):
        super().__init__()
        self.attention = MultiHeadedAttention(attn_heads, hidden, dropout)
        self.feed_forward = nn.Sequential(
            nn.Linear(hidden, feed_forward_hidden), GELU(), nn.Dropout(dropout),
            nn.Linear(feed_forward_hidden, hidden))
        self.input_sublayer = SublayerConnection(hidden, dropout)
        self.output_sublayer = SublayerConnection(hidden, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        x = self.input_sublayer(x, lambda _x: self.attention.forward(_x, _x, _x, mask=mask))
        x = self.output_sublayer(x, self.feed_forward)
        return self.dropout(x)


class Model(nn.Module):
    def __init__(self, a=args):
        super().__init__()
        self.num_items = a['num_items']
        self.MASK = self.num_items + 1
        self.mask_prob = a['mask_prob']
        self.n_pred = a['n_pred']
        self.tau = a['temperature']
        d = a['hidden']
        self.embedding = BERTEmbedding(self.num_items + 2, a['max_len'], d, a['dropout'])
        self.blocks = nn.ModuleList([TransformerBlock(d, a['heads'], d * 4, a['dropout'])
                                     for _ in range(a['layers'])])
        # short-term branch, GRU4Rec like; fused by a gate
        self.gru = nn.GRU(d, d, num_layers=1, batch_first=True, bidirectional=True)
        self.gru_out = nn.Linear(2 * d, d)
        self.fuse = nn.Linear(2 * d, d)
        self.head = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.LayerNorm(d))
        self.item_bias = nn.Parameter(torch.zeros(self.num_items + 2))
        self.sampler = LogUniformSampler(self.num_items, a['num_neg'])
        self.apply(self._init)

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.trunc_normal_(m.weight, std=0.02, a=-0.04, b=0.04)
        if isinstance(m, nn.Linear) and m.bias is not None:
            m.bias.data.zero_()

    def cloze(self, seq):
        """replaces items by [MASK]; always masks the last one with some prob. (for next item pred)"""
        r = torch.rand(seq.shape, device=seq.device)
        real = seq > 0
        # the number of targets is fixed: take n_pred positions w/ the smallest r, the others are off
        r = torch.where(real, r, torch.ones_like(r) * 2)
        last = (torch.rand(seq.size(0), device=seq.device) < 0.1)
        r[:, -1] = torch.where(last & real[:, -1], torch.zeros_like(r[:, -1]), r[:, -1])
        val, idx = torch.topk(r, self.n_pred, dim=1, largest=False)
        valid = val < self.mask_prob
        target = torch.gather(seq, 1, idx)
        put = torch.where(valid, torch.full_like(target, self.MASK), target)
        masked = seq.scatter(1, idx, put)
        return masked, idx, target, valid

    def forward(self, seq, dt):
        masked, idx, target, valid = self.cloze(seq)
        mask = (masked > 0).unsqueeze(1).repeat(1, masked.size(1), 1).unsqueeze(1)
        x = self.embedding(masked, dt)
        g, _ = self.gru(x)
        g = self.gru_out(g)
        for b in self.blocks:
            x = b(x, mask)
        gate = torch.sigmoid(self.fuse(torch.cat([x, g], dim=-1)))
        x = gate * x + (1 - gate) * g

        h = torch.gather(x, 1, idx.unsqueeze(-1).expand(-1, -1, x.size(-1)))
        h = self.head(h)

        # sampled softmax
        W = self.embedding.token
        neg = self.sampler.sample(h) + 1                             # shared by the batch
        log_q = self.sampler.log_q
        pos_logit = (F.normalize(h, dim=-1) * F.normalize(W(target), dim=-1)).sum(-1) / self.tau
        pos_logit = pos_logit + self.item_bias[target] - log_q[(target - 1).clamp(min=0)]
        neg_logit = F.normalize(h, dim=-1) @ F.normalize(W(neg), dim=-1).t() / self.tau
        neg_logit = neg_logit + self.item_bias[neg] - log_q[neg - 1]
        hit = target.unsqueeze(-1) == neg
        neg_logit = neg_logit.masked_fill(hit, -1e4)
        logits = torch.cat([pos_logit.unsqueeze(-1), neg_logit], dim=-1)
        lse = torch.logsumexp(logits, -1)
        w = valid.float()
        loss = ((lse - logits[..., 0]) * w).sum() / w.sum().clamp(min=1)
        acc = ((logits.argmax(-1) == 0).float() * w).sum() / w.sum().clamp(min=1)
        return loss, acc


def inputs(batch):
    L = args['max_len']
    seq = torch.randint(1, args['num_items'] + 1, (batch, L))
    length = torch.randint(20, L + 1, (batch, 1))
    seq = seq * (torch.arange(L).unsqueeze(0) >= L - length)
    return seq, torch.rand(batch, L) * 1000
