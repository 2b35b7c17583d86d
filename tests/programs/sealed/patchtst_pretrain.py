__all__ = ['Model']

# Self-supervised PatchTST: random patches of every channel are masked and reconstructed.
# (cleaned from the notebook; residual attention + batchnorm as in TST)

import math
import torch
from torch import nn, Tensor
import torch.nn.functional as F

# ---- cell 1: helpers

class Transpose(nn.Module):
    def __init__(self, *dims, contiguous=False):
        super().__init__()
        self.dims, self.contiguous = dims, contiguous
    def forward(self, x):
        if self.contiguous: return x.transpose(*self.dims).contiguous()
        else: return x.transpose(*self.dims)


def norm_layer(kind, d):
    if 'batch' in kind.lower():
        return nn.Sequential(Transpose(1, 2), nn.BatchNorm1d(d), Transpose(1, 2))
    return nn.LayerNorm(d)


def create_patch(xb, patch_len, stride):
    """xb: [bs x seq_len x n_vars] -> [bs x num_patch x n_vars x patch_len]"""
    seq_len = xb.shape[1]
    num_patch = (max(seq_len, patch_len) - patch_len) // stride + 1
    tgt_len = patch_len + stride * (num_patch - 1)
    s_begin = seq_len - tgt_len
    xb = xb[:, s_begin:, :]
    return xb.unfold(dimension=1, size=patch_len, step=stride)


def random_masking(xb, mask_ratio):
    # xb: [bs x num_patch x n_vars x patch_len]
    bs, L, nvars, D = xb.shape
    x = xb.clone()
    len_keep = int(L * (1 - mask_ratio))
    noise = torch.rand(bs, L, nvars, device=xb.device)
    ids_shuffle = torch.argsort(noise, dim=1)
    ids_restore = torch.argsort(ids_shuffle, dim=1)
    ids_keep = ids_shuffle[:, :len_keep, :]
    x_kept = torch.gather(x, dim=1, index=ids_keep.unsqueeze(-1).repeat(1, 1, 1, D))
    x_removed = torch.zeros(bs, L - len_keep, nvars, D, device=xb.device)
    x_ = torch.cat([x_kept, x_removed], dim=1)
    x_masked = torch.gather(x_, dim=1, index=ids_restore.unsqueeze(-1).repeat(1, 1, 1, D))
    mask = torch.ones([bs, L, nvars], device=x.device)
    mask[:, :len_keep, :] = 0
    mask = torch.gather(mask, dim=1, index=ids_restore)
    return x_masked, mask


# ---- cell 2: attention

class ScaledDotProductAttention(nn.Module):
    def __init__(self, d_model, n_heads, attn_dropout=0., res_attention=False, lsa=False):
        super().__init__()
        self.attn_dropout = nn.Dropout(attn_dropout)
        self.res_attention = res_attention
        head_dim = d_model // n_heads
        self.scale = nn.Parameter(torch.tensor(head_dim ** -0.5), requires_grad=lsa)

    def forward(self, q, k, v, prev=None):
        attn_scores = torch.matmul(q, k) * self.scale
        if prev is not None: attn_scores = attn_scores + prev
        attn_weights = F.softmax(attn_scores, dim=-1)
        attn_weights = self.attn_dropout(attn_weights)
        output = torch.matmul(attn_weights, v)
        if self.res_attention: return output, attn_weights, attn_scores
        else: return output, attn_weights


class MultiheadAttention(nn.Module):
    def __init__(self, d_model, n_heads, res_attention=False, attn_dropout=0., proj_dropout=0., lsa=False):
        super().__init__()
        d_k = d_v = d_model // n_heads
        self.n_heads, self.d_k, self.d_v = n_heads, d_k, d_v
        self.W_Q = nn.Linear(d_model, d_k * n_heads)
        self.W_K = nn.Linear(d_model, d_k * n_heads)
        self.W_V = nn.Linear(d_model, d_v * n_heads)
        self.res_attention = res_attention
        self.sdp_attn = ScaledDotProductAttention(d_model, n_heads, attn_dropout, res_attention, lsa)
        self.to_out = nn.Sequential(nn.Linear(n_heads * d_v, d_model), nn.Dropout(proj_dropout))

    def forward(self, Q, prev=None):
        bs = Q.size(0)
        q_s = self.W_Q(Q).view(bs, -1, self.n_heads, self.d_k).transpose(1, 2)
        k_s = self.W_K(Q).view(bs, -1, self.n_heads, self.d_k).permute(0, 2, 3, 1)
        v_s = self.W_V(Q).view(bs, -1, self.n_heads, self.d_v).transpose(1, 2)
        output, attn_weights, attn_scores = self.sdp_attn(q_s, k_s, v_s, prev=prev)
        output = output.transpose(1, 2).contiguous().view(bs, -1, self.n_heads * self.d_v)
        return self.to_out(output), attn_weights, attn_scores


class TSTEncoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff=256, norm='BatchNorm', attn_dropout=0, dropout=0., pre_norm=False):
        super().__init__()
        self.self_attn = MultiheadAttention(d_model, n_heads, res_attention=True, attn_dropout=attn_dropout,
                                            proj_dropout=dropout, lsa=True)
        self.dropout_attn = nn.Dropout(dropout)
        self.norm_attn = norm_layer(norm, d_model)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.GELU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model))
        self.dropout_ffn = nn.Dropout(dropout)
        self.norm_ffn = norm_layer(norm, d_model)
        self.pre_norm = pre_norm

    def forward(self, src, prev=None):
        if self.pre_norm: src = self.norm_attn(src)
        src2, attn, scores = self.self_attn(src, prev)
        src = src + self.dropout_attn(src2)
        if not self.pre_norm: src = self.norm_attn(src)
        if self.pre_norm: src = self.norm_ffn(src)
        src2 = self.ff(src)
        src = src + self.dropout_ffn(src2)
        if not self.pre_norm: src = self.norm_ffn(src)
        return src, scores


# ---- cell 3: model

def positional_encoding(q_len, d_model):
    W_pos = torch.empty((q_len, d_model))
    nn.init.uniform_(W_pos, -0.02, 0.02)
    return nn.Parameter(W_pos)


class PatchTSTEncoder(nn.Module):
    def __init__(self, c_in, num_patch, patch_len, n_layers=4, d_model=192, n_heads=12, shared_embedding=False,
                 d_ff=512, attn_dropout=0.05, dropout=0.2):
        super().__init__()
        self.n_vars, self.num_patch, self.d_model = c_in, num_patch, d_model
        self.shared_embedding = shared_embedding
        if not shared_embedding:
            self.W_P = nn.ModuleList()
            for _ in range(self.n_vars): self.W_P.append(nn.Linear(patch_len, d_model))
        else:
            self.W_P = nn.Linear(patch_len, d_model)
        self.W_pos = positional_encoding(num_patch, d_model)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            [TSTEncoderLayer(d_model, n_heads, d_ff, attn_dropout=attn_dropout, dropout=dropout) for _ in range(n_layers)])

    def forward(self, x) -> Tensor:
        bs, num_patch, n_vars, patch_len = x.shape
        if not self.shared_embedding:
            x_out = []
            for i in range(n_vars):
                z = self.W_P[i](x[:, :, i, :])
                x_out.append(z)
            x = torch.stack(x_out, dim=2)
        else:
            x = self.W_P(x)
        x = x.transpose(1, 2)                                      # bs x nvars x num_patch x d_model
        u = torch.reshape(x, (bs * n_vars, num_patch, self.d_model))
        u = self.dropout(u + self.W_pos)
        scores = None
        for mod in self.layers: u, scores = mod(u, scores)
        z = torch.reshape(u, (-1, n_vars, num_patch, self.d_model))
        return z.permute(0, 1, 3, 2)                               # bs x nvars x d_model x num_patch


class PretrainHead(nn.Module):
    def __init__(self, d_model, patch_len, dropout):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(d_model, patch_len)

    def forward(self, x):
        x = x.transpose(2, 3)
        x = self.linear(self.dropout(x))
        return x.permute(0, 2, 1, 3)


class Model(nn.Module):
    def __init__(self, c_in=7, seq_len=512, patch_len=12, stride=12, mask_ratio=0.4):
        super().__init__()
        num_patch = (seq_len - patch_len) // stride + 1
        self.patch_len, self.stride, self.mask_ratio = patch_len, stride, mask_ratio
        self.affine_w = nn.Parameter(torch.ones(c_in))
        self.affine_b = nn.Parameter(torch.zeros(c_in))
        self.backbone = PatchTSTEncoder(c_in, num_patch, patch_len)
        self.head = PretrainHead(192, patch_len, 0.1)

    def forward(self, x):
        # revin
        mu = x.mean(1, keepdim=True).detach()
        sd = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5).detach()
        x = (x - mu) / sd * self.affine_w + self.affine_b
        patches = create_patch(x, self.patch_len, self.stride)
        masked, mask = random_masking(patches, self.mask_ratio)
        preds = self.head(self.backbone(masked))
        loss = (preds - patches) ** 2
        loss = loss.mean(dim=-1)
        loss = (loss * mask).sum() / mask.sum()
        return loss, preds, mask


def inputs(batch):
    return (torch.randn(batch, 512, 7),)
