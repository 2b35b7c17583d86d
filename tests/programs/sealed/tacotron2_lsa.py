import torch
from torch import nn
from torch.nn import functional as F
from math import sqrt


class hparams:
    n_symbols = 90
    symbols_embedding_dim = 384
    encoder_n_convolutions = 3
    encoder_kernel_size = 5
    n_mel_channels = 80
    n_frames_per_step = 2
    prenet_dim = 256
    attention_rnn_dim = 512
    decoder_rnn_dim = 512
    attention_dim = 128
    attention_location_n_filters = 32
    attention_location_kernel_size = 31
    p_attention_dropout = 0.1
    p_decoder_dropout = 0.1
    postnet_embedding_dim = 384
    postnet_n_convolutions = 5


class LinearNorm(torch.nn.Module):
    def __init__(self, in_dim, out_dim, bias=True, w_init_gain='linear'):
        super(LinearNorm, self).__init__()
        self.linear_layer = torch.nn.Linear(in_dim, out_dim, bias=bias)
        torch.nn.init.xavier_uniform_(self.linear_layer.weight, gain=torch.nn.init.calculate_gain(w_init_gain))

    def forward(self, x):
        return self.linear_layer(x)


class ConvNorm(torch.nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size=1, stride=1, padding=None, bias=True, w_init_gain='linear'):
        super(ConvNorm, self).__init__()
        if padding is None:
            assert (kernel_size % 2 == 1)
            padding = int((kernel_size - 1) / 2)
        self.conv = torch.nn.Conv1d(in_channels, out_channels, kernel_size=kernel_size, stride=stride,
                                    padding=padding, bias=bias)
        torch.nn.init.xavier_uniform_(self.conv.weight, gain=torch.nn.init.calculate_gain(w_init_gain))

    def forward(self, signal):
        return self.conv(signal)


class LocationLayer(nn.Module):
    def __init__(self, attention_n_filters, attention_kernel_size, attention_dim):
        super(LocationLayer, self).__init__()
        self.location_conv = ConvNorm(2, attention_n_filters, kernel_size=attention_kernel_size, bias=False)
        self.location_dense = LinearNorm(attention_n_filters, attention_dim, bias=False, w_init_gain='tanh')

    def forward(self, attention_weights_cat):
        processed_attention = self.location_conv(attention_weights_cat)
        processed_attention = processed_attention.transpose(1, 2)
        return self.location_dense(processed_attention)


class Attention(nn.Module):
    def __init__(self, hp, embedding_dim):
        super(Attention, self).__init__()
        self.query_layer = LinearNorm(hp.attention_rnn_dim, hp.attention_dim, bias=False, w_init_gain='tanh')
        self.memory_layer = LinearNorm(embedding_dim, hp.attention_dim, bias=False, w_init_gain='tanh')
        self.v = LinearNorm(hp.attention_dim, 1, bias=False)
        self.location_layer = LocationLayer(hp.attention_location_n_filters, hp.attention_location_kernel_size,
                                            hp.attention_dim)
        self.score_mask_value = -1e4

    def get_alignment_energies(self, query, processed_memory, attention_weights_cat):
        processed_query = self.query_layer(query.unsqueeze(1))
        processed_attention_weights = self.location_layer(attention_weights_cat)
        energies = self.v(torch.tanh(processed_query + processed_attention_weights + processed_memory))
        return energies.squeeze(-1)

    def forward(self, attention_hidden_state, memory, processed_memory, attention_weights_cat, mask):
        alignment = self.get_alignment_energies(attention_hidden_state, processed_memory, attention_weights_cat)
        alignment = alignment.masked_fill(mask, self.score_mask_value)
        attention_weights = F.softmax(alignment, dim=1)
        attention_context = torch.bmm(attention_weights.unsqueeze(1), memory)
        return attention_context.squeeze(1), attention_weights


class Prenet(nn.Module):
    def __init__(self, in_dim, sizes):
        super(Prenet, self).__init__()
        in_sizes = [in_dim] + sizes[:-1]
        self.layers = nn.ModuleList(
            [LinearNorm(in_size, out_size, bias=False) for (in_size, out_size) in zip(in_sizes, sizes)])

    def forward(self, x):
        for linear in self.layers:
            # dropout is always on, also at inference (see paper)
            x = F.dropout(F.relu(linear(x)), p=0.5, training=True)
        return x


class Postnet(nn.Module):
    def __init__(self, hp):
        super(Postnet, self).__init__()
        dims = [hp.n_mel_channels] + [hp.postnet_embedding_dim] * (hp.postnet_n_convolutions - 1) + [hp.n_mel_channels]
        self.convolutions = nn.ModuleList()
        for i in range(hp.postnet_n_convolutions):
            last = i == hp.postnet_n_convolutions - 1
            self.convolutions.append(nn.Sequential(
                ConvNorm(dims[i], dims[i + 1], kernel_size=5, w_init_gain='linear' if last else 'tanh'),
                nn.BatchNorm1d(dims[i + 1])))

    def forward(self, x):
        for i in range(len(self.convolutions) - 1):
            x = F.dropout(torch.tanh(self.convolutions[i](x)), 0.5, self.training)
        x = F.dropout(self.convolutions[-1](x), 0.5, self.training)
        return x


