import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoRALinear(nn.Module):
    """Frozen linear + low rank update  W x + (alpha / r) B A x"""

    def __init__(self, base: nn.Linear, r=8, alpha=16, dropout=0.05):
        super().__init__()
        self.base = base
        for p in self.base.parameters():
            p.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(r, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.scaling = alpha / r
        self.lora_dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.base(x) + (self.lora_dropout(x) @ self.lora_A.T @ self.lora_B.T) * self.scaling


def inject_lora(model, targets=("q_proj", "v_proj"), **kwargs):
    for name, module in list(model.named_modules()):
        for child_name, child in list(module.named_children()):
            if child_name in targets and isinstance(child, nn.Linear):
                setattr(module, child_name, LoRALinear(child, **kwargs))
    return model


class Attention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.o_proj = nn.Linear(dim, dim)

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = [
            proj(x).view(b, t, self.n_heads, d // self.n_heads).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        ]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(out.transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.ln1 = nn.LayerNorm(dim)
        self.ln2 = nn.LayerNorm(dim)
        self.attn = Attention(dim, n_heads)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 4), nn.GELU(), nn.Linear(dim * 4, dim))

    def forward(self, x, mask):
        # parallel residual as in GPT-J / NeoX
        return x + self.attn(self.ln1(x), mask) + self.mlp(self.ln2(x))


class CausalLM(nn.Module):
    def __init__(self, vocab=4096, dim=256, n_layers=4, n_heads=4, max_len=128):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.wpe = nn.Embedding(max_len, dim)
        self.layers = nn.ModuleList([Layer(dim, n_heads) for _ in range(n_layers)])
        self.ln_f = nn.LayerNorm(dim)

    def forward(self, input_ids, attention_mask):
        t = input_ids.size(1)
        causal = torch.ones(t, t, dtype=torch.bool, device=input_ids.device).tril()
        # keep the diagonal so fully padded rows don't become nan
        keep = causal & attention_mask.bool()[:, None, None, :]
        keep = keep | torch.eye(t, dtype=torch.bool, device=input_ids.device)
        x = self.wte(input_ids) + self.wpe(torch.arange(t, device=input_ids.device))
        for layer in self.layers:
            x = layer(x, keep)
        return F.linear(self.ln_f(x), self.wte.weight)


def get_batch_logps(logits, labels, average_log_prob=False, label_pad=-100):
    labels = labels[:, 1:].clone()
    logits = logits[:, :-1, :]
    loss_mask = labels != label_pad
    labels = labels.masked_fill(~loss_mask, 0)
    per_token_logps = torch.gather(logits.log_softmax(-1), dim=2, index=labels.unsqueeze(2)).squeeze(2)
    if average_log_prob:
        return (per_token_logps * loss_mask).sum(-1) / loss_mask.sum(-1)
    return (per_token_logps * loss_mask).sum(-1)


class Model(nn.Module):
    def __init__(self, beta=0.1, label_smoothing=0.05, sft_weight=0.02):
        super().__init__()
        lm = CausalLM()
        self.reference = CausalLM().eval().requires_grad_(False)
        self.reference.load_state_dict(lm.state_dict())
        self.policy = inject_lora(lm.requires_grad_(False), targets=("q_proj", "v_proj", "o_proj"), r=8)
        self.beta, self.label_smoothing, self.sft_weight = beta, label_smoothing, sft_weight

    def train(self, mode=True):
        super().train(mode)
        self.reference.eval()
        return self

    def concatenated_forward(self, model, chosen, rejected, mask_c, mask_r, lab_c, lab_r):
        ids = torch.cat([chosen, rejected], dim=0)
        mask = torch.cat([mask_c, mask_r], dim=0)
        labels = torch.cat([lab_c, lab_r], dim=0)
        all_logps = get_batch_logps(model(ids, mask), labels)
        return all_logps[:chosen.shape[0]], all_logps[chosen.shape[0]:]

    def forward(self, chosen, rejected, mask_c, mask_r, lab_c, lab_r):
        batch = (chosen, rejected, mask_c, mask_r, lab_c, lab_r)
        policy_chosen, policy_rejected = self.concatenated_forward(self.policy, *batch)
        with torch.no_grad():
            ref_chosen, ref_rejected = self.concatenated_forward(self.reference, *batch)

        pi_logratios = policy_chosen - policy_rejected
        ref_logratios = ref_chosen - ref_rejected
        logits = self.beta * (pi_logratios - ref_logratios)
        losses = -F.logsigmoid(logits) * (1 - self.label_smoothing) - F.logsigmoid(-logits) * self.label_smoothing
        losses = losses - self.sft_weight * policy_chosen

        chosen_rewards = self.beta * (policy_chosen - ref_chosen).detach()
        rejected_rewards = self.beta * (policy_rejected - ref_rejected).detach()
        return losses.mean(), chosen_rewards, rejected_rewards


def inputs(batch):
    T = 96
    out = []
    prompt = torch.randint(1, 4096, (batch, 24))
    ids = [torch.cat([prompt, torch.randint(1, 4096, (batch, T - 24))], 1) for _ in range(2)]
    masks = [torch.ones(batch, T, dtype=torch.long) for _ in range(2)]
    masks[1][:, 80:] = 0
    for i, m in zip(ids, masks):
        l = i.masked_fill(m == 0, -100)
        l[:, :24] = -100
        out.append(l)
    return (*ids, *masks, *out)
