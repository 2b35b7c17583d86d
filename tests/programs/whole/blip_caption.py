# minimal BLIP: one set of text layers, three uses
#   mode "text"       bi-directional self attention, no vision      -> ITC
#   mode "multimodal" bi-directional self attention + cross attn    -> ITM
#   mode "decode"     causal self attention + cross attn            -> LM
# the decoder shares everything with the encoder except its self-attention, as in the paper.

import torch
from torch import nn, einsum
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def exists(v):
    return v is not None


def default(v, d):
    return v if exists(v) else d


class GEGLU(nn.Module):
    def forward(self, x):
        x, gate = x.chunk(2, dim=-1)
        return F.gelu(gate) * x


def FeedForward(dim, mult=4, dropout=0.):
    inner = int(dim * mult * 2 / 3)
    return nn.Sequential(
        nn.LayerNorm(dim),
        nn.Linear(dim, inner * 2, bias=False),
        GEGLU(),
        nn.Dropout(dropout),
        nn.Linear(inner, dim, bias=False),
    )


class Attention(nn.Module):
    def __init__(self, dim, context_dim=None, heads=6, dim_head=64, dropout=0.):
        super().__init__()
        self.heads = heads
        self.scale = dim_head ** -0.5
        inner = heads * dim_head
        self.norm = nn.LayerNorm(dim)
        self.to_q = nn.Linear(dim, inner, bias=False)
        self.to_kv = nn.Linear(default(context_dim, dim), inner * 2, bias=False)
        self.to_out = nn.Linear(inner, dim, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, context=None, key_mask=None, causal=False):
        b, n, h = x.shape[0], x.shape[1], self.heads
        x = self.norm(x)
        ctx = default(context, x)
        q = self.to_q(x).view(b, n, h, -1).transpose(1, 2) * self.scale
        k, v = self.to_kv(ctx).chunk(2, dim=-1)
        k = k.reshape(b, ctx.shape[1], h, -1).transpose(1, 2)
        v = v.reshape(b, ctx.shape[1], h, -1).transpose(1, 2)

        sim = einsum('b h i d, b h j d -> b h i j', q, k)
        neg = -torch.finfo(sim.dtype).max
        if exists(key_mask):
            sim = sim.masked_fill(~key_mask[:, None, None, :], neg)
        if causal:
            i, j = sim.shape[-2:]
            causal_mask = torch.ones((i, j), dtype=torch.bool, device=x.device).triu(j - i + 1)
            sim = sim.masked_fill(causal_mask, neg)
        attn = self.dropout(sim.softmax(dim=-1))
        out = einsum('b h i j, b h j d -> b h i d', attn, v)
        return self.to_out(out.transpose(1, 2).reshape(b, n, -1))


class TextBlock(nn.Module):
    def __init__(self, dim, vis_dim, heads, dropout):
        super().__init__()
        self.self_attn = nn.ModuleDict({
            'enc': Attention(dim, heads=heads, dropout=dropout),
            'dec': Attention(dim, heads=heads, dropout=dropout),
        })
        self.cross_attn = Attention(dim, vis_dim, heads=heads, dropout=dropout)
        self.ff = FeedForward(dim, dropout=dropout)

    def forward(self, x, key_mask, image_tokens=None, causal=False):
        attn = self.self_attn['dec' if causal else 'enc']
        x = attn(x, key_mask=key_mask, causal=causal) + x
        if exists(image_tokens):
            x = self.cross_attn(x, image_tokens) + x
        return self.ff(x) + x


