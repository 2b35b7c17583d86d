"""Kalman VAE (Fraccaro et al. 2017): video of a bouncing ball -> pseudo-observations a_t -> LGSSM with
mixture dynamics chosen by an LSTM. Marginal likelihood of a through the filter's innovations."""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

A_DIM, Z_DIM, K = 8, 16, 6


def mT(x): return x.transpose(-1, -2)


def sym(P): return 0.5 * (P + mT(P))


class ResConv(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a = nn.Conv2d(c, c, 3, 1, 1)
        self.b = nn.Conv2d(c, c, 3, 1, 1)
        self.g = nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        return x + self.g * self.b(F.elu(self.a(F.elu(x))))


def encoder(w=48):
    return nn.Sequential(nn.Conv2d(1, w, 5, 2, 2), ResConv(w),
                         nn.ELU(), nn.Conv2d(w, 2 * w, 3, 2, 1), ResConv(2 * w),
                         nn.ELU(), nn.Conv2d(2 * w, w, 3, 2, 1), nn.ELU(),
                         nn.Flatten(), nn.Linear(w * 16, 256), nn.ELU(), nn.Linear(256, 2 * A_DIM))


def decoder(w=48):
    return nn.Sequential(nn.Linear(A_DIM, 256), nn.ELU(), nn.Linear(256, w * 16), nn.Unflatten(1, (w, 4, 4)),
                         nn.Conv2d(w, 4 * w, 3, padding=1), nn.PixelShuffle(2), nn.ELU(), ResConv(w),
                         nn.Conv2d(w, 4 * w, 3, padding=1), nn.PixelShuffle(2), nn.ELU(), ResConv(w),
                         nn.Conv2d(w, 4, 3, padding=1), nn.PixelShuffle(2))


class DynamicsNet(nn.Module):
    """alpha_t = softmax(LSTM(a_{0:t-1})), then A_t = sum_k alpha_k A_k and the same for C"""

    def __init__(self):
        super().__init__()
        self.a0 = nn.Parameter(torch.zeros(1, 1, A_DIM))
        self.lstm = nn.LSTM(A_DIM, 128, batch_first=True)
        self.out = nn.Linear(128, K)
        self.A = nn.Parameter(torch.eye(Z_DIM).repeat(K, 1, 1) + 0.02 * torch.randn(K, Z_DIM, Z_DIM))
        self.C = nn.Parameter(0.3 * torch.randn(K, A_DIM, Z_DIM))

    def forward(self, a):
        shifted = torch.cat([self.a0.expand(a.shape[0], -1, -1), a[:, :-1]], dim=1)
        h, _ = self.lstm(shifted)
        alpha = F.softmax(self.out(h), -1)
        A = torch.einsum('btk,kij->btij', alpha, self.A)
        C = torch.einsum('btk,kij->btij', alpha, self.C)
        return A, C, alpha


class Model(nn.Module):
    def __init__(self, recon_scale=0.3):
        super().__init__()
        self.recon_scale = recon_scale
        self.enc, self.dec, self.dyn = encoder(), decoder(), DynamicsNet()
        self.log_q = nn.Parameter(torch.full((Z_DIM,), math.log(0.08)))
        self.log_r = nn.Parameter(torch.full((A_DIM,), math.log(0.03)))
        self.register_buffer('mu0', torch.zeros(Z_DIM, 1))
        self.register_buffer('P0', 4.0 * torch.eye(Z_DIM))
        self.register_buffer('I', torch.eye(Z_DIM), persistent=False)

    @property
    def Q(self):
        return self.log_q.exp().diag()

    @property
    def R(self):
        return torch.diag(self.log_r.exp())

    def kalman_filter(self, a, A, C):
        B, T, _ = a.shape
        mu, P = self.mu0.expand(B, -1, -1), self.P0.expand(B, -1, -1)
        Q, R = self.Q, self.R
        loglik = 0.
        filt, pred = [], []
        for t in range(T):
            At, Ct = A[:, t], C[:, t]
            if t > 0:
                mu = At @ mu
                P = sym(At @ P @ mT(At)) + Q
            pred.append((mu, P))
            # innovation
            r = a[:, t].unsqueeze(-1) - Ct @ mu
            S = sym(Ct @ P @ mT(Ct)) + R
            L = torch.linalg.cholesky(S)
            w = torch.linalg.solve_triangular(L, r, upper=False)
            loglik = loglik - 0.5 * w.pow(2).sum((-2, -1)) - L.diagonal(dim1=-2, dim2=-1).log().sum(-1) \
                - 0.5 * A_DIM * math.log(2 * math.pi)
            # Joseph form
            G = mT(torch.cholesky_solve(Ct @ P, L))
            mu = mu + G @ r
            IGC = self.I - G @ Ct
            P = IGC @ P @ mT(IGC) + G @ R @ mT(G)
            filt.append((mu, P))
        return filt, pred, loglik

    def rts(self, filt, pred, A):
        mu, P = filt[-1]
        out = [mu]
        for t in reversed(range(len(filt) - 1)):
            (mf, Pf), (mp, Pp) = filt[t], pred[t + 1]
            J = mT(torch.linalg.solve(Pp, A[:, t + 1] @ Pf))
            mu = mf + J @ (mu - mp)
            P = Pf + J @ (P - Pp) @ mT(J)
            out.insert(0, mu)
        return torch.stack(out, 1).squeeze(-1), P

    def forward(self, video, eps):
        B, T = video.shape[:2]
        mean, logvar = self.enc(video.reshape(B * T, 1, *video.shape[2:])).view(B, T, -1).chunk(2, -1)
        logvar = logvar.clamp(-8, 4)
        a = mean + eps * (0.5 * logvar).exp()

        x_hat = self.dec(a.flatten(0, 1)).view(B, T, *video.shape[2:])
        log_px = -F.binary_cross_entropy_with_logits(x_hat, video, reduction='none').sum((1, 2, 3))
        log_qa = (-0.5 * (eps ** 2 + logvar + math.log(2 * math.pi))).sum((1, 2))

        A, C, alpha = self.dyn(a)
        filt, pred, log_pa = self.kalman_filter(a, A, C)
        z, _ = self.rts(filt, pred, A)
        a_smooth = torch.einsum('btij,btj->bti', C, z)

        elbo = self.recon_scale * log_px + log_pa - log_qa
        return {'loss': -elbo.mean() / T, 'smooth_mse': F.mse_loss(a_smooth, a), 'alpha': alpha}


def inputs(batch):
    T = 16
    return (torch.rand(batch, T, 32, 32) > 0.8).float(), torch.randn(batch, T, A_DIM)
