import torch
import torch.nn as nn
import torch.nn.functional as F

# CS224W final project - molecule property prediction with an edge list
# every graph in the batch comes as (nodes, 2 x edges, edge features), all padded to the same sizes,
# we glue them into a big graph by adding an offset to the node ids.

HID = 160
HEADS = 8


# softmax of the edges that go to the same node
def edge_softmax(score, dst, num_nodes):
    idx = dst.unsqueeze(-1).expand_as(score)
    mx = torch.full((num_nodes, score.shape[1]), -1e9, device=score.device, dtype=score.dtype)
    mx = mx.scatter_reduce(0, idx, score.detach(), reduce='amax')
    score = (score - mx[dst]).exp()
    denom = torch.zeros(num_nodes, score.shape[1], device=score.device, dtype=score.dtype)
    denom.index_add_(0, dst, score)
    return score / (denom[dst] + 1e-12)


class GINELayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.BatchNorm1d(2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, h, e, src, dst):
        m = F.relu(h[src] + e)
        agg = torch.zeros_like(h).index_add(0, dst, m)
        return self.mlp((1 + self.eps) * h + agg)


class GATv2Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.h, self.d = heads, dim // heads
        self.fc_src = nn.Linear(dim, dim)
        self.fc_dst = nn.Linear(dim, dim)
        self.fc_edge = nn.Linear(dim, dim, bias=False)
        self.a = nn.Parameter(torch.empty(1, heads, dim // heads))
        nn.init.xavier_uniform_(self.a)
        self.drop = nn.Dropout(0.1)

    def forward(self, h, e, src, dst):
        n = h.size(0)
        hs = self.fc_src(h)[src]
        hd = self.fc_dst(h)[dst]
        z = F.leaky_relu(hs + hd + self.fc_edge(e), 0.2).view(-1, self.h, self.d)
        alpha = (z * self.a).sum(-1)
        alpha = self.drop(edge_softmax(alpha, dst, n))
        msg = hs.view(-1, self.h, self.d) * alpha.unsqueeze(-1)
        out = h.new_zeros(n, self.h, self.d)
        out = out.index_add(0, dst, msg)
        return out.flatten(1)


class EdgeUpdate(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lin = nn.Linear(3 * dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, e, src, dst):
        return self.norm(e + F.elu(self.lin(torch.cat([h[src], h[dst], e], dim=1))))


class Set2Set(nn.Module):
    """ q_t = LSTM(q*_{t-1}), attention over the nodes of each graph """

    def __init__(self, dim, steps=3):
        super().__init__()
        self.dim = dim
        self.steps = steps
        self.lstm = nn.LSTMCell(2 * dim, dim)

    def forward(self, x, mask):
        B = x.shape[0]
        h = torch.zeros(B, self.dim, device=x.device)
        c = torch.zeros(B, self.dim, device=x.device)
        q_star = torch.zeros(B, 2 * self.dim, device=x.device)
        for _ in range(self.steps):
            h, c = self.lstm(q_star, (h, c))
            att = torch.bmm(x, h.unsqueeze(2)).squeeze(2)
            att = att.masked_fill(mask == 0, float('-inf'))
            att = torch.softmax(att, dim=1)
            r = (att.unsqueeze(1) @ x).squeeze(1)
            q_star = torch.cat([h, r], dim=1)
        return q_star


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.node_enc = nn.Linear(16, HID)
        self.edge_enc = nn.Linear(8, HID)

        convs = []
        for i in range(5):
            if i % 2 == 0:
                convs.append(GINELayer(HID))
            else:
                convs.append(GATv2Layer(HID, HEADS))
        self.convs = nn.ModuleList(convs)
        self.edge_updates = nn.ModuleList([EdgeUpdate(HID) for i in range(4)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(HID) for i in range(5)])
        self.vn_mlps = nn.ModuleList([nn.Sequential(nn.Linear(HID, HID), nn.ReLU()) for i in range(4)])
        self.vn = nn.Embedding(1, HID)

        self.jk = nn.Linear(HID * 6, HID)
        self.readout = Set2Set(HID)
        self.head = nn.Sequential(nn.Linear(2 * HID, HID), nn.ReLU(), nn.Dropout(0.2), nn.Linear(HID, 12))

    def forward(self, x, edge_index, edge_attr, node_mask, y):
        B, N, _ = x.shape
        E = edge_index.shape[2]

        # glue
        offset = torch.arange(B, device=x.device)[:, None] * N
        src = (edge_index[:, 0] + offset).reshape(-1)
        dst = (edge_index[:, 1] + offset).reshape(-1)
        h = self.node_enc(x).reshape(B * N, HID)
        e = self.edge_enc(edge_attr).reshape(B * E, HID)
        keep = node_mask.reshape(B * N, 1)

        vn = self.vn.weight.expand(B, HID)
        outs = [h]
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            h_in = h
            h = h + vn.repeat_interleave(N, dim=0)
            h = norm(conv(h, e, src, dst))
            if i < len(self.convs) - 1:
                h = F.relu(h)
                h = F.dropout(h, 0.1, self.training)
                e = self.edge_updates[i](h, e, src, dst)
                vn = vn + self.vn_mlps[i](vn + (h * keep).reshape(B, N, HID).sum(1))
            h = h + h_in
            outs.append(h)

        h = F.relu(self.jk(torch.cat(outs, dim=-1)))
        h = h.view(B, N, HID)
        g = self.readout(h, node_mask)
        logits = self.head(g)

        loss = F.binary_cross_entropy_with_logits(logits, y)
        return loss, logits


def inputs(batch, N=48, E=640):
    x = torch.randn(batch, N, 16)
    edge_index = torch.randint(0, N - 8, (batch, 2, E))
    edge_attr = torch.rand(batch, E, 8)
    node_mask = torch.ones(batch, N)
    node_mask[:, N - 8:] = 0
    y = torch.randint(0, 2, (batch, 12)).float()
    return x, edge_index, edge_attr, node_mask, y
