"""Deep generative model for scRNA-seq counts: latent z, latent library size,
batch covariate, ZINB likelihood with gene(-batch) dispersion."""
from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Literal

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence as kl
from torch.nn.functional import one_hot, softplus


def log_zinb_positive(x, mu, theta, pi, eps=1e-8):
    """Log likelihood of a minibatch under a ZINB (mean / inverse dispersion / dropout logits)."""
    softplus_pi = softplus(-pi)
    log_theta_eps = torch.log(theta + eps)
    log_theta_mu_eps = torch.log(theta + mu + eps)
    pi_theta_log = -pi + theta * (log_theta_eps - log_theta_mu_eps)

    case_zero = softplus(pi_theta_log) - softplus_pi
    mul_case_zero = torch.mul((x < eps).type(torch.float32), case_zero)

    case_non_zero = (
        -softplus_pi
        + pi_theta_log
        + x * (torch.log(mu + eps) - log_theta_mu_eps)
        + torch.lgamma(x + theta)
        - torch.lgamma(theta)
        - torch.lgamma(x + 1)
    )
    mul_case_non_zero = torch.mul((x > eps).type(torch.float32), case_non_zero)
    return mul_case_zero + mul_case_non_zero


class FCLayers(nn.Module):
    """Fully-connected stack; the one-hot covariates are injected at every layer."""

    def __init__(
        self,
        n_in: int,
        n_out: int,
        n_cat_list: Iterable[int] = (),
        n_layers: int = 1,
        n_hidden: int = 128,
        dropout_rate: float = 0.1,
        use_batch_norm: bool = True,
        use_layer_norm: bool = False,
        inject_covariates: bool = True,
    ):
        super().__init__()
        layers_dim = [n_in] + (n_layers - 1) * [n_hidden] + [n_out]
        self.inject_covariates = inject_covariates
        self.n_cat_list = [n if n > 1 else 0 for n in n_cat_list]
        cat_dim = sum(self.n_cat_list)
        self.fc_layers = nn.Sequential(
            collections.OrderedDict(
                [
                    (
                        f"Layer {i}",
                        nn.Sequential(
                            nn.Linear(a + cat_dim * self.inject_into_layer(i), b),
                            nn.BatchNorm1d(b, momentum=0.01, eps=0.001) if use_batch_norm else nn.Identity(),
                            nn.LayerNorm(b, elementwise_affine=False) if use_layer_norm else nn.Identity(),
                            nn.ReLU(),
                            nn.Dropout(p=dropout_rate) if dropout_rate > 0 else nn.Identity(),
                        ),
                    )
                    for i, (a, b) in enumerate(zip(layers_dim[:-1], layers_dim[1:], strict=True))
                ]
            )
        )

    def inject_into_layer(self, layer_num) -> bool:
        return layer_num == 0 or (layer_num > 0 and self.inject_covariates)

    def forward(self, x: torch.Tensor, *cat_list: torch.Tensor):
        one_hots = [one_hot(c.squeeze(-1), n).to(x.dtype) for n, c in zip(self.n_cat_list, cat_list, strict=True) if n]
        for i, layers in enumerate(self.fc_layers):
            for layer in layers:
                if isinstance(layer, nn.Linear) and self.inject_into_layer(i):
                    x = torch.cat((x, *one_hots), dim=-1)
                x = layer(x)
        return x


class Encoder(nn.Module):
    def __init__(self, n_input, n_output, n_cat_list=(), n_layers=1, n_hidden=128, var_eps=1e-4):
        super().__init__()
        self.encoder = FCLayers(n_input, n_hidden, n_cat_list, n_layers, n_hidden)
        self.mean_encoder = nn.Linear(n_hidden, n_output)
        self.var_encoder = nn.Linear(n_hidden, n_output)
        self.var_eps = var_eps

    def forward(self, x, *cat_list):
        q = self.encoder(x, *cat_list)
        q_m = self.mean_encoder(q)
        q_v = torch.exp(self.var_encoder(q)) + self.var_eps
        dist = Normal(q_m, q_v.sqrt(), validate_args=False)
        return dist, dist.rsample()