class Encoder(nn.Module):
    def __init__(self, hp):
        super(Encoder, self).__init__()
        d = hp.symbols_embedding_dim
        self.convolutions = nn.ModuleList([
            nn.Sequential(ConvNorm(d, d, kernel_size=hp.encoder_kernel_size, w_init_gain='relu'), nn.BatchNorm1d(d))
            for _ in range(hp.encoder_n_convolutions)])
        self.lstm = nn.LSTM(d, d // 2, 1, batch_first=True, bidirectional=True)

    def forward(self, x):
        for conv in self.convolutions:
            x = F.dropout(F.relu(conv(x)), 0.5, self.training)
        outputs, _ = self.lstm(x.transpose(1, 2))
        return outputs


class Decoder(nn.Module):
    def __init__(self, hp):
        super(Decoder, self).__init__()
        self.hp = hp
        E = hp.symbols_embedding_dim
        self.prenet = Prenet(hp.n_mel_channels * hp.n_frames_per_step, [hp.prenet_dim, hp.prenet_dim])
        self.attention_rnn = nn.LSTMCell(hp.prenet_dim + E, hp.attention_rnn_dim)
        self.attention_layer = Attention(hp, E)
        self.decoder_rnn = nn.LSTMCell(hp.attention_rnn_dim + E, hp.decoder_rnn_dim)
        self.linear_projection = LinearNorm(hp.decoder_rnn_dim + E, hp.n_mel_channels * hp.n_frames_per_step)
        self.gate_layer = LinearNorm(hp.decoder_rnn_dim + E, 1, bias=True, w_init_gain='sigmoid')

    def initialize_decoder_states(self, memory, mask):
        B, T = memory.size(0), memory.size(1)
        self_ = {}
        self_['ah'] = memory.new_zeros(B, self.hp.attention_rnn_dim)
        self_['ac'] = memory.new_zeros(B, self.hp.attention_rnn_dim)
        self_['dh'] = memory.new_zeros(B, self.hp.decoder_rnn_dim)
        self_['dc'] = memory.new_zeros(B, self.hp.decoder_rnn_dim)
        self_['w'] = memory.new_zeros(B, T)
        self_['wcum'] = memory.new_zeros(B, T)
        self_['ctx'] = memory.new_zeros(B, memory.size(2))
        self_['pm'] = self.attention_layer.memory_layer(memory)
        self_['mask'] = mask
        return self_

    def decode(self, x, memory, s):
        s['ah'], s['ac'] = self.attention_rnn(torch.cat((x, s['ctx']), -1), (s['ah'], s['ac']))
        s['ah'] = F.dropout(s['ah'], self.hp.p_attention_dropout, self.training)
        cat = torch.cat((s['w'].unsqueeze(1), s['wcum'].unsqueeze(1)), dim=1)
        s['ctx'], s['w'] = self.attention_layer(s['ah'], memory, s['pm'], cat, s['mask'])
        s['wcum'] = s['wcum'] + s['w']
        s['dh'], s['dc'] = self.decoder_rnn(torch.cat((s['ah'], s['ctx']), -1), (s['dh'], s['dc']))
        s['dh'] = F.dropout(s['dh'], self.hp.p_decoder_dropout, self.training)
        hc = torch.cat((s['dh'], s['ctx']), dim=1)
        return self.linear_projection(hc), self.gate_layer(hc), s['w']

    def forward(self, memory, mels, mask):
        # mels B, n_mel, T -> T/r, B, n_mel*r with a zero go frame
        x = mels.transpose(1, 2)
        x = x.reshape(x.size(0), x.size(1) // self.hp.n_frames_per_step, -1).transpose(0, 1)
        go = torch.zeros_like(x[:1])
        x = self.prenet(torch.cat((go, x), dim=0))
        s = self.initialize_decoder_states(memory, mask)
        outs, gates, aligns = [], [], []
        while len(outs) < x.size(0) - 1:
            o, g, a = self.decode(x[len(outs)], memory, s)
            outs += [o]
            gates += [g.squeeze(1)]
            aligns += [a]
        mel = torch.stack(outs).transpose(0, 1).contiguous()
        mel = mel.view(mel.size(0), -1, self.hp.n_mel_channels).transpose(1, 2)
        return mel, torch.stack(gates, 1), torch.stack(aligns, 1)


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        hp = hparams
        self.embedding = nn.Embedding(hp.n_symbols, hp.symbols_embedding_dim)
        val = sqrt(3.0) * sqrt(2.0 / (hp.n_symbols + hp.symbols_embedding_dim))
        self.embedding.weight.data.uniform_(-val, val)
        self.encoder = Encoder(hp)
        self.decoder = Decoder(hp)
        self.postnet = Postnet(hp)

    def guided_attention(self, A, sigma=0.3):
        n = torch.arange(A.size(1), device=A.device).float() / A.size(1)
        t = torch.arange(A.size(2), device=A.device).float() / A.size(2)
        W = 1 - torch.exp(-(n[:, None] - t[None]) ** 2 / (2 * sigma ** 2))
        return (A * W).mean()

    def forward(self, text, mel_target, gate_target):
        emb = self.embedding(text).transpose(1, 2)
        memory = self.encoder(emb)
        mel, gate, align = self.decoder(memory, mel_target, text == 0)
        mel_post = mel + self.postnet(mel)
        mel_loss = nn.MSELoss()(mel, mel_target) + nn.MSELoss()(mel_post, mel_target)
        gate_loss = nn.BCEWithLogitsLoss()(gate, gate_target)
        loss = mel_loss + gate_loss + 5.0 * self.guided_attention(align)
        return loss, [mel, mel_post, gate, align]


def inputs(batch):
    text = torch.randint(1, hparams.n_symbols, (batch, 64))
    text[:, 56:] = 0
    gate = torch.zeros(batch, 45)
    gate[:, 42:] = 1.
    return text, torch.randn(batch, 80, 90), gate
