"""A researcher with a model of one's own: a transformer with a mixture of experts, in a plain loop."""
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, TOKENS, WIDTH, WORDS = 8, 512, 768, 32000


class Experts(nn.Module):
    """All experts see all tokens, and a gate weighs what they say."""

    def __init__(self, width, experts=4):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * 0.02)

    def forward(self, x):
        said = torch.einsum("bteh,ehd->bted", F.gelu(torch.einsum("btd,edh->bteh", x, self.up)), self.down)
        return (said * self.gate(x).softmax(-1)[..., None]).sum(2)


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out, self.experts = nn.Linear(width, 3 * width), nn.Linear(width, width), Experts(width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = (p.unflatten(-1, (-1, 64)).transpose(1, 2) for p in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.dropout(self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)))
        return x + self.dropout(self.experts(self.norm2(x)))


class Model(nn.Module):
    def __init__(self, layers=6):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Parameter(torch.zeros(TOKENS, WIDTH))
        self.layers, self.norm, self.head = nn.ModuleList(Layer(WIDTH) for _ in range(layers)), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids, targets):
        x = self.words(ids) + self.places[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def make():
    """For memplan: the module, and its arguments."""
    ids = torch.zeros(BATCH, TOKENS, dtype=torch.long)
    return Model(), (ids, ids)


def main():
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        ids = torch.randint(0, WORDS, (BATCH, TOKENS + 1)).cuda()
        loss = model(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
