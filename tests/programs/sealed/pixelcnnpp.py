import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm as wn


def concat_elu(x):
    """ like concatenated ReLU (http://arxiv.org/abs/1603.05201), but then with ELU """
    return F.elu(torch.cat([x, -x], dim=1))


def log_sum_exp(x):
    """ numerically stable log_sum_exp implementation that prevents overflow """
    m, _ = torch.max(x, dim=-1)
    m2, _ = torch.max(x, dim=-1, keepdim=True)
    return m + torch.log(torch.sum(torch.exp(x - m2), dim=-1))


def log_prob_from_logits(x):
    m, _ = torch.max(x, dim=-1, keepdim=True)
    return x - m - torch.log(torch.sum(torch.exp(x - m), dim=-1, keepdim=True))


def discretized_mix_logistic_loss(x, l, nr_mix):
    """ log-likelihood for mixture of discretized logistics, assumes the data has been rescaled to [-1,1] """
    x = x.permute(0, 2, 3, 1)
    l = l.permute(0, 2, 3, 1)
    B, H, W, C = x.shape

    logit_probs = l[..., :nr_mix]
    l = l[..., nr_mix:].reshape(B, H, W, C, nr_mix * 3)
    means = l[..., :nr_mix]
    log_scales = torch.clamp(l[..., nr_mix:2 * nr_mix], min=-7.)
    coeffs = torch.tanh(l[..., 2 * nr_mix:3 * nr_mix])

    x = x.unsqueeze(-1).expand(-1, -1, -1, -1, nr_mix)
    m1 = means[..., 0, :]
    m2 = means[..., 1, :] + coeffs[..., 0, :] * x[..., 0, :]
    m3 = means[..., 2, :] + coeffs[..., 1, :] * x[..., 0, :] + coeffs[..., 2, :] * x[..., 1, :]
    means = torch.stack((m1, m2, m3), dim=3)

    centered_x = x - means
    inv_stdv = torch.exp(-log_scales)
    plus_in = inv_stdv * (centered_x + 1. / 255.)
    cdf_plus = torch.sigmoid(plus_in)
    min_in = inv_stdv * (centered_x - 1. / 255.)
    cdf_min = torch.sigmoid(min_in)
    log_cdf_plus = plus_in - F.softplus(plus_in)
    log_one_minus_cdf_min = -F.softplus(min_in)
    cdf_delta = cdf_plus - cdf_min
    mid_in = inv_stdv * centered_x
    log_pdf_mid = mid_in - log_scales - 2. * F.softplus(mid_in)

    inner_inner_cond = (cdf_delta > 1e-5).float()
    inner_inner_out = inner_inner_cond * torch.log(torch.clamp(cdf_delta, min=1e-12)) \
        + (1. - inner_inner_cond) * (log_pdf_mid - 4.8481164)  # log(127.5)
    inner_cond = (x > 0.999).float()
    inner_out = inner_cond * log_one_minus_cdf_min + (1. - inner_cond) * inner_inner_out
    cond = (x < -0.999).float()
    log_probs = cond * log_cdf_plus + (1. - cond) * inner_out
    log_probs = torch.sum(log_probs, dim=3) + log_prob_from_logits(logit_probs)
    return -torch.sum(log_sum_exp(log_probs), dim=(1, 2))


