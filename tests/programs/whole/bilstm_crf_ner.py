# Named entity recognition, CoNLL style tags. char BiGRU + word embeddings -> BiLSTM -> linear chain CRF
import torch
import torch.nn as nn

PAD_ID = 0
START, STOP = -2, -1  # two last rows/cols of the transition matrix


def log_sum_exp(x, dim=-1):
    m, _ = x.max(dim)
    return m + torch.log(torch.sum(torch.exp(x - m.unsqueeze(dim)), dim))


class CharEncoder(nn.Module):
    def __init__(self, n_chars, dim, hidden):
        super(CharEncoder, self).__init__()
        self.embed = nn.Embedding(n_chars, dim, padding_idx=PAD_ID)
        self.rnn = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.out_dim = hidden * 2

    def forward(self, chars):
        # chars: (B, T, W) -> (B, T, 2*hidden)
        B, T, W = chars.shape
        e = self.embed(chars.reshape(B * T, W))
        _, h = self.rnn(e)
        return torch.cat([h[0], h[1]], -1).reshape(B, T, self.out_dim)


class CRF(nn.Module):
    def __init__(self, num_tags):
        super(CRF, self).__init__()
        self.num_tags = num_tags + 2
        self.trans = nn.Parameter(torch.randn(self.num_tags, self.num_tags) * 0.1)  # [to, from]
        forbid = torch.zeros(self.num_tags, self.num_tags)
        forbid[START, :] = -10000.
        forbid[:, STOP] = -10000.
        self.register_buffer('forbid', forbid)

    @property
    def transitions(self):
        return self.trans + self.forbid

    def partition(self, feats, mask):
        """forward algorithm"""
        trans = self.transitions
        alpha = torch.full((feats.size(0), self.num_tags), -10000., device=feats.device)
        alpha[:, START] = 0.
        for t in range(feats.size(1)):
            emit = feats[:, t].unsqueeze(2)              # (B, K, 1)
            score = alpha.unsqueeze(1) + emit + trans     # (B, to, from)
            m_t = mask[:, t].unsqueeze(1)
            alpha = m_t * log_sum_exp(score) + (1 - m_t) * alpha
        return log_sum_exp(alpha + trans[STOP])

    def gold_score(self, feats, tags, mask):
        B, T, K = feats.shape
        trans = self.transitions
        start = torch.full((B, 1), K - 2, dtype=torch.long, device=feats.device)
        padded = torch.cat([start, tags], 1)
        emit = feats.gather(2, tags.unsqueeze(2)).squeeze(2)
        tr = trans[padded[:, 1:], padded[:, :-1]]
        score = ((emit + tr) * mask).sum(1)
        last = padded.gather(1, mask.sum(1, keepdim=True).long()).squeeze(1)
        return score + trans[STOP, last]

    def viterbi_scores(self, feats, mask):
        """max-marginal end scores only (no back pointers), used for the margin"""
        delta = feats[:, 0] + self.transitions[:, START]
        for t in range(1, feats.size(1)):
            best = (delta.unsqueeze(1) + self.transitions).max(-1)[0] + feats[:, t]
            delta = torch.where(mask[:, t, None] > 0, best, delta)
        return (delta + self.transitions[STOP]).max(-1).values


class LockedDropout(nn.Module):
    def __init__(self, p=0.5):
        super(LockedDropout, self).__init__()
        self.p = p

    def forward(self, x):
        if not self.training or not self.p:
            return x
        m = x.new_empty(x.size(0), 1, x.size(2)).bernoulli_(1 - self.p)
        return x * m.div_(1 - self.p)


class Model(nn.Module):
    def __init__(self, n_words=12000, n_chars=90, n_tags=17, word_dim=100, hidden=256):
        super(Model, self).__init__()
        self.n_tags = n_tags
        self.word_embed = nn.Embedding(n_words, word_dim, padding_idx=PAD_ID)
        self.char = CharEncoder(n_chars, 30, 50)
        self.drop = LockedDropout(.4)
        self.lstm = nn.LSTM(word_dim + self.char.out_dim, hidden, num_layers=2, batch_first=True,
                            bidirectional=True, dropout=0.25)
        self.hidden2tag = nn.Linear(2 * hidden, n_tags + 2)
        self.crf = CRF(n_tags)
        self._init()

    def _init(self):
        for name, w in self.lstm.named_parameters():
            if 'weight_hh' in name:
                nn.init.orthogonal_(w)
            elif 'bias' in name:
                nn.init.zeros_(w)
                n = w.size(0)
                w.data[n // 4:n // 2].fill_(1.)

    def _get_features(self, words, chars):
        x = torch.cat([self.word_embed(words), self.char(chars)], dim=-1)
        x = self.drop(x)
        x, _ = self.lstm(x)
        return self.hidden2tag(self.drop(x))

    def forward(self, words, chars, tags):
        mask = (words != PAD_ID).float()
        feats = self._get_features(words, chars)
        nll = self.crf.partition(feats, mask) - self.crf.gold_score(feats, tags, mask)
        with torch.no_grad():
            margin = self.crf.viterbi_scores(feats, mask)
        return {'loss': nll.mean(), 'nll': nll, 'best': margin}


def inputs(batch):
    T, W = 60, 14
    words = torch.randint(1, 12000, (batch, T))
    words[:, 52:] = PAD_ID
    chars = torch.randint(0, 90, (batch, T, W))
    tags = torch.randint(0, 17, (batch, T))
    return words, chars, tags
