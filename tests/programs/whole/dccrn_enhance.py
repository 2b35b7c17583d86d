import torch
import torch.nn as nn
import torch.nn.functional as F

# DCCRN for single-channel speech enhancement at 16k
# ref: Hu et al. "DCCRN: Deep Complex Convolution Recurrent Network for Phase-Aware Speech Enhancement"

WIN_LEN = 400
WIN_INC = 100
FFT_LEN = 512
SAMPLES = 16000


def complex_cat(inputs, axis):
    real, imag = [], []
    for idx, data in enumerate(inputs):
        r, i = torch.chunk(data, 2, axis)
        real.append(r)
        imag.append(i)
    real = torch.cat(real, axis)
    imag = torch.cat(imag, axis)
    outputs = torch.cat([real, imag], axis)
    return outputs


class ComplexConv2d(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size=(1, 1), stride=(1, 1), padding=(0, 0), causal=True):
        super(ComplexConv2d, self).__init__()
        self.in_channels = in_channels // 2
        self.out_channels = out_channels // 2
        self.padding = padding
        self.causal = causal
        self.real_conv = nn.Conv2d(self.in_channels, self.out_channels, kernel_size, stride,
                                   padding=[self.padding[0], 0])
        self.imag_conv = nn.Conv2d(self.in_channels, self.out_channels, kernel_size, stride,
                                   padding=[self.padding[0], 0])
        nn.init.normal_(self.real_conv.weight.data, std=0.05)
        nn.init.normal_(self.imag_conv.weight.data, std=0.05)
        nn.init.constant_(self.real_conv.bias, 0.)
        nn.init.constant_(self.imag_conv.bias, 0.)

    def forward(self, inputs):
        if self.padding[1] != 0 and self.causal:
            inputs = F.pad(inputs, [self.padding[1], 0, 0, 0])
        else:
            inputs = F.pad(inputs, [self.padding[1], self.padding[1], 0, 0])
        real, imag = torch.chunk(inputs, 2, 1)
        real2real = self.real_conv(real)
        imag2imag = self.imag_conv(imag)
        real2imag = self.imag_conv(real)
        imag2real = self.real_conv(imag)
        return torch.cat([real2real - imag2imag, real2imag + imag2real], 1)


