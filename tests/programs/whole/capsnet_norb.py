import torch
import torch.nn as nn
import torch.nn.functional as F
# Dynamic Routing Between Capsules (Sabour, Frosst, Hinton) for smallNORB
# input: stereo pair 2 x 48 x 48, random crop to 32 is done by the loader, 5 classes
# NOTE the routing loop runs on a detached copy except for the last iteration (saves a lot of memory)

NUM_CLASSES = 5
NUM_ROUTING = 3


class Squash(torch.autograd.Function):
    """ v = |s|^2/(1+|s|^2) * s/|s|    hand written backward, autograd gave NaN at s = 0 """
    @staticmethod
    def forward(ctx, s):
        n2 = (s * s).sum(-1, keepdim=True)
        n = torch.sqrt(n2 + 1e-9)
        ctx.save_for_backward(s, n)
        return s * (n / (1. + n2))

    @staticmethod
    def backward(ctx, g):
        s, n = ctx.saved_tensors
        n2 = n * n
        k = n / (1. + n2)
        # dk/dn = (1 - n^2) / (1 + n^2)^2 ; dn/ds = s / n
        dk = (1. - n2) / ((1. + n2) ** 2)
        dot = (g * s).sum(-1, keepdim=True)
        return g * k + s * (dot * dk / n)


squash = Squash.apply


class ConvStem(nn.Module):
    def __init__(self, out_ch=192):
        super(ConvStem, self).__init__()
        self.conv0 = nn.Conv2d(2, 64, 5, padding=2)
        self.bn0 = nn.BatchNorm2d(64)
        self.conv1 = nn.Conv2d(64, out_ch, 9)
        self.bn1 = nn.BatchNorm2d(out_ch)

    def forward(self, x):
        x = F.relu(self.bn0(self.conv0(x)), inplace=True)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return x


class PrimaryCaps(nn.Module):
    def __init__(self, in_ch, n_maps=24, dim=8, k=9, stride=2):
        super(PrimaryCaps, self).__init__()
        self.capsules = nn.ModuleList([
            nn.Conv2d(in_ch, n_maps, kernel_size=k, stride=stride) for _ in range(dim)])

    def forward(self, x):
        u = [c(x) for c in self.capsules]
        u = torch.stack(u, dim=-1)               # b, maps, h, w, 8
        u = u.view(u.size(0), -1, len(self.capsules))
        return squash(u)


class RoutingCaps(nn.Module):
    def __init__(self, n_in, d_in, n_out, d_out, iters=NUM_ROUTING):
        super(RoutingCaps, self).__init__()
        self.W = nn.Parameter(0.05 * torch.randn(n_in, n_out, d_out, d_in))
        self.bias = nn.Parameter(torch.zeros(1, 1, n_out, d_out))
        self.iters = iters

    def forward(self, x):
        # x: b, i, d_in     u_hat: b, i, j, d_out
        u_hat = torch.einsum('ijop,bip->bijo', self.W, x)
        u_det = u_hat.detach()
        b = torch.zeros_like(u_det[..., 0])
        for r in range(self.iters):
            c = F.softmax(b, dim=2)
            if r < self.iters - 1:
                s = (c.unsqueeze(-1) * u_det).sum(1, keepdim=True) + self.bias.detach()
                v = squash(s)
                b = b + (u_det * v).sum(-1)
            else:
                s = (c.unsqueeze(-1) * u_hat).sum(1, keepdim=True) + self.bias
                v = squash(s)
        return v.squeeze(1), c


class Decoder(nn.Module):
    def __init__(self, d):
        super(Decoder, self).__init__()
        self.fc = nn.Linear(d * NUM_CLASSES, 128 * 4 * 4)
        self.up1 = nn.ConvTranspose2d(128, 64, 4, 2, 1)
        self.up2 = nn.ConvTranspose2d(64, 32, 4, 2, 1)
        self.up3 = nn.ConvTranspose2d(32, 16, 4, 2, 1)
        self.final = nn.Conv2d(16, 2, 3, padding=1)

    def forward(self, v):
        x = F.relu(self.fc(v)).view(-1, 128, 4, 4)
        x = F.relu(self.up1(x))
        x = F.relu(self.up2(x))
        x = F.relu(self.up3(x))
        return torch.sigmoid(self.final(x))


def margin_loss(v_len, onehot, m_pos=0.9, m_neg=0.1, lam=0.5):
    left = F.relu(m_pos - v_len) ** 2
    right = F.relu(v_len - m_neg) ** 2
    return (onehot * left + lam * (1 - onehot) * right).sum(1).mean()


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        self.stem = ConvStem(192)
        self.primary = PrimaryCaps(192)          # 32 -> 24 -> 8, 24*64 = 1536 capsules
        self.mid = RoutingCaps(1536, 8, 32, 12)
        self.digit = RoutingCaps(32, 12, NUM_CLASSES, 16)
        self.decoder = Decoder(16)
        self.recon_weight = 0.0005 * 2048

    def forward(self, img, label):
        x = img - img.mean(dim=(2, 3), keepdim=True)
        x = self.primary(self.stem(x))
        x, c1 = self.mid(x)
        v, c2 = self.digit(x)
        v_len = torch.sqrt((v ** 2).sum(-1) + 1e-8)

        onehot = torch.zeros_like(v_len).scatter_(1, label.unsqueeze(1), 1.)
        loss = margin_loss(v_len, onehot)

        # mask out everything but the true capsule
        recon = self.decoder((v * onehot.unsqueeze(-1)).reshape(v.size(0), -1))
        rec_loss = F.mse_loss(recon, img)

        # entropy of the routing, otherwise all capsules of the middle layer do the same
        usage = c1.mean((0, 1))
        ent = -(usage * torch.log(usage + 1e-8)).sum()
        total = loss + self.recon_weight * rec_loss
        return total, v_len, recon, ent


def inputs(batch):
    return torch.rand(batch, 2, 32, 32), torch.randint(0, NUM_CLASSES, (batch,))