class TextStack(nn.Module):
    def __init__(self, vocab, dim, vis_dim, depth, heads, max_len, dropout=0.1):
        super().__init__()
        self.token_emb = nn.Embedding(vocab, dim)
        self.pos_emb = nn.Embedding(max_len, dim)
        self.type_emb = nn.Embedding(3, dim)      # CLS / ENC / DEC
        self.layers = nn.ModuleList([TextBlock(dim, vis_dim, heads, dropout) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.to_logits = nn.Linear(dim, vocab, bias=False)
        self.to_logits.weight = self.token_emb.weight
        nn.init.normal_(self.token_emb.weight, std=0.02)

    MODES = dict(text=0, multimodal=1, decode=2)

    def forward(self, ids, key_mask, image_tokens=None, mode='text'):
        n = ids.shape[1]
        x = self.token_emb(ids) + self.pos_emb(torch.arange(n, device=ids.device))
        kind = self.type_emb.weight[self.MODES[mode]]
        # first token is replaced by the special one of the mode
        x = torch.cat((x[:, :1] * 0 + kind, x[:, 1:]), dim=1)
        for layer in self.layers:
            x = layer(x, key_mask, image_tokens, causal=(mode == 'decode'))
        return self.norm(x)


class ViTBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attn = Attention(dim, heads=heads)
        self.ff = FeedForward(dim)

    def forward(self, x):
        x = self.attn(x) + x
        return self.ff(x) + x


class ImageEncoder(nn.Module):
    def __init__(self, image=112, patch=16, dim=384, depth=6, heads=6):
        super().__init__()
        self.patch = patch
        self.to_patch = nn.Sequential(nn.LayerNorm(3 * patch ** 2), nn.Linear(3 * patch ** 2, dim), nn.LayerNorm(dim))
        self.pos = nn.Parameter(torch.randn((image // patch) ** 2 + 1, dim) * 0.02)
        self.cls = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.blocks = nn.ModuleList([ViTBlock(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)

    def forward(self, img):
        b, p = img.shape[0], self.patch
        x = F.unfold(img, p, stride=p).transpose(1, 2)
        x = self.to_patch(x)
        x = torch.cat((self.cls.expand(b, -1, -1), x), dim=1) + self.pos
        for blk in self.blocks:
            x = checkpoint(blk, x, use_reentrant=False)
        return self.norm(x)


class Model(nn.Module):
    def __init__(self, vocab=12000, dim=384, depth=4, heads=6, max_len=32, embed=192, pad_id=0, label_smoothing=0.1):
        super().__init__()
        self.pad_id = pad_id
        self.smooth = label_smoothing
        self.vision = ImageEncoder(dim=dim)
        self.text = TextStack(vocab, dim, dim, depth, heads, max_len)
        self.img_proj = nn.Linear(dim, embed)
        self.txt_proj = nn.Linear(dim, embed)
        self.itm_head = nn.Linear(dim, 2)
        self.temp = nn.Parameter(torch.tensor(0.07))

    def forward(self, image, caption):
        device = image.device
        b = image.shape[0]
        mask = caption != self.pad_id
        img_tok = self.vision(image)

        # ---- ITC
        txt = self.text(caption, mask, mode='text')
        zi = F.normalize(self.img_proj(img_tok[:, 0]), dim=-1)
        zt = F.normalize(self.txt_proj(txt[:, 0]), dim=-1)
        sim = zi @ zt.t() / self.temp.clamp(0.001, 0.5)
        target = torch.arange(b, device=device)
        itc = (F.cross_entropy(sim, target) + F.cross_entropy(sim.t(), target)) / 2

        # ---- ITM with in-batch hard negatives
        with torch.no_grad():
            eye = torch.eye(b, device=device, dtype=torch.bool)
            w_i2t = sim.softmax(dim=1).masked_fill(eye, 0) + 1e-4 * (~eye)
            w_t2i = sim.t().softmax(dim=1).masked_fill(eye, 0) + 1e-4 * (~eye)
            neg_txt = torch.multinomial(w_i2t, 1).squeeze(1)
            neg_img = torch.multinomial(w_t2i, 1).squeeze(1)
        pos = self.text(caption, mask, img_tok, mode='multimodal')[:, 0]
        ids2 = torch.cat((caption, caption[neg_txt]), dim=0)
        mask2 = torch.cat((mask, mask[neg_txt]), dim=0)
        img2 = torch.cat((img_tok[neg_img], img_tok), dim=0)
        neg = self.text(ids2, mask2, img2, mode='multimodal')[:, 0]
        itm_logits = self.itm_head(torch.cat((pos, neg), dim=0))
        itm_target = torch.cat((torch.ones(b, dtype=torch.long, device=device),
                                torch.zeros(2 * b, dtype=torch.long, device=device)))
        itm = F.cross_entropy(itm_logits, itm_target)

        # ---- LM
        hidden = self.text(caption[:, :-1], mask[:, :-1], img_tok, mode='decode')
        logits = self.text.to_logits(hidden)
        lm = F.cross_entropy(logits.transpose(1, 2), caption[:, 1:],
                             ignore_index=self.pad_id, label_smoothing=self.smooth)
        return itc + itm + lm, (itc.detach(), itm.detach(), lm.detach())


def inputs(batch):
    return torch.rand(batch, 3, 112, 112), torch.randint(1, 12000, (batch, 32))
