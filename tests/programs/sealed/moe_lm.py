import math
from functools import partial

import torch
from torch import nn, einsum
import torch.nn.functional as F

# helpers

MIN_EXPERT_CAPACITY = 4

def default(val, default_val):
    return val if val is not None else default_val

def cast_tuple(el):
    return el if isinstance(el, tuple) else (el,)

def top1(t):
    values, index = t.topk(k=1, dim=-1)
    values, index = map(lambda x: x.squeeze(dim=-1), (values, index))
    return values, index

def cumsum_exclusive(t, dim=-1):
    num_dims = len(t.shape)
    num_pad_dims = - dim - 1
    pre_padding = (0, 0) * num_pad_dims
    pre_slice = (slice(None),) * num_pad_dims
    padded_t = F.pad(t, (*pre_padding, 1, 0)).cumsum(dim=dim)
    return padded_t[(..., slice(None, -1), *pre_slice)]

def safe_one_hot(indexes, max_length):
    # positions over capacity are clamped into the last slot; the mask zeroes them anyway
    return F.one_hot(indexes.clamp(max=max_length - 1), max_length)

def init_(t):
    dim = t.shape[-1]
    std = 1 / math.sqrt(dim)
    return t.uniform_(-std, std)

# classes

class GELU_(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))

class Experts(nn.Module):
    def __init__(self, dim, num_experts=8, hidden_dim=None, activation=GELU_):
        super().__init__()
        hidden_dim = default(hidden_dim, dim * 4)
        num_experts = cast_tuple(num_experts)

        w1 = torch.zeros(*num_experts, dim, hidden_dim)
        w2 = torch.zeros(*num_experts, hidden_dim, dim)
        w1 = init_(w1)
        w2 = init_(w2)

        self.w1 = nn.Parameter(w1)
        self.w2 = nn.Parameter(w2)
        self.act = activation()

    def forward(self, x):
        hidden = einsum('... n d, ... d h -> ... n h', x, self.w1)
        hidden = self.act(hidden)
        out = einsum('... n h, ... h d -> ... n d', hidden, self.w2)
        return out

class Top2Gating(nn.Module):
    def __init__(self, dim, num_gates, eps=1e-9, threshold=0.2, capacity_factor=1.25):
        super().__init__()
        self.eps = eps
        self.num_gates = num_gates
        self.w_gating = nn.Parameter(torch.randn(dim, num_gates) * 0.02)
        self.threshold = threshold
        self.capacity_factor = capacity_factor

    def forward(self, x):
        *_, b, group_size, dim = x.shape
        num_gates = self.num_gates

        logits = einsum('... b n d, ... d e -> ... b n e', x.float(), self.w_gating)
        raw_gates = logits.softmax(dim=-1)
        router_z_loss = torch.logsumexp(logits, dim=-1).square().mean()

        # find top 2 experts per position
        gate_1, index_1 = top1(raw_gates)
        mask_1 = F.one_hot(index_1, num_gates).float()
        density_1_proxy = raw_gates

        gates_without_top_1 = raw_gates * (1. - mask_1)
        gate_2, index_2 = top1(gates_without_top_1)
        mask_2 = F.one_hot(index_2, num_gates).float()

        # normalize top2 gate scores
        denom = gate_1 + gate_2 + self.eps
        gate_1 /= denom
        gate_2 /= denom

        # balancing losses
        density_1 = mask_1.mean(dim=-2)
        density_1_proxy = density_1_proxy.mean(dim=-2)
        loss = (density_1_proxy * density_1).mean() * float(num_gates ** 2)

        # second expert is used with probability gate_2 / threshold
        probs = torch.zeros_like(gate_2).uniform_(0., 1.)
        mask_2 = mask_2 * (probs < (gate_2 / max(self.threshold, self.eps))).unsqueeze(-1).float()

        # capacity is per group (= sequence)
        expert_capacity = min(group_size, int((group_size * self.capacity_factor) / num_gates))
        expert_capacity = max(expert_capacity, MIN_EXPERT_CAPACITY)
        expert_capacity_f = float(expert_capacity)

        # compute assignment to experts  -  [batch, group, experts]
        position_in_expert_1 = cumsum_exclusive(mask_1, dim=-2) * mask_1
        mask_1 = mask_1 * (position_in_expert_1 < expert_capacity_f).float()
        mask_1_count = mask_1.sum(dim=-2, keepdim=True)
        mask_1_flat = mask_1.sum(dim=-1)
        position_in_expert_1 = position_in_expert_1.sum(dim=-1)
        gate_1 = gate_1 * mask_1_flat

        position_in_expert_2 = cumsum_exclusive(mask_2, dim=-2) + mask_1_count
        position_in_expert_2 = position_in_expert_2 * mask_2
        mask_2 = mask_2 * (position_in_expert_2 < expert_capacity_f).float()
        mask_2_flat = mask_2.sum(dim=-1)
        position_in_expert_2 = position_in_expert_2.sum(dim=-1)
        gate_2 = gate_2 * mask_2_flat

        # [batch, group, experts, expert_capacity]
        combine_tensor = (
            gate_1[..., None, None]
            * mask_1_flat[..., None, None]
            * F.one_hot(index_1, num_gates)[..., None]
            * safe_one_hot(position_in_expert_1.long(), expert_capacity)[..., None, :] +
            gate_2[..., None, None]
            * mask_2_flat[..., None, None]
            * F.one_hot(index_2, num_gates)[..., None]
            * safe_one_hot(position_in_expert_2.long(), expert_capacity)[..., None, :]
        )

        dispatch_tensor = combine_tensor.bool().to(combine_tensor)
        return dispatch_tensor, combine_tensor, loss, router_z_loss

