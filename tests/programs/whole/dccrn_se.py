# DCCRN-ish speech enhancement, conv-STFT front end
import torch
import torch.nn as nn
import torch.nn.functional as F
import math


def init_kernels(win_len, win_inc, fft_len, invers=False):
    # sqrt hann so that analysis*synthesis = hann
    window = torch.hann_window(win_len, periodic=True).sqrt()
    n = torch.arange(win_len).float()
    k = torch.arange(fft_len // 2 + 1).float()
    phase = 2 * math.pi * torch.outer(n, k) / fft_len
    kernel = torch.cat([torch.cos(phase), -torch.sin(phase)], 1).T      # (F*2, win)
    if invers:
        kernel = torch.linalg.pinv(kernel).T
    kernel = kernel * window
    return kernel[:, None, :].contiguous(), window[None, :, None]


class ConvSTFT(nn.Module):
    def __init__(self, win_len, win_inc, fft_len):
        super(ConvSTFT, self).__init__()
        kernel, _ = init_kernels(win_len, win_inc, fft_len)
        self.register_buffer('weight', kernel)
        self.stride, self.win_len, self.dim = win_inc, win_len, fft_len

    def forward(self, inputs):
        if inputs.dim() == 2:
            inputs = torch.unsqueeze(inputs, 1)
        inputs = F.pad(inputs, [self.win_len - self.stride, self.win_len - self.stride])
        return F.conv1d(inputs, self.weight, stride=self.stride)


class ConviSTFT(nn.Module):
    def __init__(self, win_len, win_inc, fft_len):
        super(ConviSTFT, self).__init__()
        kernel, window = init_kernels(win_len, win_inc, fft_len, invers=True)
        self.register_buffer('weight', kernel)
        self.register_buffer('window', window)
        self.register_buffer('enframe', torch.eye(win_len)[:, None, :])
        self.win_len, self.stride = win_len, win_inc

    def forward(self, inputs):
        outputs = F.conv_transpose1d(inputs, self.weight, stride=self.stride)
        t = self.window.repeat(1, 1, inputs.size(-1)) ** 2
        coff = F.conv_transpose1d(t, self.enframe, stride=self.stride)
        outputs = outputs / (coff + 1e-8)
        return outputs[..., self.win_len - self.stride:-(self.win_len - self.stride)]


def complex_cat(inputs, axis):
    real, imag = [], []
    for data in inputs:
        r, i = torch.chunk(data, 2, axis)
        real.append(r)
        imag.append(i)
    return torch.cat([torch.cat(real, axis), torch.cat(imag, axis)], axis)


class ComplexConv2d(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size=(5, 2), stride=(2, 1), padding=(2, 1), causal=True):
        super(ComplexConv2d, self).__init__()
        self.causal = causal
        self.padding = padding
        self.real_conv = nn.Conv2d(in_channels // 2, out_channels // 2, kernel_size, stride, padding=[padding[0], 0])
        self.imag_conv = nn.Conv2d(in_channels // 2, out_channels // 2, kernel_size, stride, padding=[padding[0], 0])
        nn.init.normal_(self.real_conv.weight.data, std=0.05)
        nn.init.normal_(self.imag_conv.weight.data, std=0.05)
        nn.init.constant_(self.real_conv.bias, 0.)
        nn.init.constant_(self.imag_conv.bias, 0.)

    def forward(self, inputs):
        if self.padding[1] != 0 and self.causal:
            inputs = F.pad(inputs, [self.padding[1], 0, 0, 0])
        real, imag = torch.chunk(inputs, 2, 1)
        real2real = self.real_conv(real)
        imag2imag = self.imag_conv(imag)
        real2imag = self.imag_conv(real)
        imag2real = self.real_conv(imag)
        return torch.cat([real2real - imag2imag, real2imag + imag2real], 1)


class ComplexConvTranspose2d(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size=(5, 2), stride=(2, 1), padding=(2, 0), output_padding=(1, 0)):
        super(ComplexConvTranspose2d, self).__init__()
        args = (in_channels // 2, out_channels // 2, kernel_size, stride)
        self.real_conv = nn.ConvTranspose2d(*args, padding=padding, output_padding=output_padding)
        self.imag_conv = nn.ConvTranspose2d(*args, padding=padding, output_padding=output_padding)

    def forward(self, inputs):
        real, imag = torch.chunk(inputs, 2, dim=1)
        rr, ii = self.real_conv(real), self.imag_conv(imag)
        ri, ir = self.imag_conv(real), self.real_conv(imag)
        return torch.cat([rr - ii, ri + ir], 1)


class NavieComplexLSTM(nn.Module):
    def __init__(self, input_size, hidden_size, projection_dim=None, bidirectional=False):
        super(NavieComplexLSTM, self).__init__()
        self.rnn_units = hidden_size // 2
        self.real_lstm = nn.LSTM(input_size // 2, self.rnn_units, num_layers=1, bidirectional=bidirectional)
        self.imag_lstm = nn.LSTM(input_size // 2, self.rnn_units, num_layers=1, bidirectional=bidirectional)
        self.projection_dim = projection_dim
        if projection_dim is not None:
            self.r_trans = nn.Linear(self.rnn_units, projection_dim // 2)
            self.i_trans = nn.Linear(self.rnn_units, projection_dim // 2)

    def forward(self, inputs):
        real, imag = inputs
        r2r_out = self.real_lstm(real)[0]
        r2i_out = self.imag_lstm(real)[0]
        i2r_out = self.real_lstm(imag)[0]
        i2i_out = self.imag_lstm(imag)[0]
        real_out = r2r_out - i2i_out
        imag_out = i2r_out + r2i_out
        if self.projection_dim is not None:
            real_out = self.r_trans(real_out)
            imag_out = self.i_trans(imag_out)
        return [real_out, imag_out]


def l2_norm(s1, s2):
    return torch.sum(s1 * s2, -1, keepdim=True)


def si_snr(s1, s2, eps=1e-8):
    s1_s2_norm = l2_norm(s1, s2)
    s2_s2_norm = l2_norm(s2, s2)
    s_target = s1_s2_norm / (s2_s2_norm + eps) * s2
    e_nosie = s1 - s_target
    target_norm = l2_norm(s_target, s_target)
    noise_norm = l2_norm(e_nosie, e_nosie)
    snr = 10 * torch.log10((target_norm) / (noise_norm + eps) + eps)
    return torch.mean(snr)


class Model(nn.Module):
    def __init__(self, rnn_layers=2, rnn_units=128, win_len=400, win_inc=100, fft_len=512, masking_mode='E',
                 kernel_num=(32, 64, 128, 256, 256, 256)):
        super(Model, self).__init__()
        self.kernel_num = [2] + list(kernel_num)
        self.masking_mode = masking_mode
        self.fft_len = fft_len
        self.stft = ConvSTFT(win_len, win_inc, fft_len)
        self.istft = ConviSTFT(win_len, win_inc, fft_len)
        self.encoder = nn.ModuleList()
        self.decoder = nn.ModuleList()
        for idx in range(len(self.kernel_num) - 1):
            self.encoder.append(nn.Sequential(
                ComplexConv2d(self.kernel_num[idx], self.kernel_num[idx + 1]),
                nn.BatchNorm2d(self.kernel_num[idx + 1]),
                nn.PReLU()))
        hidden_dim = fft_len // (2 ** len(self.kernel_num))
        rnns = []
        for idx in range(rnn_layers):
            rnns.append(NavieComplexLSTM(
                input_size=hidden_dim * self.kernel_num[-1] if idx == 0 else rnn_units * 2,
                hidden_size=rnn_units * 2,
                projection_dim=hidden_dim * self.kernel_num[-1] if idx == rnn_layers - 1 else None))
        self.enhance = nn.ModuleList(rnns)
        for idx in range(len(self.kernel_num) - 1, 0, -1):
            if idx != 1:
                self.decoder.append(nn.Sequential(
                    ComplexConvTranspose2d(self.kernel_num[idx] * 2, self.kernel_num[idx - 1]),
                    nn.BatchNorm2d(self.kernel_num[idx - 1]),
                    nn.PReLU()))
            else:
                self.decoder.append(nn.Sequential(
                    ComplexConvTranspose2d(self.kernel_num[idx] * 2, self.kernel_num[idx - 1])))

    def forward(self, noisy, clean):
        specs = self.stft(noisy)
        real = specs[:, :self.fft_len // 2 + 1]
        imag = specs[:, self.fft_len // 2 + 1:]
        spec_mags = torch.sqrt(real ** 2 + imag ** 2 + 1e-8)
        spec_phase = torch.atan2(imag, real)
        cspecs = torch.stack([real, imag], 1)[:, :, 1:]

        out = cspecs
        encoder_out = []
        for idx, layer in enumerate(self.encoder):
            out = layer(out)
            encoder_out.append(out)

        batch_size, channels, dims, lengths = out.size()
        out = out.permute(3, 0, 1, 2)
        r_rnn_in = torch.reshape(out[:, :, :channels // 2], [lengths, batch_size, channels // 2 * dims])
        i_rnn_in = torch.reshape(out[:, :, channels // 2:], [lengths, batch_size, channels // 2 * dims])
        for rnn in self.enhance:
            r_rnn_in, i_rnn_in = rnn([r_rnn_in, i_rnn_in])
        r_rnn_in = torch.reshape(r_rnn_in, [lengths, batch_size, channels // 2, dims])
        i_rnn_in = torch.reshape(i_rnn_in, [lengths, batch_size, channels // 2, dims])
        out = torch.cat([r_rnn_in, i_rnn_in], 2).permute(1, 2, 3, 0)

        for idx in range(len(self.decoder)):
            out = complex_cat([out, encoder_out[-1 - idx]], 1)
            out = self.decoder[idx](out)
            out = out[..., 1:]
        mask_real = F.pad(out[:, 0], [0, 0, 1, 0])
        mask_imag = F.pad(out[:, 1], [0, 0, 1, 0])

        if self.masking_mode == 'E':
            mask_mags = (mask_real ** 2 + mask_imag ** 2 + 1e-12) ** 0.5
            real_phase = mask_real / (mask_mags + 1e-8)
            imag_phase = mask_imag / (mask_mags + 1e-8)
            mask_phase = torch.atan2(imag_phase, real_phase)
            mask_mags = torch.tanh(mask_mags)
            est_mags = mask_mags * spec_mags
            est_phase = spec_phase + mask_phase
            real = est_mags * torch.cos(est_phase)
            imag = est_mags * torch.sin(est_phase)
        elif self.masking_mode == 'C':
            real, imag = real * mask_real - imag * mask_imag, real * mask_imag + imag * mask_real
        out_spec = torch.cat([real, imag], 1)
        out_wav = self.istft(out_spec)
        out_wav = torch.squeeze(out_wav, 1)
        out_wav = torch.clamp_(out_wav, -1, 1)
        return -si_snr(out_wav, clean), out_wav


def inputs(batch):
    clean = torch.sin(torch.cumsum(torch.rand(batch, 16000) * 0.3, dim=1)) * 0.4
    return clean + 0.1 * torch.randn_like(clean), clean
