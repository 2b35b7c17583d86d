# Autoformer w/ RevIN for the electricity sub-metering competition
# based on the thuml repo, with the args namespace turned into a class
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class Configs:
    seq_len = 192
    label_len = 96
    pred_len = 96
    enc_in = 21
    dec_in = 21
    c_out = 21
    n_mark = 4
    d_model = 256
    n_heads = 8
    e_layers = 2
    d_layers = 1
    d_ff = 1024
    moving_avg = [13, 25]
    factor = 3
    dropout = 0.05
    activation = 'gelu'


class RevIN(nn.Module):
    def __init__(self, num_features, eps=1e-5, affine=True):
        super(RevIN, self).__init__()
        self.num_features = num_features
        self.eps = eps
        self.affine = affine
        if self.affine:
            self.affine_weight = nn.Parameter(torch.ones(self.num_features))
            self.affine_bias = nn.Parameter(torch.zeros(self.num_features))

    def norm(self, x):
        mean = torch.mean(x, dim=1, keepdim=True).detach()
        stdev = torch.sqrt(torch.var(x, dim=1, keepdim=True, unbiased=False) + self.eps).detach()
        x = x - mean
        x = x / stdev
        if self.affine:
            x = x * self.affine_weight
            x = x + self.affine_bias
        return x, (mean, stdev)

    def denorm(self, x, stats):
        mean, stdev = stats
        if self.affine:
            x = x - self.affine_bias
            x = x / (self.affine_weight + self.eps * self.eps)
        x = x * stdev
        x = x + mean
        return x