class MoE(nn.Module):
    def __init__(self, dim, num_experts=8, hidden_dim=None, loss_coef=1e-2, z_coef=1e-3):
        super().__init__()
        self.num_experts = num_experts
        self.gate = Top2Gating(dim, num_gates=num_experts)
        self.experts = Experts(dim, num_experts=num_experts, hidden_dim=hidden_dim)
        self.loss_coef = loss_coef
        self.z_coef = z_coef

    def forward(self, inputs):
        b, n, d, e = *inputs.shape, self.num_experts
        dispatch_tensor, combine_tensor, loss, z_loss = self.gate(inputs)
        expert_inputs = einsum('b n d, b n e c -> e b c d', inputs, dispatch_tensor)

        # now feed the expert inputs through the experts
        orig_shape = expert_inputs.shape
        expert_inputs = expert_inputs.reshape(e, -1, d)
        expert_outputs = self.experts(expert_inputs)
        expert_outputs = expert_outputs.reshape(*orig_shape)

        output = einsum('e b c d, b n e c -> b n d', expert_outputs, combine_tensor)
        return output, loss * self.loss_coef + z_loss * self.z_coef

class Attention(nn.Module):
    def __init__(self, dim, heads=8, dim_head=32, dropout=0.):
        super().__init__()
        self.heads = heads
        self.scale = dim_head ** -0.5
        inner = heads * dim_head
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, inner * 3, bias=False)
        self.to_out = nn.Linear(inner, dim, bias=False)
        self.dropout = nn.Dropout(dropout)
        slopes = torch.tensor([2 ** (-8 * (i + 1) / heads) for i in range(heads)])
        self.register_buffer('slopes', slopes.view(heads, 1, 1), persistent=False)

    def forward(self, x):
        n, h = x.shape[1], self.heads
        x = self.norm(x)
        qkv = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = map(lambda t: t.reshape(t.shape[0], n, h, -1).permute(0, 2, 1, 3), qkv)

        sim = einsum('b h i d, b h j d -> b h i j', q * self.scale, k)
        pos = torch.arange(n, device=x.device)
        sim = sim - self.slopes * (pos[:, None] - pos[None, :]).abs()
        causal_mask = torch.ones((n, n), dtype=torch.bool, device=x.device).triu(1)
        sim = sim.masked_fill(causal_mask, -torch.finfo(sim.dtype).max)

        attn = self.dropout(sim.softmax(dim=-1))
        out = einsum('b h i j, b h j d -> b h i d', attn, v)
        out = out.permute(0, 2, 1, 3).flatten(2)
        return self.to_out(out)

class FeedForward(nn.Sequential):
    def __init__(self, dim, mult=4, dropout=0.):
        super().__init__(
            nn.LayerNorm(dim),
            nn.Linear(dim, dim * mult),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(dim * mult, dim),
        )

class Model(nn.Module):
    def __init__(self, num_tokens=8192, dim=256, depth=6, num_experts=8, moe_every=2):
        super().__init__()
        self.token_emb = nn.Embedding(num_tokens, dim)
        self.layers = nn.ModuleList([])
        Att = partial(Attention, dim, dropout=0.1)
        for ind in range(depth):
            is_moe = (ind + 1) % moe_every == 0
            self.layers.append(nn.ModuleList([
                Att(),
                nn.LayerNorm(dim) if is_moe else nn.Identity(),
                MoE(dim, num_experts=num_experts) if is_moe else FeedForward(dim, dropout=0.1),
            ]))
        self.to_logits = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, num_tokens))

    def forward(self, x, labels):
        x = self.token_emb(x)
        aux_loss = 0.
        for attn, norm, ff in self.layers:
            x = attn(x) + x
            if isinstance(ff, MoE):
                out, loss = ff(norm(x))
                aux_loss = aux_loss + loss
                x = x + out
            else:
                x = x + ff(norm(x))
        logits = self.to_logits(x)
        ce = F.cross_entropy(logits.transpose(1, 2), labels)
        return ce + aux_loss, ce.detach(), aux_loss

def inputs(batch):
    seq = torch.randint(0, 8192, (batch, 193))
    return seq[:, :-1].contiguous(), seq[:, 1:].contiguous()
