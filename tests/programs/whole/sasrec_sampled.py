import torch
import torch.nn.functional as F


class PointWiseFeedForward(torch.nn.Module):
    def __init__(self, hidden_units, dropout_rate):
        super(PointWiseFeedForward, self).__init__()
        self.conv1 = torch.nn.Conv1d(hidden_units, hidden_units, kernel_size=1)
        self.dropout1 = torch.nn.Dropout(p=dropout_rate)
        self.relu = torch.nn.ReLU()
        self.conv2 = torch.nn.Conv1d(hidden_units, hidden_units, kernel_size=1)
        self.dropout2 = torch.nn.Dropout(p=dropout_rate)

    def forward(self, inputs):
        outputs = self.dropout2(self.conv2(self.relu(self.dropout1(self.conv1(inputs.transpose(-1, -2))))))
        outputs = outputs.transpose(-1, -2)  # as Conv1D requires (N, C, Length)
        outputs += inputs
        return outputs


class ItemTower(torch.nn.Module):
    # id + text embedding (precomputed upstream, quantized to 16 codes of 256) + popularity bias
    def __init__(self, item_num, dim, codes=16, codebook=256):
        super(ItemTower, self).__init__()
        self.item_emb = torch.nn.Embedding(item_num + 1, dim, padding_idx=0)
        self.code_emb = torch.nn.EmbeddingBag(codes * codebook, dim, mode='mean')
        self.register_buffer('code_of_item', torch.randint(0, codebook, (item_num + 1, codes)) + torch.arange(codes) * codebook)
        self.fuse = torch.nn.Linear(2 * dim, dim)

    def forward(self, ids):
        codes = self.code_of_item[ids]
        text = self.code_emb(codes.reshape(-1, codes.shape[-1])).reshape(*ids.shape, -1)
        return self.fuse(torch.cat([self.item_emb(ids), text], dim=-1))


class Model(torch.nn.Module):
    def __init__(self, item_num=25000, maxlen=160, hidden_units=128, num_blocks=3, num_heads=4, dropout_rate=0.2, temp=0.07):
        super(Model, self).__init__()
        self.item_num = item_num
        self.temp = temp
        self.items = ItemTower(item_num, hidden_units)
        self.pos_emb = torch.nn.Embedding(maxlen + 1, hidden_units)
        self.emb_dropout = torch.nn.Dropout(p=dropout_rate)

        self.attention_layernorms = torch.nn.ModuleList()  # to be Q for self-attention
        self.attention_layers = torch.nn.ModuleList()
        self.forward_layernorms = torch.nn.ModuleList()
        self.forward_layers = torch.nn.ModuleList()
        self.last_layernorm = torch.nn.LayerNorm(hidden_units, eps=1e-8)

        for _ in range(num_blocks):
            self.attention_layernorms.append(torch.nn.LayerNorm(hidden_units, eps=1e-8))
            self.attention_layers.append(torch.nn.MultiheadAttention(hidden_units, num_heads, dropout_rate))
            self.forward_layernorms.append(torch.nn.LayerNorm(hidden_units, eps=1e-8))
            self.forward_layers.append(PointWiseFeedForward(hidden_units, dropout_rate))

        for _, p in self.named_parameters():
            if p.dim() > 1:
                torch.nn.init.xavier_normal_(p.data)

    def log2feats(self, log_seqs):
        seqs = self.items(log_seqs)
        seqs *= seqs.shape[-1] ** 0.5
        pos = torch.arange(1, log_seqs.shape[1] + 1, device=log_seqs.device)
        pos = pos * (log_seqs != 0)
        seqs += self.pos_emb(pos)
        seqs = self.emb_dropout(seqs)

        tl = seqs.shape[1]  # time dim len for enforce causality
        attention_mask = ~torch.tril(torch.ones((tl, tl), dtype=torch.bool, device=seqs.device))
        keep = (log_seqs != 0).unsqueeze(-1)

        for i in range(len(self.attention_layers)):
            seqs = torch.transpose(seqs, 0, 1)
            Q = self.attention_layernorms[i](seqs)
            mha_outputs, _ = self.attention_layers[i](Q, seqs, seqs, attn_mask=attention_mask)
            seqs = Q + mha_outputs
            seqs = torch.transpose(seqs, 0, 1)

            seqs = self.forward_layernorms[i](seqs)
            seqs = self.forward_layers[i](seqs)
            seqs *= keep

        return self.last_layernorm(seqs)

    def forward(self, log_seqs, pos_seqs, neg_seqs, log_q):
        log_feats = self.log2feats(log_seqs)
        pos_embs = self.items(pos_seqs)
        neg_embs = self.items(neg_seqs)

        valid = (pos_seqs != 0).float()
        pos_logits = (log_feats * pos_embs).sum(dim=-1)
        neg_logits = (log_feats * neg_embs).sum(dim=-1)
        bce = F.softplus(-pos_logits) + F.softplus(neg_logits)
        bce = (bce * valid).sum() / valid.sum().clamp(min=1)

        # in-batch negatives: all the positives at all positions, logQ corrected
        u = F.normalize(log_feats, dim=-1).flatten(0, 1)
        v = F.normalize(pos_embs, dim=-1).flatten(0, 1)
        ids = pos_seqs.flatten()
        logits = u @ v.t() / self.temp - log_q.flatten()[None, :]
        n = logits.shape[0]
        eye = torch.eye(n, dtype=torch.bool, device=logits.device)
        same = (ids[:, None] == ids[None, :]) & ~eye
        logits = logits.masked_fill(same | (ids == 0)[None, :] & ~eye, -1e4)
        ce = F.cross_entropy(logits, torch.arange(n, device=logits.device), reduction='none')
        w = valid.flatten()
        ce = (ce * w).sum() / w.sum().clamp(min=1)
        return bce + 0.5 * ce


def inputs(batch, L=160):
    s = torch.randint(1, 25001, (batch, L + 1))
    s[:, :20] = 0
    return s[:, :-1].contiguous(), s[:, 1:].contiguous(), torch.randint(1, 25001, (batch, L)), -8 + torch.randn(batch, L)
