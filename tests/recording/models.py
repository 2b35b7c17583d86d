"""Modules that nothing in memplan was made for: each function returns (module, args, kwargs) for a batch."""
import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # as scripts begin; asked too early it keeps CUDA from forked processes


def _tokens(batch, length, vocabulary=8000):
    ids = torch.zeros(batch, length, dtype=torch.long)
    return (), dict(input_ids=ids, labels=ids.clone())


def gemma3(batch):
    import transformers as t

    c = t.Gemma3TextConfig(vocab_size=8000, hidden_size=256, intermediate_size=768, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=64)
    return t.Gemma3ForCausalLM(c), *_tokens(batch, 96)


def bloom(batch):
    import transformers as t

    return t.BloomForCausalLM(t.BloomConfig(vocab_size=8000, hidden_size=256, n_layer=2, n_head=4)), *_tokens(batch, 96)


def mamba2(batch):
    import transformers as t

    c = t.Mamba2Config(vocab_size=8000, hidden_size=256, num_hidden_layers=2, num_heads=8, head_dim=64, state_size=32, n_groups=1)
    return t.Mamba2ForCausalLM(c), *_tokens(batch, 64)


def gpt_bigcode(batch):
    import transformers as t

    return t.GPTBigCodeForCausalLM(t.GPTBigCodeConfig(vocab_size=8000, n_embd=256, n_layer=2, n_head=4, n_positions=128)), *_tokens(batch, 96)


def segformer(batch):
    import transformers as t

    c = t.SegformerConfig(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 64, 128], decoder_hidden_size=64, num_labels=19)
    return t.SegformerForSemanticSegmentation(c), (torch.zeros(batch, 3, 128, 128),), {}


def mnasnet(batch):
    import torchvision

    return torchvision.models.mnasnet0_5(), (torch.zeros(batch, 3, 128, 128),), {}


def deit3(batch):
    import timm

    return timm.create_model("deit3_small_patch16_224", img_size=96, depth=3), (torch.zeros(batch, 3, 96, 96),), {}


def encoder(batch):
    """The fast path of nn.TransformerEncoder in inference."""

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(5000, 128)
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 512, batch_first=True), 2)
            self.head = nn.Linear(128, 7)

        def forward(self, ids):
            return self.head(self.encoder(self.embedding(ids)).mean(1))

    return Classifier(), (torch.zeros(batch, 50, dtype=torch.long),), {}


class _Keeps(torch.autograd.Function):
    """Saves more than its ops would."""

    @staticmethod
    def forward(ctx, x):
        y = torch.sigmoid(x)
        z = x * y
        ctx.save_for_backward(x, y, z, z + y)
        return z

    @staticmethod
    def backward(ctx, grad):
        x, y, _, _ = ctx.saved_tensors
        return grad * y * (1 + x * (1 - y))


class _Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(_Keeps.apply(self.up(self.norm(x))))


class Own(nn.Module):
    """An autograd.Function, checkpoints, a list of results, slice assignment and a loss of its own."""

    def __init__(self, width=192, depth=4):
        super().__init__()
        self.blocks = nn.ModuleList(_Block(width) for _ in range(depth))
        self.head = nn.Linear(width * depth, width)

    def gather(self, x):
        kept = []
        for i, block in enumerate(self.blocks):
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if i % 2 else block(x)
            kept.append(x)
        return kept

    def forward(self, x, target):
        canvas = torch.zeros_like(target)
        canvas[:, ::2] = self.head(torch.cat(self.gather(x), -1))[:, ::2]
        return nn.functional.mse_loss(canvas, target)


def own(batch):
    return Own(), (torch.zeros(batch, 40, 192), torch.zeros(batch, 40, 192)), {}


ALL = (gemma3, bloom, mamba2, gpt_bigcode, segformer, mnasnet, deit3, encoder, own)


def maker(name):
    """A function that makes the module alone: what memplan.record takes beside a module."""
    import functools

    return functools.partial(_module, name)


def _module(name):
    return globals()[name](1)[0]
