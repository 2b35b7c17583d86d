"""
Ali-CCP / KuaiRand ranking: DLRM towers + DCN-v2 (low-rank mixture) + MMoE with ESMM-like loss
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

# feature_name: (vocab, dim)
SPARSE = {
    'user_id': (120000, 32), 'item_id': (90000, 32), 'author_id': (40000, 32), 'cate_1': (60, 32),
    'cate_2': (900, 32), 'city': (380, 32), 'device': (1500, 32), 'age_bucket': (12, 32),
    'gender': (3, 32), 'tab': (16, 32), 'hour': (24, 32), 'upload_type': (40, 32),
}
MULTI = {'tags': (3000, 32, 8), 'interests': (5000, 32, 12), 'query_terms': (20000, 32, 6)}
N_DENSE = 29
HIST_LEN = 50
TASKS = ['click', 'like', 'follow', 'long_view']


def mlp(sizes, bn=True, dropout=0.0):
    layers = []
    for i in range(len(sizes) - 1):
        layers.append(nn.Linear(sizes[i], sizes[i + 1]))
        if bn:
            layers.append(nn.BatchNorm1d(sizes[i + 1]))
        layers.append(nn.ReLU(inplace=True))
        if dropout > 0:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)


class Dice(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.bn = nn.BatchNorm1d(dim, affine=False, eps=1e-8)
        self.alpha = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        shape = x.shape
        p = torch.sigmoid(self.bn(x.reshape(-1, shape[-1]))).view(shape)
        return p * x + (1 - p) * self.alpha * x


class DINAttention(nn.Module):
    """local activation unit of DIN"""

    def __init__(self, dim):
        super().__init__()
        self.fc1 = nn.Linear(dim * 4, 80)
        self.act1 = Dice(80)
        self.fc2 = nn.Linear(80, 40)
        self.act2 = Dice(40)
        self.out = nn.Linear(40, 1)

    def forward(self, query, keys, mask):
        q = query.unsqueeze(1).expand(-1, keys.size(1), -1)
        x = torch.cat([q, keys, q - keys, q * keys], dim=-1)
        x = self.act2(self.fc2(self.act1(self.fc1(x))))
        w = self.out(x).squeeze(-1)
        w = torch.where(mask, w, torch.zeros_like(w))
        return torch.bmm(w.unsqueeze(1), keys).squeeze(1)


class CrossNetMix(nn.Module):
    def __init__(self, in_features, low_rank=64, num_experts=4, layer_num=3):
        super().__init__()
        self.layer_num = layer_num
        self.num_experts = num_experts
        self.U_list = nn.Parameter(torch.empty(layer_num, num_experts, in_features, low_rank))
        self.V_list = nn.Parameter(torch.empty(layer_num, num_experts, in_features, low_rank))
        self.C_list = nn.Parameter(torch.empty(layer_num, num_experts, low_rank, low_rank))
        self.gating = nn.ModuleList([nn.Linear(in_features, 1, bias=False) for _ in range(num_experts)])
        self.bias = nn.Parameter(torch.zeros(layer_num, in_features, 1))
        for para in (self.U_list, self.V_list, self.C_list):
            for i in range(layer_num):
                nn.init.xavier_normal_(para[i])

    def forward(self, x):
        x_0 = x.unsqueeze(2)                    # (bs, in_features, 1)
        x_l = x_0
        for i in range(self.layer_num):
            outs, gates = [], []
            for e in range(self.num_experts):
                gates.append(self.gating[e](x_l.squeeze(2)))
                v_x = torch.matmul(self.V_list[i][e].t(), x_l)
                v_x = torch.tanh(v_x)
                v_x = torch.matmul(self.C_list[i][e], v_x)
                v_x = torch.tanh(v_x)
                uv_x = torch.matmul(self.U_list[i][e], v_x)
                outs.append((x_0 * (uv_x + self.bias[i])).squeeze(2))
            outs = torch.stack(outs, 2)         # (bs, in_features, n_exp)
            gates = torch.stack(gates, 1)       # (bs, n_exp, 1)
            x_l = torch.matmul(outs, gates.softmax(1)) + x_l
        return x_l.squeeze(2)


class DotInteraction(nn.Module):
    def __init__(self, n):
        super().__init__()
        li, lj = torch.tril_indices(n, n, offset=-1)
        self.register_buffer('li', li)
        self.register_buffer('lj', lj)

    def forward(self, feats):
        z = torch.bmm(feats, feats.transpose(1, 2))
        return z[:, self.li, self.lj]


class MMoE(nn.Module):
    def __init__(self, d_in, n_expert=6, expert_dims=(256, 128), tasks=TASKS):
        super().__init__()
        self.experts = nn.ModuleList([mlp([d_in, *expert_dims], dropout=0.1) for _ in range(n_expert)])
        self.gates = nn.ModuleDict({t: nn.Linear(d_in, n_expert, bias=False) for t in tasks})
        self.towers = nn.ModuleDict({
            t: nn.Sequential(mlp([expert_dims[-1], 64], bn=False), nn.Linear(64, 1)) for t in tasks})

    def forward(self, x):
        ex = torch.stack([e(x) for e in self.experts], dim=1)
        res = {}
        for t, gate in self.gates.items():
            g = gate(x).softmax(-1).unsqueeze(1)
            res[t] = self.towers[t](torch.bmm(g, ex).squeeze(1)).squeeze(-1)
        return res


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.ModuleDict({k: nn.Embedding(v, d) for k, (v, d) in SPARSE.items()})
        self.bags = nn.ModuleDict({k: nn.EmbeddingBag(v, d, mode='mean' if k != 'query_terms' else 'sum')
                                   for k, (v, d, _) in MULTI.items()})
        for m in list(self.emb.values()) + list(self.bags.values()):
            nn.init.normal_(m.weight, std=1e-3)
        D = 32
        self.dense_bn = nn.BatchNorm1d(N_DENSE)
        self.bottom = mlp([N_DENSE, 256, 64, D])
        self.din = DINAttention(D)
        n_f = len(SPARSE) + len(MULTI) + 2
        self.dot = DotInteraction(n_f)
        flat = n_f * D
        # SENet-like field re-weighting
        self.senet = nn.Sequential(nn.Linear(n_f, n_f // 3), nn.ReLU(), nn.Linear(n_f // 3, n_f), nn.ReLU())
        self.cross = CrossNetMix(flat)
        self.deep = mlp([flat, 512, 256], dropout=0.1)
        self.mmoe = MMoE(flat + 256 + n_f * (n_f - 1) // 2)
        # uncertainty weights (Kendall)
        self.log_var = nn.ParameterDict({t: nn.Parameter(torch.zeros(())) for t in TASKS})

    def forward(self, dense, sparse, tags, interests, query_terms, hist, labels):
        dense = torch.log1p(dense.clamp(min=0))
        d = self.bottom(self.dense_bn(dense))
        fields = [d]
        for i, name in enumerate(SPARSE):
            fields.append(self.emb[name](sparse[:, i]))
        for name, ids in zip(MULTI, (tags, interests, query_terms)):
            fields.append(self.bags[name](ids))
        h = self.emb['item_id'](hist)
        q = self.emb['item_id'](sparse[:, 1])
        fields.append(self.din(q, h, hist != 0))
        E = torch.stack(fields, 1)
        a = self.senet(E.mean(-1))
        E = E * a.unsqueeze(-1)
        dot = self.dot(E)
        flat = E.flatten(1)
        x = torch.cat([self.cross(flat), self.deep(flat), dot], dim=1)
        logit = self.mmoe(x)

        p_click = torch.sigmoid(logit['click'])
        losses, total = {}, 0.
        for i, t in enumerate(TASKS):
            y = labels[:, i]
            if t == 'click':
                l = F.binary_cross_entropy_with_logits(logit[t], y)
            else:
                # entire space: p(t) = p(click) * p(t | click)
                p = p_click * torch.sigmoid(logit[t])
                l = F.binary_cross_entropy(p.clamp(1e-6, 1 - 1e-6), y * labels[:, 0])
            losses['loss_' + t] = l
            total = total + torch.exp(-self.log_var[t]) * l + 0.5 * self.log_var[t]
        reg = sum(f.pow(2).sum(-1).mean() for f in fields[1:])
        losses['loss'] = total + 1e-5 * reg
        losses['pred'] = torch.stack([torch.sigmoid(logit[t]) for t in TASKS], 1).detach()
        return losses


def inputs(batch):
    sparse = torch.stack([torch.randint(0, v, (batch,)) for v, _ in SPARSE.values()], 1)
    multi = [torch.randint(0, v, (batch, l)) for v, _, l in MULTI.values()]
    hist = torch.randint(0, SPARSE['item_id'][0], (batch, HIST_LEN))
    hist = hist * (torch.rand(batch, HIST_LEN) > 0.3)
    return (torch.rand(batch, N_DENSE) * 50, sparse, *multi, hist,
            (torch.rand(batch, len(TASKS)) < 0.3).float())
