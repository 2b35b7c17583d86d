# GATv2 on edge lists without torch_geometric (batch of graphs -> one big disconnected graph)
from typing import Optional, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


def scatter_sum(src: Tensor, index: Tensor, dim_size: int) -> Tensor:
    out = src.new_zeros((dim_size,) + src.shape[1:])
    return out.index_add(0, index, src)


def scatter_max(src: Tensor, index: Tensor, dim_size: int) -> Tensor:
    idx = index.view(-1, 1).expand_as(src)
    out = torch.full((dim_size, src.shape[1]), float("-inf"), dtype=src.dtype, device=src.device)
    return out.scatter_reduce(0, idx, src, reduce="amax", include_self=True)


def edge_softmax(alpha: Tensor, index: Tensor, num_nodes: int) -> Tensor:
    with torch.no_grad():
        amax = scatter_max(alpha, index, num_nodes)[index]
    out = (alpha - amax).exp()
    denom = scatter_sum(out, index, num_nodes)[index] + 1e-16
    return out / denom


class GATv2Conv(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, heads: int, edge_dim: Optional[int] = None,
                 negative_slope: float = 0.2, dropout: float = 0.0):
        super().__init__()
        self.heads, self.out_channels = heads, out_channels
        self.negative_slope, self.dropout = negative_slope, dropout
        self.lin_l = nn.Linear(in_channels, heads * out_channels)
        self.lin_r = nn.Linear(in_channels, heads * out_channels)
        self.lin_edge = nn.Linear(edge_dim, heads * out_channels, bias=False) if edge_dim else None
        self.att = nn.Parameter(torch.empty(1, heads, out_channels))
        self.bias = nn.Parameter(torch.zeros(heads * out_channels))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.xavier_uniform_(self.lin_l.weight)
        nn.init.xavier_uniform_(self.lin_r.weight)
        nn.init.xavier_uniform_(self.att)

    def forward(self, x: Tensor, edge_index: Tuple[Tensor, Tensor], edge_attr: Optional[Tensor] = None):
        H, C = self.heads, self.out_channels
        src, dst = edge_index
        N = x.size(0)
        x_l = self.lin_l(x).view(-1, H, C)
        x_r = self.lin_r(x).view(-1, H, C)
        x_j = x_l.index_select(0, src)
        e = x_j + x_r.index_select(0, dst)
        if edge_attr is not None and self.lin_edge is not None:
            e = e + self.lin_edge(edge_attr).view(-1, H, C)
        e = F.leaky_relu(e, self.negative_slope)
        alpha = (e * self.att).sum(dim=-1)
        alpha = edge_softmax(alpha, dst, N)
        alpha = F.dropout(alpha, p=self.dropout, training=self.training)
        out = scatter_sum(x_j * alpha.unsqueeze(-1), dst, N)
        return out.reshape(-1, H * C) + self.bias


class GraphNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.mean_scale = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x, batch, num_graphs, n):
        mean = scatter_sum(x, batch, num_graphs) / n
        out = x - mean.index_select(0, batch) * self.mean_scale
        var = scatter_sum(out.pow(2), batch, num_graphs) / n
        std = (var + self.eps).sqrt().index_select(0, batch)
        return self.weight * out / std + self.bias


class Model(nn.Module):
    def __init__(self, in_dim=128, hidden=384, heads=8, layers=4, classes=40, edge_dim=16, p=0.1):
        super().__init__()
        self.p = p
        self.encoder = nn.Linear(in_dim, hidden)
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        self.skips = nn.ModuleList()
        for _ in range(layers):
            self.convs.append(GATv2Conv(hidden, hidden // heads, heads, edge_dim, dropout=p))
            self.norms.append(GraphNorm(hidden))
            self.skips.append(nn.Linear(hidden, hidden, bias=False))
        self.jk = nn.Linear(hidden * layers, hidden)
        self.node_head = nn.Linear(hidden, classes)
        self.gate_nn = nn.Sequential(nn.Linear(hidden, hidden // 2), nn.Tanh(), nn.Linear(hidden // 2, 1))
        self.graph_head = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(inplace=True), nn.Dropout(p), nn.Linear(hidden, 1))

    def forward(self, x, edge_index, edge_attr, y, y_graph):
        B, n, _ = x.shape
        ptr = torch.arange(B, device=x.device) * n
        batch = torch.arange(B, device=x.device).repeat_interleave(n)
        src = (edge_index[:, 0] + ptr[:, None]).reshape(-1)
        dst = (edge_index[:, 1] + ptr[:, None]).reshape(-1)
        edge_attr = edge_attr.flatten(0, 1)
        x = F.elu(self.encoder(x.flatten(0, 1)))

        xs = []
        for conv, norm, skip in zip(self.convs, self.norms, self.skips):
            h = conv(x, (src, dst), edge_attr)
            h = norm(h + skip(x), batch, B, n)
            x = F.dropout(F.elu(h, inplace=True), p=self.p, training=self.training)
            xs.append(x)
        x = self.jk(torch.cat(xs, dim=-1))

        logits = self.node_head(x)
        node_loss = F.cross_entropy(logits, y.reshape(-1))

        gate = edge_softmax(self.gate_nn(x), batch, B)
        pooled = torch.cat([scatter_sum(gate * x, batch, B), scatter_max(x, batch, B)], dim=-1)
        pred = self.graph_head(pooled).squeeze(-1)
        graph_loss = F.l1_loss(pred, y_graph)
        return node_loss + 0.5 * graph_loss, logits.view(B, n, -1)


def inputs(batch):
    N, E = 500, 3000
    loops = torch.arange(N).expand(batch, 2, N)
    edges = torch.cat([torch.randint(0, N, (batch, 2, E - N)), loops], dim=2)
    return (torch.randn(batch, N, 128), edges, torch.rand(batch, E, 16),
            torch.randint(0, 40, (batch, N)), torch.randn(batch))
