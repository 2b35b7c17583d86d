import torch
import torch.nn as nn
import torch.nn.functional as F

# 0 is blank
alphabet = '-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,:/()&%'
imgH, imgW, nc, nh = 32, 200, 1, 256
MAX_LEN = 16


class BidirectionalLSTM(nn.Module):

    def __init__(self, nIn, nHidden, nOut):
        super(BidirectionalLSTM, self).__init__()
        self.rnn = nn.LSTM(nIn, nHidden, bidirectional=True)
        self.embedding = nn.Linear(nHidden * 2, nOut)

    def forward(self, input):
        recurrent, _ = self.rnn(input)
        T, b, h = recurrent.size()
        t_rec = recurrent.view(T * b, h)
        output = self.embedding(t_rec)  # [T * b, nOut]
        output = output.view(T, b, -1)
        return output


class STN(nn.Module):
    """small affine rectifier, starts at identity"""

    def __init__(self, nc):
        super(STN, self).__init__()
        self.loc = nn.Sequential(
            nn.Conv2d(nc, 16, 3, 2, 1), nn.ReLU(True),
            nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(True),
            nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(True),
            nn.AdaptiveAvgPool2d((2, 4)),
        )
        self.fc1 = nn.Linear(64 * 8, 64)
        self.fc2 = nn.Linear(64, 6)
        self.fc2.weight.data.zero_()
        self.fc2.bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))

    def forward(self, x):
        z = self.loc(x).flatten(1)
        theta = self.fc2(F.relu(self.fc1(z))).view(-1, 2, 3)
        grid = F.affine_grid(theta, x.size(), align_corners=False)
        return F.grid_sample(x, grid, padding_mode='border', align_corners=False)


class CRNN(nn.Module):

    def __init__(self, imgH, nc, nclass, nh, leakyRelu=False):
        super(CRNN, self).__init__()
        assert imgH % 16 == 0, 'imgH has to be a multiple of 16'

        ks = [3, 3, 3, 3, 3, 3, 2]
        ps = [1, 1, 1, 1, 1, 1, 0]
        ss = [1, 1, 1, 1, 1, 1, 1]
        nm = [64, 128, 256, 256, 512, 512, 512]

        cnn = nn.Sequential()

        def convRelu(i, batchNormalization=False):
            nIn = nc if i == 0 else nm[i - 1]
            nOut = nm[i]
            cnn.add_module('conv{0}'.format(i), nn.Conv2d(nIn, nOut, ks[i], ss[i], ps[i]))
            if batchNormalization:
                cnn.add_module('batchnorm{0}'.format(i), nn.BatchNorm2d(nOut))
            if leakyRelu:
                cnn.add_module('relu{0}'.format(i), nn.LeakyReLU(0.2, inplace=True))
            else:
                cnn.add_module('relu{0}'.format(i), nn.ReLU(True))

        convRelu(0)
        cnn.add_module('pooling{0}'.format(0), nn.MaxPool2d(2, 2))  # 64x16x100
        convRelu(1)
        cnn.add_module('pooling{0}'.format(1), nn.MaxPool2d(2, 2))  # 128x8x50
        convRelu(2, True)
        convRelu(3)
        cnn.add_module('pooling{0}'.format(2), nn.MaxPool2d((2, 2), (2, 1), (0, 1)))  # 256x4x51
        convRelu(4, True)
        convRelu(5)
        cnn.add_module('pooling{0}'.format(3), nn.MaxPool2d((2, 2), (2, 1), (0, 1)))  # 512x2x52
        convRelu(6, True)  # 512x1x51

        self.cnn = cnn
        self.rnn = nn.Sequential(
            BidirectionalLSTM(512, nh, nh),
            BidirectionalLSTM(nh, nh, nclass))

    def forward(self, input):
        conv = self.cnn(input)
        b, c, h, w = conv.size()
        assert h == 1, "the height of conv must be 1"
        conv = conv.squeeze(2)
        conv = conv.permute(2, 0, 1)  # [w, b, c]
        return self.rnn(conv)


def ctc_loss(log_probs, text, length, blank=0):
    """own CTC (forward variables in log space), F.ctc_loss cannot be exported.
    log_probs [T, b, nclass], text [b, L] padded with 0, length [b]"""
    NEG = -1e30
    T, b, _ = log_probs.size()
    ext = F.pad(torch.stack([torch.zeros_like(text), text], 2).flatten(1), (0, 1), value=blank)  # -a-b-c-
    lp = log_probs.gather(2, ext.unsqueeze(0).expand(T, -1, -1))  # [T, b, 2L+1]
    can_skip = F.pad((ext[:, 2:] != ext[:, :-2]) & (ext[:, 2:] != blank), (2, 0), value=False)

    alpha = torch.full_like(lp[0], NEG)
    alpha = torch.cat([lp[0, :, :2], alpha[:, 2:]], 1)
    for t in range(1, T):
        a1 = F.pad(alpha[:, :-1], (1, 0), value=NEG)
        a2 = F.pad(alpha[:, :-2], (2, 0), value=NEG).masked_fill(~can_skip, NEG)
        alpha = torch.logsumexp(torch.stack([alpha, a1, a2], 0), 0) + lp[t]

    last = torch.stack([2 * length, 2 * length - 1], 1)
    nll = -torch.logsumexp(alpha.gather(1, last), 1)
    nll = torch.where(nll < 1e20, nll, torch.zeros_like(nll))  # zero_infinity
    return (nll / length.clamp(min=1)).mean()


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        self.stn = STN(nc)
        self.crnn = CRNN(imgH, nc, len(alphabet), nh)
        self.apply(self.weights_init)
        self.stn.fc2.weight.data.zero_()

    @staticmethod
    def weights_init(m):
        classname = m.__class__.__name__
        if classname.find('Conv') != -1 and hasattr(m, 'weight'):
            m.weight.data.normal_(0.0, 0.02)
        elif classname.find('BatchNorm') != -1:
            m.weight.data.normal_(1.0, 0.02)
            m.bias.data.fill_(0)

    def forward(self, image, text, length):
        # uint8-ish [0, 255] -> [-1, 1]
        image = image.sub(127.5).div(127.5)
        preds = self.crnn(self.stn(image))
        log_probs = F.log_softmax(preds, dim=2)
        cost = ctc_loss(log_probs, text, length)

        # greedy decoding: collapse repeats, blank out the rest (kept padded)
        with torch.no_grad():
            best = preds.argmax(2).transpose(0, 1)
            prev = F.pad(best[:, :-1], (1, 0), value=0)
            keep = (best != prev) & (best != 0)
            pos = (keep.cumsum(1) - 1).clamp(min=0, max=MAX_LEN - 1)
            decoded = torch.zeros_like(text).scatter_add(1, pos, torch.where(keep, best, torch.zeros_like(best)))
            acc = (decoded == text).all(dim=1).float().mean()
        return cost, decoded, acc


def inputs(batch):
    image = torch.rand(batch, nc, imgH, imgW) * 255
    length = torch.randint(4, MAX_LEN + 1, (batch,))
    text = torch.randint(1, len(alphabet), (batch, MAX_LEN))
    text = text * (torch.arange(MAX_LEN)[None] < length[:, None])
    return image, text, length
