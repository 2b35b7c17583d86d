import torch, math
from torch import nn

EPS = 1e-8
PERMS = {2: [(0, 1), (1, 0)],
         3: [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]}


class GlobalLayerNorm(nn.Module):
    """gLN"""
    def __init__(self, channel_size):
        super().__init__()
        self.gamma = nn.Parameter(torch.Tensor(1, channel_size, 1))
        self.beta = nn.Parameter(torch.Tensor(1, channel_size, 1))
        self.reset_parameters()

    def reset_parameters(self):
        self.gamma.data.fill_(1)
        self.beta.data.zero_()

    def forward(self, y):
        # y: [M, N, K]
        mean = y.mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
        var = (torch.pow(y - mean, 2)).mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
        return self.gamma * (y - mean) / torch.pow(var + EPS, 0.5) + self.beta


class TemporalBlock(nn.Module):
    def __init__(self, B, H, P, dilation, Sc=None):
        super().__init__()
        self.shared_block = nn.Sequential(
            nn.Conv1d(B, H, 1, bias=False),
            nn.PReLU(),
            GlobalLayerNorm(H),
            nn.Conv1d(H, H, P, padding=(P - 1) * dilation // 2, dilation=dilation, groups=H, bias=False),
            nn.PReLU(),
            GlobalLayerNorm(H),
        )
        self.res = nn.Conv1d(H, B, 1)
        self.skip = nn.Conv1d(H, Sc or B, 1)

    def forward(self, x):
        y = self.shared_block(x)
        return x + self.res(y), self.skip(y)


class TemporalConvNet(nn.Module):
    def __init__(self, N, B, H, P, X, R, C, mask_nonlinear='relu'):
        super().__init__()
        self.C, self.N = C, N
        self.mask_nonlinear = mask_nonlinear
        self.bottleneck = nn.Sequential(GlobalLayerNorm(N), nn.Conv1d(N, B, 1, bias=False))
        repeats = []
        for r in range(R):
            repeats += [TemporalBlock(B, H, P, dilation=2 ** x) for x in range(X)]
        self.blocks = nn.ModuleList(repeats)
        self.mask_conv = nn.Sequential(nn.PReLU(), nn.Conv1d(B, C * N, 1, bias=False))

    def forward(self, mixture_w):
        M, N, K = mixture_w.size()
        x = self.bottleneck(mixture_w)
        skip_sum = 0
        for blk in self.blocks:
            x, s = blk(x)
            skip_sum = skip_sum + s
        score = self.mask_conv(skip_sum).view(M, self.C, N, K)
        if self.mask_nonlinear == 'softmax':
            return torch.softmax(score, dim=1)
        elif self.mask_nonlinear == 'relu':
            return torch.relu(score)
        else:
            raise ValueError("Unsupported mask non-linear function")


def si_snr_pit(source, estimate):
    """
    Args:
        source: [B, C, T]
        estimate: [B, C, T]
    Returns:
        best SI-SNR over speaker permutations, [B]
    """
    C = source.size(1)
    s = source - source.mean(-1, keepdim=True)
    e = estimate - estimate.mean(-1, keepdim=True)
    s_target = s.unsqueeze(1)    # [B, 1, C, T]
    s_estimate = e.unsqueeze(2)  # [B, C, 1, T]
    dot = (s_estimate * s_target).sum(dim=3, keepdim=True)
    energy = (s_target ** 2).sum(dim=3, keepdim=True) + EPS
    proj = dot * s_target / energy
    noise = s_estimate - proj
    snr = (proj ** 2).sum(3) / ((noise ** 2).sum(3) + EPS)
    snr = 10 * torch.log10(snr + EPS)            # [B, C, C]
    snr_set = torch.stack([sum(snr[:, i, j] for i, j in enumerate(p)) for p in PERMS[C]], dim=1)
    max_snr, _ = torch.max(snr_set, dim=1)
    return max_snr / C


class Model(nn.Module):
    def __init__(self, N=128, L=16, B=96, H=192, P=3, X=6, R=2, C=2):
        super().__init__()
        self.L = L
        self.encoder = nn.Conv1d(1, N, kernel_size=L, stride=L // 2, bias=False)
        self.separator = TemporalConvNet(N, B, H, P, X, R, C)
        self.decoder = nn.ConvTranspose1d(N, 1, kernel_size=L, stride=L // 2, bias=False)
        for p in self.parameters():
            if p.dim() > 1 and p.shape[0] != 1:
                nn.init.xavier_normal_(p)

    def separate(self, mixture):
        w = torch.relu(self.encoder(mixture.unsqueeze(1)))
        est_mask = self.separator(w)
        masked = w.unsqueeze(1) * est_mask
        M, C, N, K = masked.shape
        est = self.decoder(masked.reshape(M * C, N, K)).view(M, C, -1)
        # conv stride may eat the tail
        T_origin, T_conv = mixture.size(-1), est.size(-1)
        return nn.functional.pad(est, (0, T_origin - T_conv))

    def forward(self, mixture, sources):
        est = self.separate(mixture)
        loss = 0 - torch.mean(si_snr_pit(sources, est))
        return loss, est.detach()


def inputs(batch):
    T = 8004
    t = torch.arange(T) / 8000.
    f = torch.rand(batch, 2, 1) * 400 + 100
    s = torch.sin(2 * math.pi * f * t) + .05 * torch.randn(batch, 2, T)
    return s.sum(1), s
