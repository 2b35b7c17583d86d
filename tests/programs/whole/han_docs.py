# coding: utf-8
# Hierarchical Attention Networks for Document Classification (Yang et al. 2016)
# yelp reviews, 5 stars. Padded [B, S, W] version, no packing.
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB = 20000
EMB = 200
WORD_H = 50
SENT_H = 50
N_CLASS = 5
MAX_SENT = 12
MAX_WORD = 25
PAD = 0


class LockedDropout(nn.Module):
    """same mask over the time dimension"""
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or not self.p:
            return x
        m = x.data.new(x.size(0), 1, x.size(2)).bernoulli_(1 - self.p)
        return x * (m / (1 - self.p))


def embedded_dropout(embed, words, p=0.1):
    # drop whole word types (awd-lstm)
    mask = embed.weight.new_empty((embed.weight.size(0), 1)).bernoulli_(1 - p).expand_as(embed.weight) / (1 - p)
    masked = mask * embed.weight
    return F.embedding(words, masked, embed.padding_idx)


class BiGRU(nn.Module):
    """bidirectional GRU which respects the mask: hand-rolled because the padding of the
    backward direction has to be skipped, and packing was slow with many empty sentences"""
    def __init__(self, n_in, n_hid):
        super().__init__()
        self.n_hid = n_hid
        self.fwd = nn.GRUCell(n_in, n_hid)
        self.bwd = nn.GRUCell(n_in, n_hid)

    def run(self, cell, x, mask, order):
        h = x.new_zeros(x.size(0), self.n_hid)
        hs = [None] * x.size(1)
        for t in order:
            m = mask[:, t:t + 1]
            h = torch.where(m, cell(x[:, t], h), h)
            hs[t] = h
        return torch.stack(hs, dim=1)

    def forward(self, x, mask):
        T = x.size(1)
        f = self.run(self.fwd, x, mask, range(T))
        b = self.run(self.bwd, x, mask, reversed(range(T)))
        return torch.cat([f, b], dim=-1)


class AttentionPool(nn.Module):
    def __init__(self, dim, att_dim):
        super().__init__()
        self.proj = nn.Linear(dim, att_dim)
        self.context = nn.Parameter(torch.Tensor(att_dim, 1))
        self.context.data.normal_(0.0, 0.05)

    def forward(self, h, mask):
        u = torch.tanh(self.proj(h))
        score = torch.matmul(u, self.context).squeeze(-1)
        # exp / sum by hand, an all-pad row must give zeros and not nan
        score = score - score.max(dim=1, keepdim=True)[0].detach()
        e = torch.exp(score) * mask.float()
        a = e / (e.sum(dim=1, keepdim=True) + 1e-9)
        return (h * a.unsqueeze(2)).sum(dim=1), a


class WordEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, EMB, padding_idx=PAD)
        self.drop = LockedDropout(0.3)
        # two layers, the library one for the first (padding does little harm here), ours on top
        self.gru = nn.GRU(EMB, WORD_H, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2 * WORD_H)
        self.att = AttentionPool(2 * WORD_H, 100)

    def forward(self, words):
        mask = words != PAD
        x = embedded_dropout(self.embed, words, p=0.1 if self.training else 0)
        x = self.drop(x)
        h, _ = self.gru(x)
        h = self.norm(h)
        return self.att(h, mask)


class SentEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = BiGRU(2 * WORD_H, SENT_H)
        self.norm = nn.LayerNorm(2 * SENT_H)
        self.att = AttentionPool(2 * SENT_H, 100)

    def forward(self, sents, mask):
        h = self.norm(self.rnn(sents, mask))
        return self.att(h, mask)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = WordEncoder()
        self.sent = SentEncoder()
        self.dropout = nn.Dropout(0.4)
        self.fc = nn.Linear(2 * SENT_H, N_CLASS)
        self.ordinal = nn.Linear(2 * SENT_H, N_CLASS - 1)   # P(y > k), helps on star ratings
        # running class prior for the logit adjustment
        self.register_buffer('prior', torch.ones(N_CLASS) / N_CLASS)
        self.init_weights()

    def init_weights(self):
        for name, p in self.named_parameters():
            if 'weight_hh' in name:
                nn.init.orthogonal_(p)
            elif 'weight_ih' in name:
                nn.init.xavier_uniform_(p)
            elif 'bias' in name:
                nn.init.zeros_(p)
        nn.init.uniform_(self.word.embed.weight, -0.1, 0.1)
        self.word.embed.weight.data[PAD] = 0

    def forward(self, docs, stars):
        B = docs.size(0)
        sent_mask = (docs != PAD).any(dim=2)

        flat = docs.view(B * MAX_SENT, MAX_WORD)
        sent_vec, word_att = self.word(flat)
        sent_vec = sent_vec.view(B, MAX_SENT, -1)
        word_att = word_att.view(B, MAX_SENT, MAX_WORD)

        doc_vec, sent_att = self.sent(sent_vec, sent_mask)
        doc_vec = self.dropout(doc_vec)
        logits = self.fc(doc_vec)

        with torch.no_grad():
            freq = F.one_hot(stars, N_CLASS).float().mean(0)
            self.prior.mul_(0.99).add_(0.01 * freq)
        ce = F.cross_entropy(logits + self.prior.log().clone(), stars)

        levels = (stars.unsqueeze(1) > torch.arange(N_CLASS - 1, device=stars.device)).float()
        ord_loss = F.binary_cross_entropy_with_logits(self.ordinal(doc_vec), levels)

        # push the sentence attention to be peaky
        ent = -(sent_att * (sent_att + 1e-9).log()).sum(1).mean()
        loss = ce + 0.5 * ord_loss + 0.01 * ent
        # attention over every word of the doc, for the highlighting demo
        heat = (word_att * sent_att.unsqueeze(2)).detach()
        return loss, logits, heat


def inputs(batch):
    docs = torch.randint(1, VOCAB, (batch, MAX_SENT, MAX_WORD))
    lens = torch.randint(3, MAX_WORD + 1, (batch, MAX_SENT, 1))
    docs = docs * (torch.arange(MAX_WORD) < lens)
    return docs, torch.randint(0, N_CLASS, (batch,))