class DecoderSCVI(nn.Module):
    def __init__(self, n_input, n_output, n_cat_list=(), n_layers=1, n_hidden=128):
        super().__init__()
        self.px_decoder = FCLayers(n_input, n_hidden, n_cat_list, n_layers, n_hidden, dropout_rate=0)
        self.px_scale_decoder = nn.Sequential(nn.Linear(n_hidden, n_output), nn.Softmax(dim=-1))
        self.px_r_decoder = nn.Linear(n_hidden, n_output)
        self.px_dropout_decoder = nn.Linear(n_hidden, n_output)

    def forward(self, dispersion, z, library, *cat_list):
        px = self.px_decoder(z, *cat_list)
        px_scale = self.px_scale_decoder(px)
        px_dropout = self.px_dropout_decoder(px)
        # clamp to avoid overflow: exp(12) ~ 160000
        px_rate = torch.exp(library.clamp(max=12)) * px_scale
        px_r = self.px_r_decoder(px) if dispersion == "gene-cell" else None
        return px_scale, px_r, px_rate, px_dropout


class Model(nn.Module):
    N_GENES = 4000
    N_BATCH = 6
    N_LABELS = 14

    def __init__(
        self,
        n_hidden: int = 256,
        n_latent: int = 30,
        n_layers: int = 2,
        dispersion: Literal["gene", "gene-batch", "gene-cell"] = "gene-batch",
        n_samples: int = 1,
        kl_weight: float = 1.0,
        classification_ratio: float = 50.0,
    ):
        super().__init__()
        self.dispersion = dispersion
        self.kl_weight = kl_weight
        self.classification_ratio = classification_ratio
        if dispersion == "gene":
            self.px_r = nn.Parameter(torch.randn(self.N_GENES))
        elif dispersion == "gene-batch":
            self.px_r = nn.Parameter(torch.randn(self.N_GENES, self.N_BATCH))
        cats = [self.N_BATCH]
        self.z_encoder = Encoder(self.N_GENES, n_latent, cats, n_layers, n_hidden)
        self.l_encoder = Encoder(self.N_GENES, 1, cats, 1, n_hidden)
        self.decoder = DecoderSCVI(n_latent, self.N_GENES, cats, n_layers, n_hidden)
        self.classifier = nn.Sequential(FCLayers(n_latent, 128, (), 1, 128), nn.Linear(128, self.N_LABELS))
        # empirical library prior, one per batch
        self.register_buffer("library_log_means", torch.full((1, self.N_BATCH), 8.0))
        self.register_buffer("library_log_vars", torch.full((1, self.N_BATCH), 0.5))

    def inference(self, x, batch_index):
        x_ = torch.log1p(x)
        qz, z = self.z_encoder(x_, batch_index)
        ql, library = self.l_encoder(x_, batch_index)
        return dict(z=z, qz=qz, ql=ql, library=library)

    def generative(self, z, library, batch_index):
        px_scale, px_r, px_rate, px_dropout = self.decoder(self.dispersion, z, library, batch_index)
        if self.dispersion == "gene-batch":
            px_r = nn.functional.linear(one_hot(batch_index.squeeze(-1), self.N_BATCH).float(), self.px_r)
        elif self.dispersion == "gene":
            px_r = self.px_r
        px_r = torch.exp(px_r)
        return dict(px_scale=px_scale, px_r=px_r, px_rate=px_rate, px_dropout=px_dropout)

    def loss(self, x, inf, gen, batch_index, labels):
        qz = inf["qz"]
        kl_z = kl(qz, Normal(torch.zeros_like(qz.loc), torch.ones_like(qz.scale), validate_args=False)).sum(dim=1)
        oh = one_hot(batch_index.squeeze(-1), self.N_BATCH).float()
        l_mean = nn.functional.linear(oh, self.library_log_means)
        l_var = nn.functional.linear(oh, self.library_log_vars)
        kl_l = kl(inf["ql"], Normal(l_mean, l_var.sqrt(), validate_args=False)).sum(dim=1)
        reconst = -log_zinb_positive(x, gen["px_rate"], gen["px_r"], gen["px_dropout"]).sum(dim=-1)
        ce = nn.functional.cross_entropy(self.classifier(qz.loc), labels.squeeze(-1))
        total = torch.mean(reconst + self.kl_weight * kl_z + kl_l) + self.classification_ratio * ce
        return total, reconst, kl_z, kl_l

    def forward(self, x, batch_index, labels):
        inf = self.inference(x, batch_index)
        gen = self.generative(inf["z"], inf["library"], batch_index)
        total, reconst, kl_z, kl_l = self.loss(x, inf, gen, batch_index, labels)
        return {
            "loss": total,
            "reconstruction_loss": reconst.detach(),
            "kl_local": (kl_z + kl_l).detach(),
            "z": inf["qz"].loc.detach(),
            "px_scale": gen["px_scale"].detach(),
        }


def inputs(batch):
    counts = torch.poisson(torch.rand(batch, Model.N_GENES) * 2.0)
    return counts, torch.randint(0, Model.N_BATCH, (batch, 1)), torch.randint(0, Model.N_LABELS, (batch, 1))
