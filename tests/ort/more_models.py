"""Builders of models.py for what people serve with ONNX Runtime beside plain networks: decoders with their cache as inputs, encoders with
decoders, a denoiser, files in half precision, quantized ones, and graphs that onnxruntime.transformers has fused."""
import importlib


def cached(model, config, layers, heads, width, **sizes):
    """One step of a decoder: a token, and keys and values of those before it as inputs and outputs."""
    def build():
        import torch
        import transformers

        c = getattr(transformers, config)(**sizes)
        c._attn_implementation = "eager"
        decoder = getattr(transformers, model)(c)

        class Step(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.decoder = decoder

            def forward(self, input_ids, past):
                cache = transformers.DynamicCache([(k, v) for k, v in past])
                out = self.decoder(input_ids, past_key_values=cache, use_cache=True)
                return out.logits, [(layer.keys, layer.values) for layer in out.past_key_values.layers]

        past = [tuple(torch.zeros(2, heads, 5, width) for _ in "kv") for _ in range(layers)]
        return Step(), {"input_ids": torch.ones(2, 3, dtype=torch.int64), "past": past}

    return build


def encoder_decoder(model, config, feature=None, **sizes):
    def build():
        import torch
        import transformers

        c = getattr(transformers, config)(**sizes, use_cache=False)
        c._attn_implementation = "eager"
        whole = getattr(transformers, model)(c)

        class Logits(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.whole = whole

            def forward(self, source, decoder_input_ids):
                return self.whole(source, decoder_input_ids=decoder_input_ids).logits

        source = torch.zeros(2, *feature) if feature else torch.ones(2, 16, dtype=torch.int64)
        return Logits(), {"source": source, "decoder_input_ids": torch.ones(2, 16, dtype=torch.int64)}

    return build


def denoiser():
    """A diffusion U-Net in small: residual blocks with a time embedding, group norms, self and cross attention."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.n1, self.c1 = nn.GroupNorm(8, a), nn.Conv2d(a, b, 3, padding=1)
            self.t = nn.Linear(128, b)
            self.n2, self.c2 = nn.GroupNorm(8, b), nn.Conv2d(b, b, 3, padding=1)
            self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

        def forward(self, x, t):
            h = self.c1(F.silu(self.n1(x))) + self.t(F.silu(t))[:, :, None, None]
            return self.skip(x) + self.c2(F.silu(self.n2(h)))

    class Attention(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.norm, self.q, self.kv, self.out = nn.GroupNorm(8, c), nn.Linear(c, c), nn.Linear(64, 2 * c), nn.Linear(c, c)

        def forward(self, x, text):
            n, c, h, w = x.shape
            q = self.q(self.norm(x).reshape(n, c, h * w).transpose(1, 2)).reshape(n, h * w, 4, c // 4).transpose(1, 2)
            k, v = (t.reshape(n, -1, 4, c // 4).transpose(1, 2) for t in self.kv(text).chunk(2, -1))
            y = torch.softmax(q @ k.transpose(-1, -2) / (c // 4) ** 0.5, -1) @ v
            return x + self.out(y.transpose(1, 2).reshape(n, h * w, c)).transpose(1, 2).reshape(n, c, h, w)

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(32, 128), nn.SiLU(), nn.Linear(128, 128))
            self.inp, self.d1, self.a1 = nn.Conv2d(4, 32, 3, padding=1), Block(32, 32), Attention(32)
            self.down, self.d2, self.a2 = nn.Conv2d(32, 32, 3, 2, 1), Block(32, 64), Attention(64)
            self.u1, self.u2 = Block(64, 64), Block(96, 32)
            self.out = nn.Sequential(nn.GroupNorm(8, 32), nn.SiLU(), nn.Conv2d(32, 4, 3, padding=1))

        def forward(self, x, t, text):
            f = t[:, None] * torch.exp(-torch.arange(16) / 16 * 9.2)[None]
            t = self.time(torch.cat([f.sin(), f.cos()], -1))
            one = self.a1(self.d1(self.inp(x), t), text)
            two = self.u1(self.a2(self.d2(self.down(one), t), text), t)
            up = F.interpolate(two, scale_factor=2.0, mode="nearest")
            return self.out(self.u2(torch.cat([up, one], 1), t))

    return Denoiser(), {"x": torch.zeros(2, 4, 32, 32), "t": torch.zeros(2), "text": torch.zeros(2, 77, 64)}


def half(build):
    def made():
        import torch

        model, inputs = build()
        return model.half(), {n: t.half() if t.dtype == torch.float32 else t for n, t in inputs.items()}

    return made


def recurrent():
    """Two directions, two kinds of cell."""
    import torch
    from torch import nn

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(3000, 96)
            self.lstm = nn.LSTM(96, 128, 2, batch_first=True, bidirectional=True)
            self.gru = nn.GRU(256, 64, batch_first=True)
            self.out = nn.Linear(64, 17)

        def forward(self, input_ids):
            return self.out(self.gru(self.lstm(self.embedding(input_ids))[0])[0])

    return Tagger(), {"input_ids": torch.ones(2, 64, dtype=torch.int64)}


def quantize(path):
    """Static int8 with QuantizeLinear and DequantizeLinear around each op, as onnxruntime.quantization writes it."""
    import numpy as np
    import onnx
    from onnxruntime import quantization as q

    model = onnx.load(path)
    sizes = {"batch": 2, "seq": 64}
    feeds = [{i.name: (np.ones if i.type.tensor_type.elem_type == onnx.TensorProto.INT64 else np.random.rand)(
        *([[d.dim_value or sizes[d.dim_param] for d in i.type.tensor_type.shape.dim]] if i.type.tensor_type.elem_type == onnx.TensorProto.INT64
          else [d.dim_value or sizes[d.dim_param] for d in i.type.tensor_type.shape.dim])) for i in model.graph.input}]
    feeds = [{n: a.astype(np.int64 if a.ndim == 2 else np.float32) for n, a in f.items()} for f in feeds]

    class Reader(q.CalibrationDataReader):
        def __init__(self):
            self.left = list(feeds)

        def get_next(self):
            return self.left.pop() if self.left else None

    q.quantize_static(path, path, Reader(), quant_format=q.QuantFormat.QDQ)


def fuse(kind, heads, width, float16=False):
    """What onnxruntime.transformers makes of a transformer: Attention, SkipLayerNormalization, BiasGelu of com.microsoft."""
    def rewrite(path):
        optimizer = importlib.import_module("onnxruntime.transformers.optimizer")
        model = optimizer.optimize_model(path, model_type=kind, num_heads=heads, hidden_size=width, opt_level=0)
        if float16:
            model.convert_float_to_float16()
        model.save_model_to_file(path)

    return rewrite
