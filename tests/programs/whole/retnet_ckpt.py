# RetNet (torchscale layout) with activation checkpointing, language modelling
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class RetNetArgs(object):
    def __init__(self, **kwargs):
        self.decoder_embed_dim = kwargs.pop("decoder_embed_dim", 320)
        self.decoder_value_embed_dim = kwargs.pop("decoder_value_embed_dim", 640)
        self.decoder_retention_heads = kwargs.pop("decoder_retention_heads", 5)
        self.decoder_ffn_embed_dim = kwargs.pop("decoder_ffn_embed_dim", 640)
        self.decoder_layers = kwargs.pop("decoder_layers", 10)
        self.vocab_size = kwargs.pop("vocab_size", 8192)
        self.dropout = kwargs.pop("dropout", 0.05)
        self.checkpoint_activations = kwargs.pop("checkpoint_activations", True)
        self.layernorm_eps = 1e-6
        self.tokens_per_sample = 640


def rotate_every_two(x):
    x1 = x[:, :, :, ::2]
    x2 = x[:, :, :, 1::2]
    x = torch.stack((-x2, x1), dim=-1)
    return x.flatten(-2)


def theta_shift(x, sin, cos):
    return (x * cos) + (rotate_every_two(x) * sin)


def get_activation_fn(activation):
    if activation == "swish":
        return F.silu
    elif activation == "gelu":
        return F.gelu
    raise NotImplementedError


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-6, elementwise_affine=True):
        super().__init__()
        self.eps = eps
        if elementwise_affine:
            self.weight = nn.Parameter(torch.ones(dim))
        else:
            self.register_parameter('weight', None)

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        output = self._norm(x.float()).type_as(x)
        if self.weight is not None:
            output = output * self.weight
        return output


class MultiScaleRetention(nn.Module):
    def __init__(self, args, embed_dim, value_dim, num_heads, gate_fn="swish"):
        super().__init__()
        self.args = args
        self.embed_dim = embed_dim
        self.value_dim = value_dim
        self.num_heads = num_heads
        self.head_dim = self.value_dim // num_heads
        self.key_dim = self.embed_dim // num_heads
        self.scaling = self.key_dim ** -0.5
        self.gate_fn = get_activation_fn(activation=str(gate_fn))
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.v_proj = nn.Linear(embed_dim, value_dim, bias=False)
        self.g_proj = nn.Linear(embed_dim, value_dim, bias=False)
        self.out_proj = nn.Linear(value_dim, embed_dim, bias=False)
        self.group_norm = RMSNorm(self.head_dim, eps=args.layernorm_eps, elementwise_affine=False)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.xavier_uniform_(self.q_proj.weight, gain=2 ** -2.5)
        nn.init.xavier_uniform_(self.k_proj.weight, gain=2 ** -2.5)
        nn.init.xavier_uniform_(self.v_proj.weight, gain=2 ** -2.5)
        nn.init.xavier_uniform_(self.g_proj.weight, gain=2 ** -2.5)
        nn.init.xavier_uniform_(self.out_proj.weight, gain=2 ** -1)

    def parallel_forward(self, qr, kr, v, mask):
        bsz, tgt_len, embed_dim = v.size()
        vr = v.view(bsz, tgt_len, self.num_heads, self.head_dim).transpose(1, 2)
        qk_mat = qr @ kr.transpose(-1, -2)
        qk_mat = qk_mat * mask
        # invariant after normalization
        qk_mat = qk_mat / qk_mat.detach().abs().sum(dim=-1, keepdim=True).clamp(min=1.0, max=5e4)
        output = torch.matmul(qk_mat, vr)
        output = output.transpose(1, 2)
        return output

    def forward(self, x, rel_pos):
        bsz, tgt_len, _ = x.size()
        (sin, cos), inner_mask = rel_pos
        q = self.q_proj(x)
        k = self.k_proj(x)
        v = self.v_proj(x)
        g = self.g_proj(x)
        k *= self.scaling
        q = q.view(bsz, tgt_len, self.num_heads, self.key_dim).transpose(1, 2)
        k = k.view(bsz, tgt_len, self.num_heads, self.key_dim).transpose(1, 2)
        qr = theta_shift(q, sin, cos)
        kr = theta_shift(k, sin, cos)
        output = self.parallel_forward(qr, kr, v, inner_mask)
        output = self.group_norm(output).reshape(bsz, tgt_len, self.head_dim * self.num_heads)
        output = self.gate_fn(g) * output
        return self.out_proj(output)


