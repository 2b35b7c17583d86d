# CS 5xx Assignment 4: Neural Machine Translation with RNNs
# Student solution. Bidirectional LSTM encoder, additive attention, input feeding.

import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, vocab_size, embed_size, hidden_size, dropout=0.2):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, embed_size, padding_idx=0)
        self.conv = nn.Conv1d(embed_size, embed_size, kernel_size=3, padding="same")
        self.lstm = nn.LSTM(embed_size, hidden_size, num_layers=1, batch_first=True, bidirectional=True)
        self.hidden_size = hidden_size
        self.h_projection = nn.Linear(hidden_size, hidden_size)
        self.c_projection = nn.Linear(2 * hidden_size, hidden_size, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, src):
        x = self.dropout(self.embed(src))
        x = self.conv(x.permute(0, 2, 1)).permute(0, 2, 1)
        enc_hiddens, _ = self.lstm(x)
        # as in the Bahdanau paper: s_0 = tanh(W h_1<-), the backward state at the first word
        init_hidden = torch.tanh(self.h_projection(enc_hiddens[:, 0, self.hidden_size:]))
        init_cell = self.c_projection(enc_hiddens.mean(dim=1))
        return enc_hiddens, (init_hidden, init_cell)


class BahdanauAttention(nn.Module):
    def __init__(self, enc_dim, dec_dim, attn_dim):
        super().__init__()
        self.W1 = nn.Linear(enc_dim, attn_dim, bias=False)
        self.W2 = nn.Linear(dec_dim, attn_dim)
        self.V = nn.Linear(attn_dim, 1, bias=False)

    def precompute(self, enc_hiddens):
        return self.W1(enc_hiddens)

    def forward(self, enc_hiddens, enc_proj, query, src_mask):
        # query (b, h) -> (b, 1, a)
        score = self.V(torch.tanh(enc_proj + self.W2(query).unsqueeze(1))).squeeze(2)
        score = score.masked_fill(src_mask, float("-inf"))
        alpha = F.softmax(score, dim=1)
        context = torch.bmm(alpha.unsqueeze(1), enc_hiddens).squeeze(1)
        return context, alpha


class Decoder(nn.Module):
    def __init__(self, vocab_size, embed_size, hidden_size, dropout=0.2):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, embed_size, padding_idx=0)
        self.cell = nn.LSTMCell(embed_size + hidden_size, hidden_size)
        self.attention = BahdanauAttention(2 * hidden_size, hidden_size, hidden_size)
        self.combined_output_projection = nn.Linear(3 * hidden_size, hidden_size, bias=False)
        self.target_vocab_projection = nn.Linear(hidden_size, vocab_size, bias=False)
        self.dropout = nn.Dropout(dropout)

    def step(self, Ybar_t, dec_state, enc_hiddens, enc_hiddens_proj, enc_masks):
        dec_state = self.cell(Ybar_t, dec_state)
        dec_hidden, dec_cell = dec_state
        a_t, alpha_t = self.attention(enc_hiddens, enc_hiddens_proj, dec_hidden, enc_masks)
        U_t = torch.cat([dec_hidden, a_t], dim=1)
        V_t = self.combined_output_projection(U_t)
        O_t = self.dropout(torch.tanh(V_t))
        return dec_state, O_t, alpha_t

    def forward(self, target, enc_hiddens, dec_init_state, enc_masks):
        Y = self.embed(target)
        enc_hiddens_proj = self.attention.precompute(enc_hiddens)
        dec_state = dec_init_state
        o_prev = torch.zeros_like(dec_init_state[0])

        combined_outputs, alphas = [], []
        for Y_t in torch.split(Y, 1, dim=1):
            Y_t = Y_t.squeeze(1)
            Ybar_t = torch.cat([Y_t, o_prev], dim=-1)
            dec_state, o_t, alpha_t = self.step(Ybar_t, dec_state, enc_hiddens, enc_hiddens_proj, enc_masks)
            combined_outputs.append(o_t)
            alphas.append(alpha_t)
            o_prev = o_t
        return torch.stack(combined_outputs, dim=1), torch.stack(alphas, dim=1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.src_vocab = 5000
        self.tgt_vocab = 4000
        E, Hd = 192, 256
        self.encoder = Encoder(self.src_vocab, E, Hd)
        self.decoder = Decoder(self.tgt_vocab, E, Hd)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.uniform_(p, -0.1, 0.1)
            else:
                nn.init.zeros_(p)

    def generate_sent_masks(self, source):
        return source == 0

    def forward(self, source, target):
        enc_masks = self.generate_sent_masks(source)
        enc_hiddens, dec_init_state = self.encoder(source)
        # chop off </s> for the decoder input, <s> for the gold output
        combined_outputs, alphas = self.decoder(target[:, :-1], enc_hiddens, dec_init_state, enc_masks)
        P = F.log_softmax(self.decoder.target_vocab_projection(combined_outputs), dim=-1)

        target_masks = (target != 0).float()
        gold = target[:, 1:]
        target_gold_words_log_prob = torch.gather(P, index=gold.unsqueeze(-1), dim=-1).squeeze(-1)
        target_gold_words_log_prob = target_gold_words_log_prob * target_masks[:, 1:]
        scores = target_gold_words_log_prob.sum(dim=1)

        # doubly stochastic attention regulariser (extra credit)
        coverage = ((1.0 - alphas.sum(dim=1)) ** 2).masked_fill(enc_masks, 0.0).mean(dim=1)
        return -scores + 0.5 * coverage      # one number per example, averaged in the training loop


def inputs(batch):
    source = torch.randint(3, 5000, (batch, 56))
    target = torch.randint(3, 4000, (batch, 49))
    source[:, 50:] = 0
    target[:, 0] = 1
    target[:, 44:] = 0
    return source, target
