# Preference finetuning (ORPO) of our in-house 30M GPT with DoRA adapters.
# Base weights are loaded & frozen; only DoRA factors / magnitudes and layernorm gains get gradients.
import math
from typing import Sequence

import torch
import torch.nn as nn
import torch.nn.functional as F

D, L, H, V, CTX = 448, 7, 7, 9000, 160
TARGETS = ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj")


# ------------------------------------------------------------------ base
class CausalAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(D, D, bias=False)
        self.k_proj = nn.Linear(D, D, bias=False)
        self.v_proj = nn.Linear(D, D, bias=False)
        self.o_proj = nn.Linear(D, D, bias=False)
        inv = 10000 ** (-torch.arange(0, D // H, 2).float() / (D // H))
        ang = torch.outer(torch.arange(CTX).float(), inv)
        ang = torch.cat([ang, ang], dim=-1)
        self.register_buffer("cos", ang.cos(), persistent=False)
        self.register_buffer("sin", ang.sin(), persistent=False)

    def rot(self, x):
        T = x.size(-2)
        x1, x2 = x.chunk(2, dim=-1)
        return x * self.cos[:T] + torch.cat((-x2, x1), dim=-1) * self.sin[:T]

    def forward(self, x, mask):
        B, T, _ = x.shape
        q, k, v = (p(x).view(B, T, H, D // H).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self.rot(q), self.rot(k)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, D))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(D, 3 * D, bias=False)
        self.up_proj = nn.Linear(D, 3 * D, bias=False)
        self.down_proj = nn.Linear(3 * D, D, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(D, eps=1e-6)
        self.self_attn = CausalAttention()
        self.post_attention_layernorm = nn.RMSNorm(D, eps=1e-6)
        self.mlp = MLP()

    def forward(self, x, mask):
        x = x + self.self_attn(self.input_layernorm(x), mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class BaseLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(V, D)
        self.layers = nn.ModuleList(Layer() for _ in range(L))
        self.norm = nn.RMSNorm(D, eps=1e-6)
        self.lm_head = nn.Linear(D, V, bias=False)
        self.lm_head.weight = self.embed_tokens.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, attention_mask):
        T = ids.size(1)
        causal = torch.ones(T, T, dtype=torch.bool, device=ids.device).tril()
        mask = causal[None, None] & attention_mask[:, None, None, :].bool()
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, mask)
        return self.lm_head(self.norm(x))


# ------------------------------------------------------------------ DoRA
class DoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, r: int = 16, alpha: int = 32, dropout: float = 0.05):
        super().__init__()
        self.base = base
        self.base.weight.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(r, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.scaling = alpha / math.sqrt(r)  # rslora
        self.dropout = nn.Dropout(dropout)
        with torch.no_grad():
            self.magnitude = nn.Parameter(base.weight.norm(p=2, dim=1).clone())

    def _weight_norm(self):
        weight = self.base.weight + self.scaling * (self.lora_B @ self.lora_A)
        # section 4.3 of the paper: the norm is treated as a constant
        return torch.linalg.norm(weight, dim=1).detach()

    def forward(self, x):
        mag_norm_scale = (self.magnitude / self._weight_norm()).view(1, -1)
        base_out = self.base(x)
        x = self.dropout(x)
        lora_out = F.linear(F.linear(x, self.lora_A), self.lora_B)
        return base_out + (mag_norm_scale - 1) * base_out + mag_norm_scale * lora_out * self.scaling


def inject_dora(model: nn.Module, targets: Sequence[str], **kw):
    for name, module in list(model.named_modules()):
        for child_name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and child_name in targets:
                setattr(module, child_name, DoRALinear(child, **kw))
    return model


def freeze(model):
    for n, p in model.named_parameters():
        trainable = "lora_" in n or "magnitude" in n or "layernorm" in n
        p.requires_grad_(trainable)


# ------------------------------------------------------------------ ORPO
class Model(nn.Module):
    def __init__(self, beta: float = 0.1):
        super().__init__()
        self.lm = inject_dora(BaseLM(), TARGETS, r=16, alpha=32)
        freeze(self.lm)
        self.beta = beta

    @staticmethod
    def get_batch_logps(logits, labels, loss_mask, average_log_prob=True):
        labels = labels[:, 1:].clone()
        logits = logits[:, :-1, :]
        loss_mask = loss_mask[:, 1:]
        labels = torch.where(loss_mask > 0, labels, torch.zeros_like(labels))
        per_token_logps = torch.gather(logits.log_softmax(-1), dim=2, index=labels.unsqueeze(2)).squeeze(2)
        if average_log_prob:
            return (per_token_logps * loss_mask).sum(-1) / loss_mask.sum(-1)
        return (per_token_logps * loss_mask).sum(-1)

    def odds_ratio_loss(self, policy_chosen_logps, policy_rejected_logps):
        log_odds = (policy_chosen_logps - policy_rejected_logps) - (
            torch.log1p(-torch.exp(policy_chosen_logps)) - torch.log1p(-torch.exp(policy_rejected_logps))
        )
        ratio = F.logsigmoid(log_odds)
        losses = self.beta * ratio
        chosen_rewards = self.beta * policy_chosen_logps.detach()
        rejected_rewards = self.beta * policy_rejected_logps.detach()
        return losses, chosen_rewards, rejected_rewards, ratio.mean().detach(), log_odds.mean().detach()

    def forward(self, chosen_ids, rejected_ids, chosen_mask, rejected_mask, prompt_mask):
        len_chosen = chosen_ids.shape[0]
        # concatenated forward, as in TRL: one pass is cheaper with FSDP
        ids = torch.cat([chosen_ids, rejected_ids], dim=0)
        att = torch.cat([chosen_mask, rejected_mask], dim=0)
        all_logits = self.lm(ids, att)

        completion = att * (1.0 - torch.cat([prompt_mask, prompt_mask], dim=0))
        all_logps = self.get_batch_logps(all_logits, ids, completion)

        chosen_logits = all_logits[:len_chosen]
        nll = F.cross_entropy(
            chosen_logits[:, :-1].reshape(-1, V), chosen_ids[:, 1:].reshape(-1), reduction="none"
        ).view(len_chosen, -1)
        w = chosen_mask[:, 1:]
        nll_loss = (nll * w).sum() / w.sum()

        losses, cr, rr, ratio, log_odds = self.odds_ratio_loss(all_logps[:len_chosen], all_logps[len_chosen:])
        loss = nll_loss - losses.mean()
        return loss, {
            "rewards/chosen": cr,
            "rewards/rejected": rr,
            "rewards/accuracies": (cr > rr).float().mean(),
            "nll_loss": nll_loss.detach(),
            "log_odds_ratio": ratio,
            "log_odds_chosen": log_odds,
        }


def inputs(batch):
    chosen = torch.randint(1, V, (batch, CTX))
    rejected = torch.randint(1, V, (batch, CTX))
    prompt = torch.zeros(batch, CTX)
    prompt[:, :60] = 1
    rejected[:, :60] = chosen[:, :60]
    cm, rm = torch.ones(batch, CTX), torch.ones(batch, CTX)
    rm[:, 140:] = 0
    return chosen, rejected, cm, rm, prompt
