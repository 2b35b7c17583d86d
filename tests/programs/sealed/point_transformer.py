"""Point Transformer for S3DIS / ShapeNetPart, written on top of the pointnet2_pytorch helpers"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def square_distance(src, dst):
    """
    src: [B, N, C], dst: [B, M, C] -> [B, N, M]
    """
    dist = -2 * torch.matmul(src, dst.transpose(1, 2))
    dist += torch.sum(src ** 2, -1)[:, :, None]
    dist += torch.sum(dst ** 2, -1)[:, None, :]
    return dist


def index_points(points, idx):
    """
    points: [B, N, C], idx: [B, S, [K]] -> [B, S, [K], C]
    """
    raw_size = idx.size()
    idx = idx.reshape(raw_size[0], -1)
    res = torch.gather(points, 1, idx[..., None].expand(-1, -1, points.size(-1)))
    return res.reshape(*raw_size, -1)


@torch.no_grad()
def farthest_point_sample(xyz, npoint):
    device = xyz.device
    B, N, C = xyz.shape
    distance = torch.ones(B, N, device=device) * 1e10
    farthest = torch.randint(0, N, (B,), dtype=torch.long, device=device)
    batch_indices = torch.arange(B, dtype=torch.long, device=device)
    centroids = []
    for i in range(npoint):
        centroids.append(farthest)
        centroid = xyz[batch_indices, farthest, :].unsqueeze(1)
        dist = torch.sum((xyz - centroid) ** 2, -1)
        distance = torch.minimum(distance, dist)
        farthest = torch.max(distance, -1)[1]
    return torch.stack(centroids, 1)


@torch.no_grad()
def knn(k, xyz, new_xyz):
    return square_distance(new_xyz, xyz).topk(k, dim=-1, largest=False, sorted=False)[1]


class VectorAttention(nn.Module):
    def __init__(self, d_points, d_model, k):
        super().__init__()
        self.fc1 = nn.Linear(d_points, d_model)
        self.fc2 = nn.Linear(d_model, d_points)
        self.fc_delta = nn.Sequential(nn.Linear(3, d_model), nn.ReLU(), nn.Linear(d_model, d_model))
        self.fc_gamma = nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU(), nn.Linear(d_model, d_model))
        self.w_qs = nn.Linear(d_model, d_model, bias=False)
        self.w_ks = nn.Linear(d_model, d_model, bias=False)
        self.w_vs = nn.Linear(d_model, d_model, bias=False)
        self.k = k

    # xyz: b x n x 3, features: b x n x f
    def forward(self, xyz, features):
        knn_idx = knn(self.k, xyz, xyz)
        knn_xyz = index_points(xyz, knn_idx)
        pre = features
        x = self.fc1(features)
        q, k, v = self.w_qs(x), index_points(self.w_ks(x), knn_idx), index_points(self.w_vs(x), knn_idx)
        pos_enc = self.fc_delta(xyz[:, :, None] - knn_xyz)  # b x n x k x f
        attn = self.fc_gamma(q[:, :, None] - k + pos_enc)
        attn = F.softmax(attn / k.size(-1) ** 0.5, dim=-2)
        res = torch.einsum('bmnf,bmnf->bmf', attn, v + pos_enc)
        return self.fc2(res) + pre


class SetAbstraction(nn.Module):
    def __init__(self, npoint, nsample, in_channel, mlp):
        super().__init__()
        self.npoint = npoint
        self.nsample = nsample
        self.mlp_convs = nn.ModuleList()
        self.mlp_bns = nn.ModuleList()
        last_channel = in_channel + 3
        for out_channel in mlp:
            self.mlp_convs.append(nn.Conv2d(last_channel, out_channel, 1))
            self.mlp_bns.append(nn.BatchNorm2d(out_channel))
            last_channel = out_channel

    def forward(self, xyz, points):
        fps_idx = farthest_point_sample(xyz, self.npoint)
        new_xyz = index_points(xyz, fps_idx)
        idx = knn(self.nsample, xyz, new_xyz)
        grouped_xyz = index_points(xyz, idx) - new_xyz.unsqueeze(2)
        new_points = torch.cat([grouped_xyz, index_points(points, idx)], dim=-1)
        new_points = new_points.permute(0, 3, 2, 1)  # [B, C, nsample, npoint]
        for conv, bn in zip(self.mlp_convs, self.mlp_bns):
            new_points = F.relu(bn(conv(new_points)), inplace=True)
        new_points = torch.max(new_points, 2)[0].transpose(1, 2)
        return new_xyz, new_points


class SwapAxes(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)


def fc_bn(i, o):
    return nn.Sequential(nn.Linear(i, o), SwapAxes(), nn.BatchNorm1d(o), SwapAxes(), nn.ReLU())


class TransitionUp(nn.Module):
    def __init__(self, dim1, dim2, dim_out):
        super().__init__()
        self.fc1 = fc_bn(dim1, dim_out)
        self.fc2 = fc_bn(dim2, dim_out)

    def forward(self, xyz1, points1, xyz2, points2):
        f1, f2 = self.fc1(points1), self.fc2(points2)
        # 3-nn inverse distance interpolation
        dists = square_distance(xyz2, xyz1)
        dists, idx = dists.topk(3, dim=-1, largest=False)
        w = 1.0 / (dists.clamp(min=0) + 1e-8)
        w = w / w.sum(dim=2, keepdim=True)
        return torch.sum(index_points(f1, idx) * w.unsqueeze(-1), dim=2) + f2


class TNet(nn.Module):
    """the small alignment net of PointNet"""

    def __init__(self, k=3):
        super().__init__()
        self.k = k
        self.feat = nn.Sequential(nn.Conv1d(k, 64, 1), nn.BatchNorm1d(64), nn.ReLU(),
                                  nn.Conv1d(64, 256, 1), nn.BatchNorm1d(256), nn.ReLU())
        self.fc = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, k * k))
        nn.init.zeros_(self.fc[-1].weight)
        nn.init.zeros_(self.fc[-1].bias)

    def forward(self, x):
        h = self.feat(x.transpose(1, 2)).max(dim=2)[0]
        return self.fc(h).view(-1, self.k, self.k) + torch.eye(self.k, device=x.device)


class Model(nn.Module):
    N = 1024

    def __init__(self, num_class=50, num_cat=16, nneighbor=16, nblocks=3, transformer_dim=256):
        super().__init__()
        self.tnet = TNet()
        self.fc1 = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32))
        self.transformer1 = VectorAttention(32, transformer_dim // 4, nneighbor)
        self.transition_downs = nn.ModuleList()
        self.transformers = nn.ModuleList()
        for i in range(nblocks):
            channel = 32 * 2 ** (i + 1)
            self.transition_downs.append(
                SetAbstraction(self.N // 4 ** (i + 1), nneighbor, channel // 2, [channel, channel]))
            self.transformers.append(VectorAttention(channel, transformer_dim, min(nneighbor, self.N // 4 ** (i + 1))))
        top = 32 * 2 ** nblocks
        self.cat_emb = nn.Linear(num_cat, top)
        self.fc2 = nn.Sequential(nn.Linear(top, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, top))
        self.transformer2 = VectorAttention(top, transformer_dim, nneighbor)
        self.transition_ups = nn.ModuleList()
        self.up_transformers = nn.ModuleList()
        for i in reversed(range(nblocks)):
            channel = 32 * 2 ** i
            self.transition_ups.append(TransitionUp(channel * 2, channel, channel))
            self.up_transformers.append(VectorAttention(channel, transformer_dim if i else transformer_dim // 4, nneighbor))
        self.fc3 = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, num_class))

    def forward(self, x, cat_onehot, seg):
        xyz = x[..., :3]
        trans = self.tnet(xyz)
        feat_in = torch.cat([torch.bmm(xyz, trans), x[..., 3:]], -1)
        points = self.transformer1(xyz, self.fc1(feat_in))
        pyramid = [(xyz, points)]
        for down, tr in zip(self.transition_downs, self.transformers):
            xyz, points = down(xyz, points)
            points = tr(xyz, points)
            pyramid.append((xyz, points))
        points = points + self.cat_emb(cat_onehot).unsqueeze(1)
        points = self.transformer2(xyz, self.fc2(points))
        for i, (up, tr) in enumerate(zip(self.transition_ups, self.up_transformers)):
            skip_xyz, skip_points = pyramid[-i - 2]
            points = up(xyz, points, skip_xyz, skip_points)
            xyz = skip_xyz
            points = tr(xyz, points)
        logits = self.fc3(points)
        loss = F.cross_entropy(logits.flatten(0, 1), seg.flatten(), label_smoothing=0.1)
        # regularise the T-Net to be orthogonal
        eye = torch.eye(3, device=x.device)[None]
        reg = torch.norm(torch.bmm(trans, trans.transpose(2, 1)) - eye, dim=(1, 2)).mean()
        return {'loss': loss + 1e-3 * reg, 'logits': logits}


def inputs(batch):
    n = Model.N
    xyz = torch.rand(batch, n, 3) * 2 - 1
    normal = F.normalize(torch.randn(batch, n, 3), dim=-1)
    cat = F.one_hot(torch.randint(0, 16, (batch,)), 16).float()
    return torch.cat([xyz, normal], -1), cat, torch.randint(0, 50, (batch, n))
