import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from collections import OrderedDict

# hparams
n_symbols = 150
max_seq_len = 1000
MAX_TEXT = 60
MAX_MEL = 360
n_mel_channels = 80

encoder_layer = 4
decoder_layer = 4
hidden = 256
n_head = 2
conv_filter_size = 768
conv_kernel = (9, 1)
dropout = 0.2
n_bins = 256
n_speaker = 12


def get_sinusoid_encoding_table(n_position, d_hid):
    pos = torch.arange(n_position, dtype=torch.float).unsqueeze(1)
    i = torch.arange(d_hid)
    angle = pos / torch.pow(10000, 2 * torch.div(i, 2, rounding_mode="floor") / d_hid)
    table = torch.zeros(n_position, d_hid)
    table[:, 0::2] = torch.sin(angle[:, 0::2])
    table[:, 1::2] = torch.cos(angle[:, 1::2])
    return table


def get_mask_from_lengths(lengths, max_len):
    ids = torch.arange(0, max_len, device=lengths.device).unsqueeze(0).expand(lengths.shape[0], -1)
    mask = ids >= lengths.unsqueeze(1).expand(-1, max_len)
    return mask


class ScaledDotProductAttention(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature
        self.softmax = nn.Softmax(dim=2)

    def forward(self, q, k, v, mask=None):
        attn = torch.bmm(q, k.transpose(1, 2))
        attn = attn / self.temperature
        if mask is not None:
            attn = attn.masked_fill(mask, -1e9)
        attn = self.softmax(attn)
        return torch.bmm(attn, v), attn


class MultiHeadAttention(nn.Module):
    def __init__(self, n_head, d_model, d_k, d_v, dropout=0.1):
        super().__init__()
        self.n_head, self.d_k, self.d_v = n_head, d_k, d_v
        self.w_qs = nn.Linear(d_model, n_head * d_k)
        self.w_ks = nn.Linear(d_model, n_head * d_k)
        self.w_vs = nn.Linear(d_model, n_head * d_v)
        self.attention = ScaledDotProductAttention(temperature=d_k ** 0.5)
        self.layer_norm = nn.LayerNorm(d_model)
        self.fc = nn.Linear(n_head * d_v, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, q, k, v, mask=None):
        d_k, d_v, n_head = self.d_k, self.d_v, self.n_head
        sz_b, len_q, _ = q.size()
        sz_b, len_k, _ = k.size()
        residual = q
        q = self.w_qs(q).view(sz_b, len_q, n_head, d_k)
        k = self.w_ks(k).view(sz_b, len_k, n_head, d_k)
        v = self.w_vs(v).view(sz_b, len_k, n_head, d_v)
        q = q.permute(2, 0, 1, 3).contiguous().view(-1, len_q, d_k)  # (n*b) x lq x dk
        k = k.permute(2, 0, 1, 3).contiguous().view(-1, len_k, d_k)
        v = v.permute(2, 0, 1, 3).contiguous().view(-1, len_k, d_v)
        mask = mask.repeat(n_head, 1, 1)
        output, attn = self.attention(q, k, v, mask=mask)
        output = output.view(n_head, sz_b, len_q, d_v)
        output = output.permute(1, 2, 0, 3).contiguous().view(sz_b, len_q, -1)
        output = self.dropout(self.fc(output))
        return self.layer_norm(output + residual), attn


class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_in, d_hid, kernel_size, dropout=0.1):
        super().__init__()
        self.w_1 = nn.Conv1d(d_in, d_hid, kernel_size=kernel_size[0], padding=(kernel_size[0] - 1) // 2)
        self.w_2 = nn.Conv1d(d_hid, d_in, kernel_size=kernel_size[1], padding=(kernel_size[1] - 1) // 2)
        self.layer_norm = nn.LayerNorm(d_in)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        residual = x
        output = x.transpose(1, 2)
        output = self.w_2(F.relu(self.w_1(output)))
        output = output.transpose(1, 2)
        output = self.dropout(output)
        return self.layer_norm(output + residual)


class FFTBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.slf_attn = MultiHeadAttention(n_head, hidden, hidden // n_head, hidden // n_head, dropout)
        self.pos_ffn = PositionwiseFeedForward(hidden, conv_filter_size, conv_kernel, dropout)

    def forward(self, x, mask, slf_attn_mask):
        x, attn = self.slf_attn(x, x, x, mask=slf_attn_mask)
        x = x.masked_fill(mask.unsqueeze(-1), 0)
        x = self.pos_ffn(x)
        x = x.masked_fill(mask.unsqueeze(-1), 0)
        return x, attn


class FFTStack(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.position_enc = nn.Parameter(get_sinusoid_encoding_table(max_seq_len + 1, hidden).unsqueeze(0),
                                         requires_grad=False)
        self.layer_stack = nn.ModuleList([FFTBlock() for _ in range(n)])

    def forward(self, x, mask):
        batch_size, max_len = x.shape[0], x.shape[1]
        slf_attn_mask = mask.unsqueeze(1).expand(-1, max_len, -1)
        x = x + self.position_enc[:, :max_len, :].expand(batch_size, -1, -1)
        for layer in self.layer_stack:
            x, _ = layer(x, mask, slf_attn_mask)
        return x


class Transpose(nn.Module):
    def forward(self, x):
        return x.contiguous().transpose(1, 2)


class VariancePredictor(nn.Module):
    """ Duration, Pitch and Energy Predictor """

    def __init__(self, filter_size=256, kernel=3, p=0.5):
        super().__init__()
        self.conv_layer = nn.Sequential(OrderedDict([
            ("t1", Transpose()),
            ("conv1d_1", nn.Conv1d(hidden, filter_size, kernel, padding=(kernel - 1) // 2)),
            ("t2", Transpose()),
            ("relu_1", nn.ReLU()),
            ("layer_norm_1", nn.LayerNorm(filter_size)),
            ("dropout_1", nn.Dropout(p)),
            ("t3", Transpose()),
            ("conv1d_2", nn.Conv1d(filter_size, filter_size, kernel, padding=1)),
            ("t4", Transpose()),
            ("relu_2", nn.ReLU()),
            ("layer_norm_2", nn.LayerNorm(filter_size)),
            ("dropout_2", nn.Dropout(p)),
        ]))
        self.linear_layer = nn.Linear(filter_size, 1)

    def forward(self, x, mask):
        out = self.linear_layer(self.conv_layer(x)).squeeze(-1)
        return out.masked_fill(mask, 0.0)


class LengthRegulator(nn.Module):
    """ output always has MAX_MEL frames; frame t copies the phoneme whose span covers t """

    def forward(self, x, duration):
        ends = torch.cumsum(duration, dim=1)  # B, L
        t = torch.arange(MAX_MEL, device=x.device).unsqueeze(0).expand(x.size(0), -1).contiguous()
        idx = torch.searchsorted(ends, t, right=True).clamp_(max=x.size(1) - 1)
        out = torch.gather(x, 1, idx.unsqueeze(-1).expand(-1, -1, x.size(-1)))
        mel_len = ends[:, -1].clamp(max=MAX_MEL)
        return out, mel_len


class PostNet(nn.Module):
    def __init__(self, dim=256, k=5, n=5):
        super().__init__()
        self.convolutions = nn.ModuleList()
        for i in range(n):
            cin = n_mel_channels if i == 0 else dim
            cout = n_mel_channels if i == n - 1 else dim
            conv = nn.Conv1d(cin, cout, k, padding=(k - 1) // 2)
            nn.init.xavier_uniform_(conv.weight, gain=nn.init.calculate_gain("tanh" if i < n - 1 else "linear"))
            self.convolutions.append(nn.Sequential(conv, nn.BatchNorm1d(cout)))

    def forward(self, x):
        x = x.contiguous().transpose(1, 2)
        for i in range(len(self.convolutions) - 1):
            x = F.dropout(torch.tanh(self.convolutions[i](x)), 0.5, self.training)
        x = F.dropout(self.convolutions[-1](x), 0.5, self.training)
        return x.contiguous().transpose(1, 2)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.src_word_emb = nn.Embedding(n_symbols, hidden, padding_idx=0)
        self.speaker_emb = nn.Embedding(n_speaker, hidden)
        self.encoder = FFTStack(encoder_layer)
        self.duration_predictor = VariancePredictor()
        self.pitch_predictor = VariancePredictor()
        self.energy_predictor = VariancePredictor()
        self.length_regulator = LengthRegulator()
        self.pitch_bins = nn.Parameter(torch.linspace(-3, 3, n_bins - 1), requires_grad=False)
        self.energy_bins = nn.Parameter(torch.exp(torch.linspace(math.log(0.01), math.log(10), n_bins - 1)),
                                        requires_grad=False)
        self.pitch_embedding = nn.Embedding(n_bins, hidden)
        self.energy_embedding = nn.Embedding(n_bins, hidden)
        self.decoder = FFTStack(decoder_layer)
        self.mel_linear = nn.Linear(hidden, n_mel_channels)
        self.postnet = PostNet()

    def forward(self, speakers, texts, src_lens, durations, pitches, energies, mels):
        src_masks = get_mask_from_lengths(src_lens, MAX_TEXT)
        x = self.encoder(self.src_word_emb(texts), src_masks)
        x = x + self.speaker_emb(speakers).unsqueeze(1).expand(-1, MAX_TEXT, -1)

        log_d = self.duration_predictor(x, src_masks)
        p = self.pitch_predictor(x, src_masks)
        x = x + self.pitch_embedding(torch.bucketize(pitches, self.pitch_bins))
        e = self.energy_predictor(x, src_masks)
        x = x + self.energy_embedding(torch.bucketize(energies, self.energy_bins))

        x, mel_lens = self.length_regulator(x, durations.masked_fill(src_masks, 0))
        mel_masks = get_mask_from_lengths(mel_lens, MAX_MEL)
        out = self.mel_linear(self.decoder(x, mel_masks))
        post = self.postnet(out) + out

        # losses
        m = (~mel_masks).unsqueeze(-1).float()
        s = (~src_masks).float()
        denom = m.sum() * n_mel_channels
        mel_loss = ((out - mels).abs() * m).sum() / denom
        post_loss = ((post - mels).abs() * m).sum() / denom
        d_loss = (F.mse_loss(log_d, torch.log(durations.float() + 1), reduction="none") * s).sum() / s.sum()
        p_loss = (F.mse_loss(p, pitches, reduction="none") * s).sum() / s.sum()
        e_loss = (F.mse_loss(e, energies, reduction="none") * s).sum() / s.sum()
        total = mel_loss + post_loss + d_loss + p_loss + e_loss
        return total, mel_loss.detach(), post_loss.detach(), post


def inputs(batch):
    lens = torch.full((batch,), MAX_TEXT)
    lens[1:] = 48
    return (torch.randint(0, n_speaker, (batch,)), torch.randint(1, n_symbols, (batch, MAX_TEXT)), lens,
            torch.randint(3, 7, (batch, MAX_TEXT)), torch.randn(batch, MAX_TEXT),
            torch.rand(batch, MAX_TEXT), torch.randn(batch, MAX_MEL, n_mel_channels))