class GLU(nn.Module):
    def __init__(self, embed_dim, ffn_dim, dropout):
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, ffn_dim, bias=False)
        self.gate = nn.Linear(embed_dim, ffn_dim, bias=False)
        self.fc2 = nn.Linear(ffn_dim, embed_dim, bias=False)
        self.dropout_module = nn.Dropout(dropout)

    def forward(self, x):
        x_shape = x.shape
        x = x.reshape(-1, x.size(-1))
        g = self.gate(x)
        x = self.fc1(x)
        x = F.gelu(x.float()).type_as(x) * g
        x = self.fc2(x)
        x = x.view(x_shape)
        return self.dropout_module(x)


class DropPath(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if self.p == 0. or not self.training:
            return x
        keep = 1 - self.p
        m = x.new_empty((x.shape[0], 1, 1)).bernoulli_(keep)
        m.div_(keep)
        return x * m


class DecoderLayer(nn.Module):
    def __init__(self, args, depth):
        super().__init__()
        self.embed_dim = args.decoder_embed_dim
        self.dropout_module = nn.Dropout(args.dropout)
        self.drop_path = DropPath(0.1 * depth / (args.decoder_layers - 1))
        self.retention = MultiScaleRetention(args, args.decoder_embed_dim, args.decoder_value_embed_dim,
                                             args.decoder_retention_heads)
        self.retention_layer_norm = RMSNorm(self.embed_dim, eps=args.layernorm_eps)
        self.ffn = GLU(args.decoder_embed_dim, args.decoder_ffn_embed_dim, args.dropout)
        self.final_layer_norm = RMSNorm(self.embed_dim, eps=args.layernorm_eps)

    def forward(self, x, retention_rel_pos):
        residual = x
        x = self.retention_layer_norm(x)
        x = self.retention(x, retention_rel_pos)
        x = self.dropout_module(x)
        x = self.drop_path(x)
        x = residual + x
        residual = x
        x = self.final_layer_norm(x)
        x = self.ffn(x)
        x = self.drop_path(x)
        return residual + x


class RetNetRelPos(nn.Module):
    def __init__(self, args):
        super().__init__()
        num_heads = args.decoder_retention_heads
        angle = 1.0 / (10000 ** torch.linspace(0, 1, args.decoder_embed_dim // num_heads // 2))
        angle = angle.unsqueeze(-1).repeat(1, 2).flatten()
        decay = torch.log(1 - 2 ** (-5 - torch.arange(num_heads, dtype=torch.float)))
        self.register_buffer("angle", angle)
        self.register_buffer("decay", decay)

    def forward(self, slen):
        index = torch.arange(slen).to(self.decay)
        sin = torch.sin(index[:, None] * self.angle[None, :])
        cos = torch.cos(index[:, None] * self.angle[None, :])
        mask = torch.tril(torch.ones(slen, slen).to(self.decay))
        mask = torch.masked_fill(index[:, None] - index[None, :], ~mask.bool(), float("inf"))
        mask = torch.exp(mask * self.decay[:, None, None])
        mask = torch.nan_to_num(mask)
        mask = mask / mask.sum(dim=-1, keepdim=True).sqrt()
        return ((sin, cos), mask)


class Model(nn.Module):
    def __init__(self, **kw):
        super().__init__()
        args = RetNetArgs(**kw)
        self.args = args
        self.embed_scale = args.decoder_embed_dim ** 0.5
        self.embed_tokens = nn.Embedding(args.vocab_size, args.decoder_embed_dim)
        nn.init.normal_(self.embed_tokens.weight, mean=0, std=args.decoder_embed_dim ** -0.5)
        self.dropout_module = nn.Dropout(args.dropout)
        self.layers = nn.ModuleList([DecoderLayer(args, i) for i in range(args.decoder_layers)])
        self.layer_norm = RMSNorm(args.decoder_embed_dim)
        self.retnet_rel_pos = RetNetRelPos(args)
        self.output_projection = nn.Linear(args.decoder_embed_dim, args.vocab_size, bias=False)
        self.output_projection.weight = self.embed_tokens.weight

    def _run(self, layer, x, rel):
        if self.args.checkpoint_activations and self.training:
            return checkpoint(layer, x, rel, use_reentrant=False)
        return layer(x, rel)

    def forward(self, prev_output_tokens, target):
        x = self.embed_scale * self.embed_tokens(prev_output_tokens)
        x = self.dropout_module(x)
        rel = self.retnet_rel_pos(prev_output_tokens.size(1))
        inner_states = [x]
        for layer in self.layers:
            x = self._run(layer, x, rel)
            inner_states.append(x)
        x = self.layer_norm(x)
        logits = self.output_projection(x)
        lprobs = F.log_softmax(logits.float(), dim=-1)
        loss = F.nll_loss(lprobs.view(-1, lprobs.size(-1)), target.reshape(-1), ignore_index=1)
        return loss, inner_states[-1].detach()


def inputs(batch):
    x = torch.randint(2, 8192, (batch, 641))
    return x[:, :-1].contiguous(), x[:, 1:].contiguous()
