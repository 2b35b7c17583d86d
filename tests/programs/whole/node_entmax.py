# Neural Oblivious Decision Ensembles, our trimmed version (no lazy data-aware init)
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Function


class Entmax15Function(Function):
    """ exact 1.5-entmax with a custom backward, after Peters et al. 2019 """

    @staticmethod
    def forward(ctx, input, dim=-1):
        ctx.dim = dim
        max_val, _ = input.max(dim=dim, keepdim=True)
        input = (input - max_val) / 2

        Xsrt, _ = torch.sort(input, descending=True, dim=dim)
        d = input.size(dim)
        view = [1] * input.dim()
        view[dim] = -1
        rho = torch.arange(1, d + 1, device=input.device, dtype=input.dtype).view(view)
        mean = Xsrt.cumsum(dim) / rho
        mean_sq = (Xsrt ** 2).cumsum(dim) / rho
        ss = rho * (mean_sq - mean ** 2)
        delta_nz = torch.clamp((1 - ss) / rho, 0)
        tau = mean - torch.sqrt(delta_nz)
        support_size = (tau <= Xsrt).sum(dim).unsqueeze(dim)
        tau_star = tau.gather(dim, support_size - 1)

        output = torch.clamp(input - tau_star, min=0) ** 2
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        Y, = ctx.saved_tensors
        gppr = Y.sqrt()
        dX = grad_output * gppr
        q = dX.sum(ctx.dim) / gppr.sum(ctx.dim)
        q = q.unsqueeze(ctx.dim)
        dX -= q * gppr
        return dX, None


def entmax15(x, dim=-1):
    return Entmax15Function.apply(x, dim)


def entmoid15(x):
    """ entmax15([x, 0]) in closed form """
    is_neg = (x < 0).to(x.dtype)
    x = x.abs()
    tau = (x + torch.sqrt(F.relu(8 - x ** 2))) / 2
    tau = torch.where(tau <= x, torch.full_like(tau, 2.0), tau)
    y_neg = 0.25 * F.relu(tau - x) ** 2
    return is_neg * y_neg + (1 - is_neg) * (1 - y_neg)


class ODST(nn.Module):
    def __init__(self, in_features, num_trees, depth=6, tree_dim=1, flatten_output=True):
        super().__init__()
        self.depth, self.num_trees, self.tree_dim, self.flatten_output = depth, num_trees, tree_dim, flatten_output

        self.response = nn.Parameter(torch.zeros([num_trees, tree_dim, 2 ** depth]).normal_(0, 1))
        self.feature_selection_logits = nn.Parameter(torch.zeros([num_trees, depth, in_features]).uniform_())
        self.feature_thresholds = nn.Parameter(torch.randn(num_trees, depth) * 0.5)
        self.log_temperatures = nn.Parameter(torch.zeros(num_trees, depth))

        with torch.no_grad():
            indices = torch.arange(2 ** depth)
            offsets = 2 ** torch.arange(depth)
            bin_codes = (indices.view(1, -1) // offsets.view(-1, 1) % 2).to(torch.float32)
            bin_codes_1hot = torch.stack([bin_codes, 1.0 - bin_codes], dim=-1)
        self.register_buffer('bin_codes_1hot', bin_codes_1hot)   # [depth, 2 ** depth, 2]

    def forward(self, input):
        selectors = entmax15(self.feature_selection_logits, dim=-1)     # [num_trees, depth, in_features]
        feature_values = torch.einsum('bi,ndi->bnd', input, selectors)

        threshold_logits = (feature_values - self.feature_thresholds) * torch.exp(-self.log_temperatures)
        threshold_logits = torch.stack([-threshold_logits, threshold_logits], dim=-1)
        bins = entmoid15(threshold_logits)                                # [batch, num_trees, depth, 2]

        bin_matches = torch.einsum('btds,dcs->btdc', bins, self.bin_codes_1hot)
        response_weights = torch.prod(bin_matches, dim=-2)                # [batch, num_trees, 2 ** depth]
        response = torch.einsum('bnd,ncd->bnc', response_weights, self.response)
        return response.flatten(1, 2) if self.flatten_output else response

    def __repr__(self):
        return "{}(num_trees={}, depth={}, tree_dim={})".format(
            self.__class__.__name__, self.num_trees, self.depth, self.tree_dim)


class DenseBlock(nn.Sequential):
    def __init__(self, input_dim, layer_dim, num_layers, tree_dim=1, max_features=None, input_dropout=0.0, **kwargs):
        layers = []
        for i in range(num_layers):
            layers.append(ODST(input_dim, layer_dim, tree_dim=tree_dim, flatten_output=True, **kwargs))
            input_dim = min(input_dim + layer_dim * tree_dim, max_features or float('inf'))

        super().__init__(*layers)
        self.num_layers, self.layer_dim, self.tree_dim = num_layers, layer_dim, tree_dim
        self.max_features, self.input_dropout = max_features, input_dropout

    def forward(self, x):
        initial_features = x.shape[-1]
        for layer in self:
            layer_inp = x
            if self.max_features is not None:
                tail_features = min(self.max_features, layer_inp.shape[-1]) - initial_features
                if tail_features != 0:
                    layer_inp = torch.cat([layer_inp[..., :initial_features], layer_inp[..., -tail_features:]], dim=-1)
            if self.training and self.input_dropout:
                layer_inp = F.dropout(layer_inp, self.input_dropout)
            h = layer(layer_inp)
            x = torch.cat([x, h], dim=-1)

        outputs = x[..., initial_features:]
        return outputs.view(*outputs.shape[:-1], self.num_layers * self.layer_dim, self.tree_dim)


class Lambda(nn.Module):
    def __init__(self, func):
        super().__init__()
        self.func = func

    def forward(self, *args, **kwargs):
        return self.func(*args, **kwargs)


class Model(nn.Module):
    num_classes = 7   # covertype

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.BatchNorm1d(54),
            DenseBlock(54, 512, num_layers=3, tree_dim=self.num_classes + 1, depth=6, max_features=1600, input_dropout=0.1),
            Lambda(lambda x: x[..., :self.num_classes].mean(dim=-2)),
        )

    def forward(self, x):
        return self.net(x)


def inputs(batch):
    return (torch.cat([torch.randn(batch, 10), torch.randint(0, 2, (batch, 44)).float()], dim=1),)
