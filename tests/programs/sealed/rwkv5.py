########################################################################################################
# RWKV-5 "Eagle"-ish, pure pytorch training path (no cuda kernel) -- state is [B, H, N, N]
########################################################################################################
import math
import torch
import torch.nn as nn
from torch.nn import functional as F

T_MAX = 96
VOCAB = 6400
N_LAYER = 4
N_EMBD = 384
HEAD_SIZE = 48
HEAD_DIVISOR = 8


class L2Wrap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, y):
        ctx.save_for_backward(y)
        return loss.clone()

    @staticmethod
    def backward(ctx, grad_output):
        y = ctx.saved_tensors[0]
        # to encourage the logits to be close to 0
        factor = 1e-4 / (y.shape[0] * y.shape[1])
        maxx, ids = torch.max(y, -1, keepdim=True)
        gy = torch.zeros_like(y)
        gy.scatter_(-1, ids, maxx * factor)
        return (grad_output, gy)


def wkv5(r, k, v, w, u):
    # r,k,v: B H T N    w,u: H N
    B, H, T, N = r.shape
    w = torch.exp(-torch.exp(w.float())).view(1, H, N, 1)
    u = u.float().view(1, H, N, 1)
    s = r.new_zeros(B, H, N, N)
    out = []
    for t in range(T):
        kt = k[:, :, t].unsqueeze(-1)
        vt = v[:, :, t].unsqueeze(-2)
        rt = r[:, :, t].unsqueeze(-2)
        at = kt @ vt
        out.append((rt @ (u * at + s)).squeeze(-2))
        s = at + w * s
    return torch.stack(out, dim=2)


class RWKV_TimeMix(nn.Module):
    def __init__(self, layer_id):
        super().__init__()
        self.layer_id = layer_id
        self.n_head = N_EMBD // HEAD_SIZE

        with torch.no_grad():
            ratio_0_to_1 = layer_id / (N_LAYER - 1)  # 0 to 1
            ratio_1_to_almost0 = 1.0 - (layer_id / N_LAYER)  # 1 to ~0
            ddd = torch.ones(1, 1, N_EMBD)
            for i in range(N_EMBD):
                ddd[0, 0, i] = i / N_EMBD

            # fancy time_mix
            self.time_mix_k = nn.Parameter(torch.pow(ddd, ratio_1_to_almost0))
            self.time_mix_v = nn.Parameter(torch.pow(ddd, ratio_1_to_almost0) + 0.3 * ratio_0_to_1)
            self.time_mix_r = nn.Parameter(torch.pow(ddd, 0.5 * ratio_1_to_almost0))
            self.time_mix_g = nn.Parameter(torch.pow(ddd, 0.5 * ratio_1_to_almost0))

            # fancy time_decay
            decay_speed = torch.ones(N_EMBD)
            for n in range(N_EMBD):
                decay_speed[n] = -6 + 5 * (n / (N_EMBD - 1)) ** (0.7 + 1.3 * ratio_0_to_1)
            self.time_decay = nn.Parameter(decay_speed.reshape(self.n_head, HEAD_SIZE))

            tmp = torch.zeros(N_EMBD)
            for n in range(N_EMBD):
                zigzag = ((n + 1) % 3 - 1) * 0.1
                tmp[n] = ratio_0_to_1 * (1 - (n / (N_EMBD - 1))) + zigzag
            self.time_faaaa = nn.Parameter(tmp.reshape(self.n_head, HEAD_SIZE))

        self.time_shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.receptance = nn.Linear(N_EMBD, N_EMBD, bias=False)
        self.key = nn.Linear(N_EMBD, N_EMBD, bias=False)
        self.value = nn.Linear(N_EMBD, N_EMBD, bias=False)
        self.output = nn.Linear(N_EMBD, N_EMBD, bias=False)
        self.gate = nn.Linear(N_EMBD, N_EMBD, bias=False)
        self.ln_x = nn.GroupNorm(self.n_head, N_EMBD)

    def jit_func(self, x):
        B, T, C = x.size()
        H = self.n_head
        xx = self.time_shift(x)  # Mix x with the previous timestep to produce xk, xv, xr
        xk = x * self.time_mix_k + xx * (1 - self.time_mix_k)
        xv = x * self.time_mix_v + xx * (1 - self.time_mix_v)
        xr = x * self.time_mix_r + xx * (1 - self.time_mix_r)
        xg = x * self.time_mix_g + xx * (1 - self.time_mix_g)

        r = self.receptance(xr).view(B, T, H, -1).transpose(1, 2)
        k = self.key(xk).view(B, T, H, -1).transpose(1, 2)
        v = self.value(xv).view(B, T, H, -1).transpose(1, 2)
        g = F.silu(self.gate(xg))
        return r, k, v, g

    def jit_func_2(self, x, g):
        B, T, C = x.size()
        x = x.view(B * T, C)
        x = self.ln_x(x / HEAD_DIVISOR).view(B, T, C)
        x = self.output(x * g)
        return x

    def forward(self, x):
        B, T, C = x.size()
        r, k, v, g = self.jit_func(x)
        x = wkv5(r, k, v, self.time_decay, self.time_faaaa)
        x = x.transpose(1, 2).reshape(B, T, C)
        return self.jit_func_2(x, g)


