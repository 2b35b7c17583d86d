# DGCNN for ShapeNetPart, mostly the official implementation, with my changes for the label branch
import torch
import torch.nn as nn
import torch.nn.functional as F

NUM_POINTS = 512
NUM_PARTS = 50
K = 20


def knn(x, k):
    inner = -2 * torch.matmul(x.transpose(2, 1), x)
    xx = torch.sum(x ** 2, dim=1, keepdim=True)
    pairwise_distance = -xx - inner - xx.transpose(2, 1)
    return pairwise_distance.topk(k=k, dim=-1)[1]      # (batch_size, num_points, k)


def get_graph_feature(x, k=20, idx=None, dim3=False):
    batch_size = x.size(0)
    num_points = x.size(2)
    x = x.view(batch_size, -1, num_points)
    if idx is None:
        idx = knn(x[:, :3] if dim3 else x, k=k)
    device = x.device

    idx_base = torch.arange(0, batch_size, device=device).view(-1, 1, 1) * num_points
    idx = idx + idx_base
    idx = idx.view(-1)

    _, num_dims, _ = x.size()
    x = x.transpose(2, 1).contiguous()
    feature = x.view(batch_size * num_points, -1)[idx, :]
    feature = feature.view(batch_size, num_points, k, num_dims)
    x = x.view(batch_size, num_points, 1, num_dims).repeat(1, 1, k, 1)

    feature = torch.cat((feature - x, x), dim=3).permute(0, 3, 1, 2).contiguous()
    return feature      # (batch_size, 2*num_dims, num_points, k)


class Transform_Net(nn.Module):
    def __init__(self):
        super(Transform_Net, self).__init__()
        self.k = 3

        self.bn1 = nn.BatchNorm2d(64)
        self.bn2 = nn.BatchNorm2d(128)
        self.bn3 = nn.BatchNorm1d(512)

        self.conv1 = nn.Sequential(nn.Conv2d(6, 64, kernel_size=1, bias=False),
                                   self.bn1,
                                   nn.LeakyReLU(negative_slope=0.2))
        self.conv2 = nn.Sequential(nn.Conv2d(64, 128, kernel_size=1, bias=False),
                                   self.bn2,
                                   nn.LeakyReLU(negative_slope=0.2))
        self.conv3 = nn.Sequential(nn.Conv1d(128, 512, kernel_size=1, bias=False),
                                   self.bn3,
                                   nn.LeakyReLU(negative_slope=0.2))

        self.linear1 = nn.Linear(512, 256, bias=False)
        self.ln3 = nn.LayerNorm(256)
        self.transform = nn.Linear(256, 3 * 3)
        nn.init.constant_(self.transform.weight, 0)
        nn.init.eye_(self.transform.bias.view(3, 3))

    def forward(self, x):
        batch_size = x.size(0)

        x = self.conv1(x)
        x = self.conv2(x)
        x = x.max(dim=-1, keepdim=False)[0]

        x = self.conv3(x)
        x = x.max(dim=-1, keepdim=False)[0]

        x = F.leaky_relu(self.ln3(self.linear1(x)), negative_slope=0.2)
        x = self.transform(x)
        x = x.view(batch_size, 3, 3)
        return x


def conv2d_bn(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 1, bias=False), nn.BatchNorm2d(cout), nn.LeakyReLU(0.2))


def conv1d_bn(cin, cout):
    return nn.Sequential(nn.Conv1d(cin, cout, 1, bias=False), nn.BatchNorm1d(cout), nn.LeakyReLU(0.2, inplace=True))


class Model(nn.Module):
    def __init__(self, seg_num_all=NUM_PARTS, k=K, emb_dims=1024, dropout=0.5):
        super(Model, self).__init__()
        self.seg_num_all = seg_num_all
        self.k = k
        self.transform_net = Transform_Net()

        self.conv1 = conv2d_bn(6, 64)
        self.conv2 = conv2d_bn(64, 64)
        self.conv3 = conv2d_bn(64 * 2, 64)
        self.conv4 = conv2d_bn(64, 64)
        self.conv5 = conv2d_bn(64 * 2, 64)
        self.conv6 = conv1d_bn(192, emb_dims)
        self.conv7 = conv1d_bn(16, 64)
        self.conv8 = conv1d_bn(emb_dims + 64 + 64 * 3, 256)
        self.dp1 = nn.Dropout(p=dropout)
        self.conv9 = conv1d_bn(256, 256)
        self.dp2 = nn.Dropout(p=dropout)
        self.conv10 = conv1d_bn(256, 128)
        self.conv11 = nn.Conv1d(128, self.seg_num_all, kernel_size=1, bias=False)

    def forward(self, x, l):
        batch_size = x.size(0)
        num_points = x.size(2)

        x0 = get_graph_feature(x, k=self.k)
        t = self.transform_net(x0)
        x = x.transpose(2, 1)
        x = torch.bmm(x, t)
        x = x.transpose(2, 1)

        x = get_graph_feature(x.contiguous(), k=self.k)
        x = self.conv1(x)
        x = self.conv2(x)
        x1 = x.max(dim=-1, keepdim=False)[0]

        x = get_graph_feature(x1, k=self.k)
        x = self.conv3(x)
        x = self.conv4(x)
        x2 = x.max(dim=-1, keepdim=False)[0]

        x = get_graph_feature(x2, k=self.k)
        x = self.conv5(x)
        x3 = x.max(dim=-1, keepdim=False)[0]

        x = torch.cat((x1, x2, x3), dim=1)

        x = self.conv6(x)
        x = x.max(dim=-1, keepdim=True)[0]      # (batch_size, emb_dims, 1)

        l = l.view(batch_size, -1, 1)
        l = self.conv7(l)

        x = torch.cat((x, l), dim=1)
        x = x.repeat(1, 1, num_points)
        x = torch.cat((x, x1, x2, x3), dim=1)

        x = self.conv8(x)
        x = self.dp1(x)
        x = self.conv9(x)
        x = self.dp2(x)
        x = self.conv10(x)
        x = self.conv11(x)
        return F.log_softmax(x, dim=1)


def inputs(batch):
    pts = torch.randn(batch, 3, NUM_POINTS)
    pts = pts / pts.norm(dim=1, keepdim=True).clamp(min=1.0)
    onehot = F.one_hot(torch.randint(0, 16, (batch,)), 16).float()
    return pts, onehot