class moving_avg(nn.Module):
    """Moving average block to highlight the trend of time series"""
    def __init__(self, kernel_size, stride=1):
        super().__init__()
        self.kernel_size = kernel_size
        self.avg = nn.AvgPool1d(kernel_size=kernel_size, stride=stride, padding=0)

    def forward(self, x):
        # padding on the both ends of time series
        front = x[:, 0:1, :].repeat(1, (self.kernel_size - 1) // 2, 1)
        end = x[:, -1:, :].repeat(1, (self.kernel_size - 1) // 2, 1)
        x = torch.cat([front, x, end], dim=1)
        x = self.avg(x.permute(0, 2, 1))
        return x.permute(0, 2, 1)


class series_decomp_multi(nn.Module):
    """FEDformer style mixture of moving averages"""
    def __init__(self, kernel_sizes):
        super().__init__()
        self.moving_avg = nn.ModuleList([moving_avg(k, stride=1) for k in kernel_sizes])
        self.layer = nn.Linear(1, len(kernel_sizes))

    def forward(self, x):
        mm = []
        for func in self.moving_avg:
            mm.append(func(x).unsqueeze(-1))
        mm = torch.cat(mm, dim=-1)
        w = F.softmax(self.layer(x.unsqueeze(-1)), dim=-1)
        mean = torch.sum(mm * w, dim=-1)
        return x - mean, mean


class my_Layernorm(nn.Module):
    """Special designed layernorm for the seasonal part"""
    def __init__(self, channels):
        super().__init__()
        self.layernorm = nn.LayerNorm(channels)

    def forward(self, x):
        x_hat = self.layernorm(x)
        bias = torch.mean(x_hat, dim=1).unsqueeze(1).repeat(1, x.shape[1], 1)
        return x_hat - bias


class DataEmbedding_wo_pos(nn.Module):
    def __init__(self, c_in, d_model, n_mark, dropout=0.1):
        super().__init__()
        self.value_embedding = nn.Conv1d(c_in, d_model, kernel_size=3, padding=1,
                                         padding_mode='circular', bias=False)
        self.temporal_embedding = nn.Linear(n_mark, d_model, bias=False)
        self.dropout = nn.Dropout(p=dropout)
        nn.init.kaiming_normal_(self.value_embedding.weight, mode='fan_in', nonlinearity='leaky_relu')

    def forward(self, x, x_mark):
        v = self.value_embedding(x.permute(0, 2, 1)).transpose(1, 2)
        return self.dropout(v + self.temporal_embedding(x_mark))


class AutoCorrelationLayer(nn.Module):
    def __init__(self, d_model, n_heads, factor=1, dropout=0.1):
        super().__init__()
        self.n_heads = n_heads
        self.factor = factor
        self.query_projection = nn.Linear(d_model, d_model)
        self.key_projection = nn.Linear(d_model, d_model)
        self.value_projection = nn.Linear(d_model, d_model)
        self.out_projection = nn.Linear(d_model, d_model)

    def time_delay_agg_full(self, values, corr):
        # values, corr: B H E L
        length = values.shape[3]
        init_index = torch.arange(length, device=values.device)
        top_k = int(self.factor * math.log(length))
        weights, delay = torch.topk(corr, top_k, dim=-1)
        tmp_corr = torch.softmax(weights, dim=-1)
        tmp_values = values.repeat(1, 1, 1, 2)
        delays_agg = torch.zeros_like(values).float()
        for i in range(top_k):
            tmp_delay = init_index + delay[..., i].unsqueeze(-1)
            pattern = torch.gather(tmp_values, dim=-1, index=tmp_delay)
            delays_agg = delays_agg + pattern * (tmp_corr[..., i].unsqueeze(-1))
        return delays_agg

    def forward(self, queries, keys, values):
        B, L, _ = queries.shape
        _, S, _ = keys.shape
        H = self.n_heads
        q = self.query_projection(queries).view(B, L, H, -1)
        k = self.key_projection(keys).view(B, S, H, -1)
        v = self.value_projection(values).view(B, S, H, -1)
        if L > S:
            zeros = torch.zeros_like(q[:, :(L - S), :]).float()
            v = torch.cat([v, zeros], dim=1)
            k = torch.cat([k, zeros], dim=1)
        else:
            v = v[:, :L, :, :]
            k = k[:, :L, :, :]

        # period-based dependencies
        q_fft = torch.fft.rfft(q.permute(0, 2, 3, 1).contiguous(), dim=-1)
        k_fft = torch.fft.rfft(k.permute(0, 2, 3, 1).contiguous(), dim=-1)
        res = q_fft * torch.conj(k_fft)
        corr = torch.fft.irfft(res, n=L, dim=-1)
        V = self.time_delay_agg_full(v.permute(0, 2, 3, 1).contiguous(), corr)
        V = V.permute(0, 3, 1, 2).reshape(B, L, -1)
        return self.out_projection(V)


class EncoderLayer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.attention = AutoCorrelationLayer(cfg.d_model, cfg.n_heads, cfg.factor)
        self.conv1 = nn.Conv1d(cfg.d_model, cfg.d_ff, kernel_size=1, bias=False)
        self.conv2 = nn.Conv1d(cfg.d_ff, cfg.d_model, kernel_size=1, bias=False)
        self.decomp1 = series_decomp_multi(cfg.moving_avg)
        self.decomp2 = series_decomp_multi(cfg.moving_avg)
        self.dropout = nn.Dropout(cfg.dropout)
        self.activation = F.relu if cfg.activation == "relu" else F.gelu

    def forward(self, x):
        x = x + self.dropout(self.attention(x, x, x))
        x, _ = self.decomp1(x)
        y = x
        y = self.dropout(self.activation(self.conv1(y.transpose(-1, 1))))
        y = self.dropout(self.conv2(y).transpose(-1, 1))
        res, _ = self.decomp2(x + y)
        return res


class DecoderLayer(EncoderLayer):
    def __init__(self, cfg):
        super().__init__(cfg)
        self.cross_attention = AutoCorrelationLayer(cfg.d_model, cfg.n_heads, cfg.factor)
        self.decomp3 = series_decomp_multi(cfg.moving_avg)
        self.projection = nn.Conv1d(cfg.d_model, cfg.c_out, kernel_size=3, stride=1, padding=1,
                                    padding_mode='circular', bias=False)

    def forward(self, x, cross):
        x = x + self.dropout(self.attention(x, x, x))
        x, trend1 = self.decomp1(x)
        x = x + self.dropout(self.cross_attention(x, cross, cross))
        x, trend2 = self.decomp2(x)
        y = x
        y = self.dropout(self.activation(self.conv1(y.transpose(-1, 1))))
        y = self.dropout(self.conv2(y).transpose(-1, 1))
        x, trend3 = self.decomp3(x + y)
        residual_trend = trend1 + trend2 + trend3
        residual_trend = self.projection(residual_trend.permute(0, 2, 1)).transpose(1, 2)
        return x, residual_trend


class Model(nn.Module):
    def __init__(self, configs=Configs):
        super().__init__()
        self.pred_len = configs.pred_len
        self.label_len = configs.label_len
        self.revin = RevIN(configs.enc_in)
        self.decomp = series_decomp_multi(configs.moving_avg)
        self.enc_embedding = DataEmbedding_wo_pos(configs.enc_in, configs.d_model, configs.n_mark, configs.dropout)
        self.dec_embedding = DataEmbedding_wo_pos(configs.dec_in, configs.d_model, configs.n_mark, configs.dropout)
        self.encoder = nn.ModuleList([EncoderLayer(configs) for _ in range(configs.e_layers)])
        self.enc_norm = my_Layernorm(configs.d_model)
        self.decoder = nn.ModuleList([DecoderLayer(configs) for _ in range(configs.d_layers)])
        self.dec_norm = my_Layernorm(configs.d_model)
        self.projection = nn.Linear(configs.d_model, configs.c_out, bias=True)

    def forward(self, x_enc, x_mark_enc, x_mark_dec, y):
        x_enc, stats = self.revin.norm(x_enc)
        # decomp init
        mean = torch.mean(x_enc, dim=1).unsqueeze(1).repeat(1, self.pred_len, 1)
        zeros = torch.zeros_like(mean)
        seasonal_init, trend_init = self.decomp(x_enc)
        trend = torch.cat([trend_init[:, -self.label_len:, :], mean], dim=1)
        seasonal = torch.cat([seasonal_init[:, -self.label_len:, :], zeros], dim=1)
        # enc
        enc_out = self.enc_embedding(x_enc, x_mark_enc)
        for layer in self.encoder:
            enc_out = layer(enc_out)
        enc_out = self.enc_norm(enc_out)
        # dec
        dec = self.dec_embedding(seasonal, x_mark_dec)
        for layer in self.decoder:
            dec, residual_trend = layer(dec, enc_out)
            trend = trend + residual_trend
        dec = self.projection(self.dec_norm(dec))
        out = self.revin.denorm((trend + dec)[:, -self.pred_len:, :], stats)
        loss = F.mse_loss(out, y) + 0.1 * F.l1_loss(out, y)
        return loss, out


def inputs(batch):
    c = Configs
    return (torch.randn(batch, c.seq_len, c.enc_in),
            torch.rand(batch, c.seq_len, c.n_mark) - 0.5,
            torch.rand(batch, c.label_len + c.pred_len, c.n_mark) - 0.5,
            torch.randn(batch, c.pred_len, c.c_out))
