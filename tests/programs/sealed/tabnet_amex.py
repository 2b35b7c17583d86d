"""TabNet for credit-default data.

One batch element is a customer with 64 statement rows (padded upstream); the rows of one customer
form one *virtual* batch for ghost batch norm.  Row logits are pooled to a customer level score.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Function


# ---------------------------------------------------------------- sparsemax (Martins & Astudillo 2016)
class SparsemaxFunction(Function):
    @staticmethod
    def forward(ctx, input, dim=-1):
        ctx.dim = dim
        max_val, _ = input.max(dim=dim, keepdim=True)
        input = input - max_val  # same numerical stability trick as for softmax
        tau, supp_size = SparsemaxFunction._threshold_and_support(input, dim=dim)
        output = torch.clamp(input - tau, min=0)
        ctx.save_for_backward(supp_size, output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        supp_size, output = ctx.saved_tensors
        dim = ctx.dim
        grad_input = grad_output.clone()
        grad_input = grad_input.masked_fill(output == 0, 0)
        v_hat = grad_input.sum(dim=dim) / supp_size.to(output.dtype).squeeze(dim)
        v_hat = v_hat.unsqueeze(dim)
        return torch.where(output != 0, grad_input - v_hat, grad_input), None

    @staticmethod
    def _threshold_and_support(input, dim=-1):
        input_srt, _ = torch.sort(input, descending=True, dim=dim)
        input_cumsum = input_srt.cumsum(dim) - 1
        rhos = torch.arange(1, input.size(dim) + 1, device=input.device, dtype=input.dtype)
        support = rhos * input_srt > input_cumsum
        support_size = support.sum(dim=dim).unsqueeze(dim)
        tau = input_cumsum.gather(dim, support_size - 1)
        tau = tau / support_size.to(input.dtype)
        return tau, support_size


def sparsemax(x, dim=-1):
    return SparsemaxFunction.apply(x, dim)


def initialize_glu(module, input_dim, output_dim):
    gain = ((input_dim + output_dim) / (4 * input_dim) ** 0.5) ** 0.5
    nn.init.xavier_normal_(module.weight, gain=min(gain, 2.0))


# ---------------------------------------------------------------- layers
class GBN(nn.Module):
    """Ghost batch norm, stats per virtual batch, running stats shared."""

    def __init__(self, dim, virtual_batch_size=64, momentum=0.02, eps=1e-5):
        super().__init__()
        self.vbs, self.momentum, self.eps = virtual_batch_size, momentum, eps
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))

    def forward(self, x):
        if self.training:
            chunks = x.reshape(-1, self.vbs, x.size(-1))
            var, mean = torch.var_mean(chunks, dim=1, keepdim=True, unbiased=False)
            with torch.no_grad():
                self.running_mean.lerp_(mean.mean((0, 1)), self.momentum)
                self.running_var.lerp_(var.mean((0, 1)), self.momentum)
            x = ((chunks - mean) * torch.rsqrt(var + self.eps)).reshape(x.shape)
        else:
            x = (x - self.running_mean) * torch.rsqrt(self.running_var + self.eps)
        return x * self.weight + self.bias


class GLULayer(nn.Module):
    def __init__(self, input_dim, output_dim, fc=None):
        super().__init__()
        self.output_dim = output_dim
        if fc is not None:
            self.fc = fc
        else:
            self.fc = nn.Linear(input_dim, 2 * output_dim, bias=False)
            initialize_glu(self.fc, input_dim, 2 * output_dim)
        self.bn = GBN(2 * output_dim)

    def forward(self, x):
        x = self.bn(self.fc(x))
        return torch.mul(x[:, : self.output_dim], torch.sigmoid(x[:, self.output_dim:]))


class GLUBlock(nn.Module):
    def __init__(self, input_dim, output_dim, n_glu=2, first=False, shared_layers=None):
        super().__init__()
        self.first = first
        self.glu_layers = nn.ModuleList()
        for i in range(n_glu):
            fc = shared_layers[i] if shared_layers is not None else None
            self.glu_layers.append(GLULayer(input_dim if i == 0 else output_dim, output_dim, fc=fc))
        self.register_buffer("scale", torch.sqrt(torch.tensor([0.5])))

    def forward(self, x):
        layers = list(self.glu_layers)
        if self.first:
            x = layers.pop(0)(x)
        for glu in layers:
            x = torch.add(x, glu(x))
            x = x * self.scale
        return x


class FeatTransformer(nn.Module):
    def __init__(self, input_dim, output_dim, shared_layers, n_independent):
        super().__init__()
        self.shared = GLUBlock(input_dim, output_dim, len(shared_layers), first=True, shared_layers=shared_layers)
        self.specifics = GLUBlock(output_dim, output_dim, n_independent)

    def forward(self, x):
        return self.specifics(self.shared(x))


class AttentiveTransformer(nn.Module):
    def __init__(self, input_dim, output_dim):
        super().__init__()
        self.fc = nn.Linear(input_dim, output_dim, bias=False)
        nn.init.xavier_normal_(self.fc.weight)
        self.bn = GBN(output_dim)

    def forward(self, priors, processed_feat):
        x = self.bn(self.fc(processed_feat))
        return sparsemax(torch.mul(x, priors), -1)


class EmbeddingGenerator(nn.Module):
    def __init__(self, cat_dims, emb_dim):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(c, emb_dim) for c in cat_dims])

    def forward(self, cats):
        return torch.cat([emb(cats[:, i]) for i, emb in enumerate(self.embeddings)], dim=1)


CAT_DIMS = [6, 8, 4, 12, 30, 3, 7, 110, 9, 5, 64]
N_CONT = 177
ROWS = 64


class Model(nn.Module):
    def __init__(self, n_d=128, n_a=128, n_steps=5, gamma=1.5, n_independent=2, n_shared=2, emb_dim=4):
        super().__init__()
        self.n_d, self.n_a, self.n_steps, self.gamma = n_d, n_a, n_steps, gamma
        self.epsilon = 1e-15
        self.embedder = EmbeddingGenerator(CAT_DIMS, emb_dim)
        d = N_CONT + emb_dim * len(CAT_DIMS)
        self.input_dim = d
        self.initial_bn = nn.BatchNorm1d(d, momentum=0.01)
        shared = nn.ModuleList()
        for i in range(n_shared):
            shared.append(nn.Linear(d if i == 0 else n_d + n_a, 2 * (n_d + n_a), bias=False))
        self.initial_splitter = FeatTransformer(d, n_d + n_a, shared, n_independent)
        self.feat_transformers = nn.ModuleList()
        self.att_transformers = nn.ModuleList()
        for _ in range(n_steps):
            self.feat_transformers.append(FeatTransformer(d, n_d + n_a, shared, n_independent))
            self.att_transformers.append(AttentiveTransformer(n_a, d))
        self.row_score = nn.Linear(n_d, 1)
        self.final_mapping = nn.Linear(n_d, 2, bias=False)
        # columns of one embedding share one importance
        groups = torch.cat([torch.arange(N_CONT), (N_CONT + torch.arange(len(CAT_DIMS))).repeat_interleave(emb_dim)])
        self.register_buffer("group_of_column", groups)

    def forward(self, cont, cats, row_mask, target):
        b = cont.size(0)
        x = torch.cat([torch.nan_to_num(cont).flatten(0, 1), self.embedder(cats.flatten(0, 1))], dim=1)
        x = self.initial_bn(x)
        prior = torch.ones_like(x)
        M_loss = 0
        att = self.initial_splitter(x)[:, self.n_d:]
        agg = 0
        explain = x.new_zeros(x.size(0), N_CONT + len(CAT_DIMS))
        for step in range(self.n_steps):
            M = self.att_transformers[step](prior, att)
            M_loss = M_loss + torch.mean(torch.sum(torch.mul(M, torch.log(M + self.epsilon)), dim=1))
            prior = torch.mul(self.gamma - M, prior)
            out = self.feat_transformers[step](torch.mul(M, x))
            d = F.relu(out[:, : self.n_d])
            agg = agg + d
            att = out[:, self.n_d:]
            with torch.no_grad():
                explain.index_add_(1, self.group_of_column, M * d.sum(1, keepdim=True))
        M_loss = M_loss / self.n_steps

        rows = agg.view(b, ROWS, self.n_d)
        w = self.row_score(rows).squeeze(-1).masked_fill(row_mask < 0.5, -1e4).softmax(-1)
        logits = self.final_mapping(torch.einsum("br,brd->bd", w, rows))
        loss = F.cross_entropy(logits, target) - 1e-3 * (-M_loss)
        return loss, logits, explain.view(b, ROWS, -1).mean(1)


def inputs(batch):
    cats = torch.stack([torch.randint(0, c, (batch, ROWS)) for c in CAT_DIMS], -1)
    mask = torch.ones(batch, ROWS)
    mask[:, 50:] = 0
    return torch.randn(batch, ROWS, N_CONT), cats, mask, torch.randint(0, 2, (batch,))
