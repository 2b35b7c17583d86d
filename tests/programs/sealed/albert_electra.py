"""
ELECTRA-style replaced token detection with ALBERT-style parameter sharing.

    generator:      hidden 128, 4 passes over one shared layer
    discriminator:  hidden 384, 8 passes over 2 groups of shared layers

Word/position embeddings (size 128) are shared by both networks.  As in the
original TF code, a *fixed* number of masked positions per sequence is given,
so that everything is gather / scatter with static shapes.
"""
import torch
from torch import nn, Tensor
import torch.nn.functional as F

VOCAB = 16000
MASK_ID = 4
SEQ = 128
N_PRED = 20


def init_bert(m):
    if isinstance(m, (nn.Linear, nn.Embedding)):
        m.weight.data.normal_(0, 0.02)
    if isinstance(m, nn.Linear) and m.bias is not None:
        m.bias.data.zero_()


def gather_positions(x: Tensor, positions: Tensor) -> Tensor:
    """x: [B, L, D] (or [B, L]); positions: [B, P]."""
    if x.dim() == 2:
        return torch.gather(x, 1, positions)
    idx = positions.unsqueeze(-1).expand(-1, -1, x.size(-1))
    return torch.gather(x, 1, idx)


class Embeddings(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.word = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.pos = nn.Embedding(SEQ, dim)
        self.seg = nn.Embedding(2, dim)
        self.norm = nn.LayerNorm(dim, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(SEQ).expand((1, -1)))

    def forward(self, ids, segment_ids):
        e = self.word(ids)
        e += self.seg(segment_ids)
        e += self.pos(self.position_ids[:, : ids.size(1)])
        return F.dropout(self.norm(e), 0.1, self.training)


class SelfAttention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.query, self.key, self.value = (nn.Linear(d, d) for _ in range(3))
        self.dense = nn.Linear(d, d)
        self.LayerNorm = nn.LayerNorm(d, eps=1e-12)
        self.att_drop = nn.Dropout(0.1)
        self.out_drop = nn.Dropout(0.1)

    def _split(self, t):
        return t.unflatten(-1, (self.h, -1)).permute(0, 2, 1, 3)

    def forward(self, x, ext_mask):
        q, k, v = self._split(self.query(x)), self._split(self.key(x)), self._split(self.value(x))
        s = torch.einsum("bhid,bhjd->bhij", q, k)
        s = s / (q.size(-1) ** 0.5)
        s = s + ext_mask
        p = self.att_drop(torch.softmax(s, -1))
        o = torch.einsum("bhij,bhjd->bihd", p, v).flatten(2)
        return self.LayerNorm(x + self.out_drop(self.dense(o)))


class SharedLayer(nn.Module):
    def __init__(self, d, h, ff):
        super().__init__()
        self.attention = SelfAttention(d, h)
        self.ffn = nn.Linear(d, ff)
        self.ffn_output = nn.Linear(ff, d)
        self.full_layer_layer_norm = nn.LayerNorm(d, eps=1e-12)

    def forward(self, x, ext_mask):
        a = self.attention(x, ext_mask)
        f = self.ffn_output(F.gelu(self.ffn(a)))
        return self.full_layer_layer_norm(f + a)


class AlbertEncoder(nn.Module):
    def __init__(self, emb_dim, d, heads, ff, n_layers, n_groups=1):
        super().__init__()
        self.n_layers = n_layers
        self.n_groups = n_groups
        self.embedding_hidden_mapping_in = nn.Linear(emb_dim, d) if emb_dim != d else nn.Identity()
        self.groups = nn.ModuleList(SharedLayer(d, heads, ff) for _ in range(n_groups))

    def forward(self, e, mask):
        ext = (1.0 - mask[:, None, None, :].type_as(e)) * -10000.0
        h = self.embedding_hidden_mapping_in(e)
        for i in range(self.n_layers):
            group = int(i / (self.n_layers / self.n_groups))
            h = self.groups[group](h, ext)
        return h


class MLMHead(nn.Module):
    def __init__(self, d, emb_dim, decoder_weight):
        super().__init__()
        self.dense = nn.Linear(d, emb_dim)
        self.LayerNorm = nn.LayerNorm(emb_dim)
        self.bias = nn.Parameter(torch.zeros(VOCAB))
        self.decoder_weight = decoder_weight

    def forward(self, h):
        h = self.LayerNorm(F.gelu(self.dense(h)))
        return F.linear(h, self.decoder_weight, self.bias)


class RTDHead(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.dense = nn.Linear(d, d)
        self.dense_prediction = nn.Linear(d, 1)

    def forward(self, h):
        return self.dense_prediction(F.gelu(self.dense(h))).squeeze(-1)


class Model(nn.Module):
    def __init__(self, disc_weight=50.0, temperature=1.0):
        super().__init__()
        self.embeddings = Embeddings(128)
        self.generator = AlbertEncoder(128, 128, 2, 512, n_layers=4)
        self.discriminator = AlbertEncoder(128, 384, 6, 1536, n_layers=8, n_groups=2)
        self.mlm = MLMHead(128, 128, self.embeddings.word.weight)
        self.rtd = RTDHead(384)
        self.disc_weight = disc_weight
        self.temperature = temperature
        self.apply(init_bert)

    @torch.no_grad()
    def _sample(self, logits):
        """gumbel-max sampling from the generator"""
        u = torch.rand_like(logits)
        g = -torch.log(-torch.log(u + 1e-9) + 1e-9)
        return torch.argmax(logits.float() / self.temperature + g, dim=-1)

    def forward(self, input_ids, segment_ids, attention_mask, masked_positions, masked_weights):
        original = gather_positions(input_ids, masked_positions)
        masked_ids = input_ids.scatter(1, masked_positions, MASK_ID)

        # ---- generator
        g_h = self.generator(self.embeddings(masked_ids, segment_ids), attention_mask)
        g_logits = self.mlm(gather_positions(g_h, masked_positions))
        per_tok = F.cross_entropy(g_logits.transpose(1, 2), original, reduction="none")
        mlm_loss = (per_tok * masked_weights).sum() / (masked_weights.sum() + 1e-6)

        # ---- corrupt
        sampled = self._sample(g_logits)
        corrupted = input_ids.scatter(1, masked_positions, sampled)
        is_replaced = (corrupted != input_ids).float()

        # ---- discriminator
        d_h = self.discriminator(self.embeddings(corrupted, segment_ids), attention_mask)
        d_logits = self.rtd(d_h)
        weights = attention_mask.float()
        d_losses = F.binary_cross_entropy_with_logits(d_logits, is_replaced, reduction="none") * weights
        disc_loss = d_losses.sum() / weights.sum().clamp(min=1.0)

        with torch.no_grad():
            preds = (d_logits > 0).float()
            acc = ((preds == is_replaced).float() * weights).sum() / weights.sum()
            mlm_acc = (g_logits.argmax(-1) == original).float().mean()

        return {
            "loss": mlm_loss + self.disc_weight * disc_loss,
            "mlm_loss": mlm_loss.detach(),
            "disc_loss": disc_loss.detach(),
            "disc_acc": acc,
            "mlm_acc": mlm_acc,
        }


def inputs(batch):
    ids = torch.randint(5, VOCAB, (batch, SEQ))
    seg = torch.zeros(batch, SEQ, dtype=torch.long)
    seg[:, SEQ // 2:] = 1
    att = torch.ones(batch, SEQ, dtype=torch.long)
    pos = torch.stack([torch.randperm(SEQ)[:N_PRED] for _ in range(batch)])
    w = torch.ones(batch, N_PRED)
    return ids, seg, att, pos, w