class ComplexConvTranspose2d(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding):
        super(ComplexConvTranspose2d, self).__init__()
        kw = dict(kernel_size=kernel_size, stride=stride, padding=padding, output_padding=output_padding)
        self.real_conv = nn.ConvTranspose2d(in_channels // 2, out_channels // 2, **kw)
        self.imag_conv = nn.ConvTranspose2d(in_channels // 2, out_channels // 2, **kw)
        nn.init.normal_(self.real_conv.weight, std=0.05)
        nn.init.normal_(self.imag_conv.weight, std=0.05)

    def forward(self, inputs):
        real, imag = torch.chunk(inputs, 2, 1)
        out_r = self.real_conv(real) - self.imag_conv(imag)
        out_i = self.imag_conv(real) + self.real_conv(imag)
        return torch.cat([out_r, out_i], 1)


class NavieComplexLSTM(nn.Module):
    def __init__(self, input_size, hidden_size, projection_dim=None):
        super(NavieComplexLSTM, self).__init__()
        self.input_dim = input_size // 2
        self.rnn_units = hidden_size // 2
        self.real_lstm = nn.LSTM(self.input_dim, self.rnn_units, num_layers=1)
        self.imag_lstm = nn.LSTM(self.input_dim, self.rnn_units, num_layers=1)
        if projection_dim is not None:
            self.projection_dim = projection_dim // 2
            self.r_trans = nn.Linear(self.rnn_units, self.projection_dim)
            self.i_trans = nn.Linear(self.rnn_units, self.projection_dim)
        else:
            self.projection_dim = None

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
    s1 = s1 - s1.mean(-1, keepdim=True)
    s2 = s2 - s2.mean(-1, keepdim=True)
    s1_s2_norm = l2_norm(s1, s2)
    s2_s2_norm = l2_norm(s2, s2)
    s_target = s1_s2_norm / (s2_s2_norm + eps) * s2
    e_noise = s1 - s_target
    target_norm = l2_norm(s_target, s_target)
    noise_norm = l2_norm(e_noise, e_noise)
    snr = 10 * torch.log10(target_norm / (noise_norm + eps) + eps)
    return torch.mean(snr)


class Model(nn.Module):
    def __init__(self, rnn_layers=2, rnn_units=128, masking_mode='E', kernel_size=5,
                 kernel_num=(16, 32, 64, 64, 128)):
        super(Model, self).__init__()
        self.masking_mode = masking_mode
        self.kernel_num = [2] + list(kernel_num)
        self.register_buffer('window', torch.hann_window(WIN_LEN))

        self.encoder = nn.ModuleList()
        for idx in range(len(self.kernel_num) - 1):
            self.encoder.append(nn.Sequential(
                ComplexConv2d(self.kernel_num[idx], self.kernel_num[idx + 1],
                              kernel_size=(kernel_size, 2), stride=(2, 1), padding=(2, 1)),
                nn.BatchNorm2d(self.kernel_num[idx + 1]),
                nn.PReLU(),
            ))
        hidden_dim = FFT_LEN // (2 ** len(self.kernel_num))
        self.hidden_dim = hidden_dim

        rnns = []
        for idx in range(rnn_layers):
            rnns.append(NavieComplexLSTM(
                input_size=hidden_dim * self.kernel_num[-1] if idx == 0 else rnn_units,
                hidden_size=rnn_units,
                projection_dim=hidden_dim * self.kernel_num[-1] if idx == rnn_layers - 1 else None))
        self.enhance = nn.Sequential(*rnns)

        self.decoder = nn.ModuleList()
        for idx in range(len(self.kernel_num) - 1, 0, -1):
            up = ComplexConvTranspose2d(self.kernel_num[idx] * 2, self.kernel_num[idx - 1],
                                        kernel_size=(kernel_size, 2), stride=(2, 1),
                                        padding=(2, 0), output_padding=(1, 0))
            if idx != 1:
                self.decoder.append(nn.Sequential(up, nn.BatchNorm2d(self.kernel_num[idx - 1]), nn.PReLU()))
            else:
                self.decoder.append(nn.Sequential(up))

    def stft(self, x):
        return torch.stft(x, FFT_LEN, WIN_INC, WIN_LEN, self.window, center=True, return_complex=True)

    def istft(self, spec, length):
        return torch.istft(spec, FFT_LEN, WIN_INC, WIN_LEN, self.window, center=True, length=length)

    def forward(self, noisy, clean):
        spec = self.stft(noisy)
        real, imag = spec.real, spec.imag
        spec_mags = torch.sqrt(real ** 2 + imag ** 2 + 1e-8)
        spec_phase = torch.atan2(imag, real)

        # drop DC
        out = torch.stack([real, imag], 1)[:, :, 1:]
        encoder_out = []
        for layer in self.encoder:
            out = layer(out)
            encoder_out.append(out)

        b, c, d, t = out.size()
        out = out.permute(3, 0, 1, 2)
        r_rnn_in = out[:, :, :c // 2].reshape(t, b, c // 2 * d)
        i_rnn_in = out[:, :, c // 2:].reshape(t, b, c // 2 * d)
        r_rnn_in, i_rnn_in = self.enhance([r_rnn_in, i_rnn_in])
        r_rnn_in = r_rnn_in.view(t, b, c // 2, d)
        i_rnn_in = i_rnn_in.view(t, b, c // 2, d)
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
            est = torch.polar(mask_mags * spec_mags, spec_phase + mask_phase)
        else:
            est = torch.complex(mask_real, mask_imag) * spec

        wav = self.istft(est, noisy.size(-1)).clamp(-1, 1)
        loss = -si_snr(wav, clean)
        mag_loss = F.l1_loss(self.stft(wav).abs(), self.stft(clean).abs())
        return wav, loss + 0.5 * mag_loss


def inputs(batch):
    clean = torch.rand(batch, SAMPLES) - 0.5
    noisy = (clean + 0.1 * torch.randn(batch, SAMPLES)).clamp(-1, 1)
    return noisy, clean