class nin(nn.Module):
    def __init__(self, dim_in, dim_out):
        super().__init__()
        self.lin_a = wn(nn.Linear(dim_in, dim_out))

    def forward(self, x):
        return self.lin_a(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class down_shifted_conv2d(nn.Module):
    def __init__(self, cin, cout, kernel=(2, 3), stride=1, shift_output_down=False):
        super().__init__()
        kh, kw = kernel
        self.conv = wn(nn.Conv2d(cin, cout, kernel, stride))
        self.pad = ((kw - 1) // 2, (kw - 1) // 2, kh - 1, 0)
        self.shift = shift_output_down

    def forward(self, x):
        x = self.conv(F.pad(x, self.pad))
        return F.pad(x[:, :, :-1, :], (0, 0, 1, 0)) if self.shift else x


class down_right_shifted_conv2d(nn.Module):
    def __init__(self, cin, cout, kernel=(2, 2), stride=1, shift_output_right=False):
        super().__init__()
        self.pad = (kernel[1] - 1, 0, kernel[0] - 1, 0)
        self.conv = wn(nn.Conv2d(cin, cout, kernel, stride))
        self.shift = shift_output_right

    def forward(self, x):
        x = self.conv(F.pad(x, self.pad))
        return F.pad(x[:, :, :, :-1], (1, 0, 0, 0)) if self.shift else x


class down_shifted_deconv2d(nn.Module):
    def __init__(self, cin, cout, kernel=(2, 3)):
        super().__init__()
        self.k = kernel
        self.deconv = nn.ConvTranspose2d(cin, cout, kernel, 2, output_padding=1)

    def forward(self, x):
        x = self.deconv(x)
        h, w = x.shape[2:]
        return x[:, :, :h - self.k[0] + 1, (self.k[1] - 1) // 2:w - (self.k[1] - 1) // 2]


class down_right_shifted_deconv2d(nn.Module):
    def __init__(self, cin, cout, kernel=(2, 2)):
        super().__init__()
        self.k = kernel
        self.deconv = nn.ConvTranspose2d(cin, cout, kernel, 2, output_padding=1)

    def forward(self, x):
        x = self.deconv(x)
        h, w = x.shape[2:]
        return x[:, :, :h - self.k[0] + 1, :w - self.k[1] + 1]


class gated_resnet(nn.Module):
    def __init__(self, nf, conv_op, skip_connection=0, p=0.5):
        super().__init__()
        self.conv_input = conv_op(2 * nf, nf)
        if skip_connection:
            self.nin_skip = nin(2 * skip_connection * nf, nf)
        self.skip = skip_connection
        self.dropout = nn.Dropout2d(p)
        self.conv_out = conv_op(2 * nf, 2 * nf)

    def forward(self, og_x, a=None):
        x = self.conv_input(concat_elu(og_x))
        if a is not None:
            x += self.nin_skip(concat_elu(a))
        x = self.dropout(concat_elu(x))
        a, b = torch.chunk(self.conv_out(x), 2, dim=1)
        return og_x + a * torch.sigmoid(b)


class Layer_up(nn.Module):
    def __init__(self, n, nf):
        super().__init__()
        self.u_stream = nn.ModuleList([gated_resnet(nf, down_shifted_conv2d) for _ in range(n)])
        self.ul_stream = nn.ModuleList([gated_resnet(nf, down_right_shifted_conv2d, 1) for _ in range(n)])

    def forward(self, u, ul):
        u_list, ul_list = [], []
        for fu, ful in zip(self.u_stream, self.ul_stream):
            u = fu(u)
            ul = ful(ul, a=u)
            u_list.append(u)
            ul_list.append(ul)
        return u_list, ul_list


class Layer_down(nn.Module):
    def __init__(self, n, nf):
        super().__init__()
        self.u_stream = nn.ModuleList([gated_resnet(nf, down_shifted_conv2d, 1) for _ in range(n)])
        self.ul_stream = nn.ModuleList([gated_resnet(nf, down_right_shifted_conv2d, 2) for _ in range(n)])

    def forward(self, u, ul, u_list, ul_list):
        for fu, ful in zip(self.u_stream, self.ul_stream):
            u = fu(u, a=u_list.pop())
            ul = ful(ul, a=torch.cat((u, ul_list.pop()), 1))
        return u, ul


class Model(nn.Module):
    def __init__(self, nr_resnet=2, nr_filters=48, nr_mix=10, input_channels=3):
        super().__init__()
        nf = nr_filters
        self.nr_mix = nr_mix
        down_nr = [nr_resnet, nr_resnet + 1, nr_resnet + 1]
        self.down_layers = nn.ModuleList([Layer_down(n, nf) for n in down_nr])
        self.up_layers = nn.ModuleList([Layer_up(nr_resnet, nf) for _ in range(3)])
        self.downsize_u = nn.ModuleList([down_shifted_conv2d(nf, nf, stride=2) for _ in range(2)])
        self.downsize_ul = nn.ModuleList([down_right_shifted_conv2d(nf, nf, stride=2) for _ in range(2)])
        self.upsize_u = nn.ModuleList([down_shifted_deconv2d(nf, nf) for _ in range(2)])
        self.upsize_ul = nn.ModuleList([down_right_shifted_deconv2d(nf, nf) for _ in range(2)])
        self.u_init = down_shifted_conv2d(input_channels + 1, nf, (2, 3), shift_output_down=True)
        self.ul_init = nn.ModuleList([
            down_shifted_conv2d(input_channels + 1, nf, (1, 3), shift_output_down=True),
            down_right_shifted_conv2d(input_channels + 1, nf, (2, 1), shift_output_right=True)])
        self.nin_out = nin(nf, nr_mix * 10)
        self.register_buffer("bits", torch.tensor(3 * 32 * 32 * 0.6931472), persistent=False)

    def forward(self, img):
        x = F.pad(img, (0, 0, 0, 0, 0, 1), value=1.0)  # channel of ones, tells image from padding

        u_list = [self.u_init(x)]
        ul_list = [self.ul_init[0](x) + self.ul_init[1](x)]
        for i in range(3):
            u_out, ul_out = self.up_layers[i](u_list[-1], ul_list[-1])
            u_list += u_out
            ul_list += ul_out
            if i != 2:
                u_list += [self.downsize_u[i](u_list[-1])]
                ul_list += [self.downsize_ul[i](ul_list[-1])]

        u, ul = u_list.pop(), ul_list.pop()
        for i in range(3):
            u, ul = self.down_layers[i](u, ul, u_list, ul_list)
            if i != 2:
                u, ul = self.upsize_u[i](u), self.upsize_ul[i](ul)

        out = self.nin_out(F.elu(ul))
        nll = discretized_mix_logistic_loss(img, out, self.nr_mix)
        return (nll / self.bits).mean(), out


def inputs(batch):
    return (torch.randint(0, 256, (batch, 3, 32, 32)).float() / 127.5 - 1,)
