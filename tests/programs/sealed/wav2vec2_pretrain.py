from typing import List, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F

# wav2vec 2.0 pretraining, fairseq-flavoured. Masks come from the dataloader (span masks with a fixed
# number of frames), negatives are sampled from the whole utterance.

CONV_LAYERS: List[Tuple[int, int, int]] = [(192, 10, 5)] + [(192, 3, 2)] * 4 + [(192, 2, 2)] * 2
NUM_SAMPLES = 24000


def conv_out_len(n):
    for _, k, s in CONV_LAYERS:
        n = (n - k) // s + 1
    return n


class ScaleGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


class Fp32GroupNorm(nn.GroupNorm):
    def forward(self, input):
        output = F.group_norm(
            input.float(),
            self.num_groups,
            self.weight.float() if self.weight is not None else None,
            self.bias.float() if self.bias is not None else None,
            self.eps,
        )
        return output.type_as(input)


class SamePad(nn.Module):
    def __init__(self, kernel_size):
        super().__init__()
        self.remove = 1 if kernel_size % 2 == 0 else 0

    def forward(self, x):
        if self.remove > 0:
            x = x[:, :, : -self.remove]
        return x


class ConvFeatureExtractionModel(nn.Module):
    def __init__(self, conv_layers, dropout=0.0):
        super().__init__()

        def block(n_in, n_out, k, stride, is_group_norm=False):
            conv = nn.Conv1d(n_in, n_out, k, stride=stride, bias=False)
            nn.init.kaiming_normal_(conv.weight)
            if is_group_norm:
                return nn.Sequential(conv, nn.Dropout(p=dropout), Fp32GroupNorm(n_out, n_out, affine=True), nn.GELU())
            return nn.Sequential(conv, nn.Dropout(p=dropout), nn.GELU())

        in_d = 1
        self.conv_layers = nn.ModuleList()
        for i, (dim, k, stride) in enumerate(conv_layers):
            self.conv_layers.append(block(in_d, dim, k, stride, is_group_norm=(i == 0)))
            in_d = dim

    def forward(self, x):
        x = x.unsqueeze(1)  # BxT -> BxCxT
        for conv in self.conv_layers:
            x = conv(x)
        return x


class GumbelVectorQuantizer(nn.Module):
    def __init__(self, dim, num_vars, temp, groups, vq_dim):
        super().__init__()
        self.groups = groups
        self.num_vars = num_vars
        var_dim = vq_dim // groups
        self.vars = nn.Parameter(torch.FloatTensor(1, groups * num_vars, var_dim))
        nn.init.uniform_(self.vars)
        self.weight_proj = nn.Linear(dim, groups * num_vars)
        nn.init.normal_(self.weight_proj.weight, mean=0, std=1)
        nn.init.zeros_(self.weight_proj.bias)
        self.curr_temp = temp

    def forward(self, x):
        result = {"num_vars": self.num_vars * self.groups}
        bsz, tsz, fsz = x.shape
        x = x.reshape(-1, fsz)
        x = self.weight_proj(x)
        x = x.view(bsz * tsz * self.groups, -1)

        with torch.no_grad():
            _, k = x.max(-1)
            hard_x = x.new_zeros(*x.shape).scatter_(-1, k.view(-1, 1), 1.0).view(bsz * tsz, self.groups, -1)
            hard_probs = torch.mean(hard_x.float(), dim=0)
            result["code_perplexity"] = torch.exp(
                -torch.sum(hard_probs * torch.log(hard_probs + 1e-7), dim=-1)
            ).sum()

        avg_probs = torch.softmax(x.view(bsz * tsz, self.groups, -1).float(), dim=-1).mean(dim=0)
        result["prob_perplexity"] = torch.exp(
            -torch.sum(avg_probs * torch.log(avg_probs + 1e-7), dim=-1)
        ).sum()

        x = F.gumbel_softmax(x.float(), tau=self.curr_temp, hard=True).type_as(x)
        x = x.view(bsz * tsz, -1)
        x = x.unsqueeze(-1) * self.vars
        x = x.view(bsz * tsz, self.groups, self.num_vars, -1)
        x = x.sum(-2)
        result["x"] = x.view(bsz, tsz, -1)
        return result


class TransformerSentenceEncoderLayer(nn.Module):
    def __init__(self, d, ffn, heads, dropout=0.1):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d, heads, dropout=dropout)
        self.self_attn_layer_norm = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, ffn)
        self.fc2 = nn.Linear(ffn, d)
        self.final_layer_norm = nn.LayerNorm(d)
        self.dropout1 = nn.Dropout(dropout)
        self.dropout2 = nn.Dropout(0.0)
        self.dropout3 = nn.Dropout(dropout)

    def forward(self, x):
        residual = x
        x, _ = self.self_attn(query=x, key=x, value=x, need_weights=False)
        x = self.dropout1(x)
        x = residual + x
        x = self.self_attn_layer_norm(x)

        residual = x
        x = F.gelu(self.fc1(x))
        x = self.dropout2(x)
        x = self.fc2(x)
        x = self.dropout3(x)
        x = residual + x
        return self.final_layer_norm(x)