class RWKV_ChannelMix(nn.Module):
    def __init__(self, layer_id):
        super().__init__()
        self.time_shift = nn.ZeroPad2d((0, 0, 1, -1))
        with torch.no_grad():
            ratio_1_to_almost0 = 1.0 - (layer_id / N_LAYER)
            x = (torch.arange(N_EMBD) / N_EMBD).view(1, 1, -1)
            self.time_mix_k = nn.Parameter(torch.pow(x, ratio_1_to_almost0))
            self.time_mix_r = nn.Parameter(torch.pow(x, ratio_1_to_almost0))

        hidden_sz = int((N_EMBD * 3.5) // 32 * 32)
        self.key = nn.Linear(N_EMBD, hidden_sz, bias=False)
        self.receptance = nn.Linear(N_EMBD, N_EMBD, bias=False)
        self.value = nn.Linear(hidden_sz, N_EMBD, bias=False)

    def forward(self, x):
        xx = self.time_shift(x)
        xk = x * self.time_mix_k + xx * (1 - self.time_mix_k)
        xr = x * self.time_mix_r + xx * (1 - self.time_mix_r)
        k = self.key(xk)
        k = torch.relu(k) ** 2
        kv = self.value(k)
        return torch.sigmoid(self.receptance(xr)) * kv


class Block(nn.Module):
    def __init__(self, layer_id):
        super().__init__()
        self.layer_id = layer_id
        self.ln1 = nn.LayerNorm(N_EMBD)
        self.ln2 = nn.LayerNorm(N_EMBD)
        if layer_id == 0:
            self.ln0 = nn.LayerNorm(N_EMBD)
        self.att = RWKV_TimeMix(layer_id)
        self.ffn = RWKV_ChannelMix(layer_id)

    def forward(self, x):
        if self.layer_id == 0:
            x = self.ln0(x)
        x = x + self.att(self.ln1(x))
        x = x + self.ffn(self.ln2(x))
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, N_EMBD)
        self.blocks = nn.ModuleList([Block(i) for i in range(N_LAYER)])
        self.ln_out = nn.LayerNorm(N_EMBD)
        self.head = nn.Linear(N_EMBD, VOCAB, bias=False)
        self.generate_init_weight()

    def generate_init_weight(self):
        for n, p in self.named_parameters():
            if p.dim() != 2 or "time_" in n or "ln" in n:
                continue
            if n == "emb.weight":
                nn.init.uniform_(p, a=-1e-4, b=1e-4)
            elif n == "head.weight":
                nn.init.orthogonal_(p, gain=0.5 * math.sqrt(VOCAB / N_EMBD))
            elif any(z in n for z in (".att.output.", ".ffn.value.", ".ffn.receptance.")):
                nn.init.zeros_(p)
            else:
                nn.init.orthogonal_(p, gain=1.0)

    def forward(self, idx, targets):
        x = self.emb(idx)
        for block in self.blocks:
            x = block(x)
        x = self.ln_out(x)
        logits = self.head(x)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return L2Wrap.apply(loss, logits)


def inputs(batch):
    d = torch.randint(VOCAB, (batch, T_MAX + 1))
    return d[:, :-1].clone(), d[:, 1:].clone()