class TransformerEncoder(nn.Module):
    def __init__(self, d=384, ffn=1536, heads=6, layers=6, conv_pos=64, conv_pos_groups=16):
        super().__init__()
        pos_conv = nn.Conv1d(d, d, kernel_size=conv_pos, padding=conv_pos // 2, groups=conv_pos_groups)
        nn.init.normal_(pos_conv.weight, mean=0, std=(4.0 / (conv_pos * d)) ** 0.5)
        nn.init.constant_(pos_conv.bias, 0)
        pos_conv = nn.utils.parametrizations.weight_norm(pos_conv, name="weight", dim=2)
        self.pos_conv = nn.Sequential(pos_conv, SamePad(conv_pos), nn.GELU())
        self.layers = nn.ModuleList([TransformerSentenceEncoderLayer(d, ffn, heads) for _ in range(layers)])
        self.layer_norm = nn.LayerNorm(d)

    def forward(self, x):
        x_conv = self.pos_conv(x.transpose(1, 2))
        x = x + x_conv.transpose(1, 2)
        x = self.layer_norm(x)
        x = F.dropout(x, p=0.1, training=self.training)
        x = x.transpose(0, 1)  # B x T x C -> T x B x C
        for layer in self.layers:
            x = layer(x)
        return x.transpose(0, 1)


class Model(nn.Module):
    def __init__(self, d=384, final_dim=128, n_negatives=50, logit_temp=0.1, feature_grad_mult=0.1):
        super().__init__()
        embed = CONV_LAYERS[-1][0]
        self.feature_extractor = ConvFeatureExtractionModel(CONV_LAYERS)
        self.layer_norm = nn.LayerNorm(embed)
        self.post_extract_proj = nn.Linear(embed, d)
        self.dropout_input = nn.Dropout(0.1)
        self.dropout_features = nn.Dropout(0.1)
        self.mask_emb = nn.Parameter(torch.FloatTensor(d).uniform_())
        self.encoder = TransformerEncoder(d)
        self.quantizer = GumbelVectorQuantizer(embed, 160, temp=2.0, groups=2, vq_dim=final_dim)
        self.project_q = nn.Linear(final_dim, final_dim)
        self.final_proj = nn.Linear(d, final_dim)
        self.n_negatives = n_negatives
        self.logit_temp = logit_temp
        self.feature_grad_mult = feature_grad_mult

    def sample_negatives(self, y):
        bsz, tsz, fsz = y.shape
        with torch.no_grad():
            tszs = torch.arange(tsz, device=y.device).unsqueeze(-1).expand(-1, self.n_negatives).flatten()
            neg_idxs = torch.randint(low=0, high=tsz - 1, size=(bsz, self.n_negatives * tsz), device=y.device)
            neg_idxs = torch.where(neg_idxs >= tszs, neg_idxs + 1, neg_idxs)  # never the positive itself
            neg_idxs = neg_idxs + torch.arange(bsz, device=y.device).unsqueeze(1) * tsz
        negs = y.reshape(-1, fsz)[neg_idxs.view(-1)]
        return negs.view(bsz, tsz, self.n_negatives, fsz).permute(2, 0, 1, 3)  # NxBxTxC

    def forward(self, source, mask_indices):
        features = self.feature_extractor(source)
        features = ScaleGrad.apply(features, self.feature_grad_mult)
        features_pen = features.float().pow(2).mean()

        features = self.layer_norm(features.transpose(1, 2))
        unmasked_features = self.dropout_features(features)
        x = self.dropout_input(self.post_extract_proj(features))
        mask = mask_indices > 0.5
        x = torch.where(mask.unsqueeze(-1), self.mask_emb, x)
        x = self.final_proj(self.encoder(x))

        q = self.quantizer(unmasked_features)
        y = self.project_q(q["x"])
        negs = self.sample_negatives(y)
        targets = torch.cat([y.unsqueeze(0), negs], dim=0)
        logits = torch.cosine_similarity(x.float(), targets.float(), dim=-1) / self.logit_temp  # (1+N) B T
        neg_is_pos = (y == negs).all(-1)
        logits = torch.cat([logits[:1], logits[1:].masked_fill(neg_is_pos, float("-inf"))], 0)

        nll = -F.log_softmax(logits, dim=0)[0]
        loss = (nll * mask_indices).sum() / mask_indices.sum()
        diversity = (q["num_vars"] - q["prob_perplexity"]) / q["num_vars"]
        total = loss + 0.1 * diversity + 10 * features_pen
        return {"loss": total, "code_perplexity": q["code_perplexity"], "features": x}


def inputs(batch):
    T = conv_out_len(NUM_SAMPLES)
    m = torch.zeros(batch, T)
    for start in (3, 20, 41, 58):
        m[:, start:start + 10] = 1.0
    return torch.randn(batch, NUM_SAMPLES), m
