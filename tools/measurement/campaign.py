"""What the campaign runs, by worth: what stands first tells most when the time is short."""

T = dict(mode="train", precision="fp32", optimizer="adamw")
I = dict(mode="inference", precision="fp32")


def runs():
    """Configurations of tests/accuracy/reference_program.py."""

    def r(model, **settings):
        return dict(model=model, **settings)

    found = []
    # The matrix: what people train, in the precisions that they use.
    for model, sizes in (("resnet50", dict(batch=32)), ("gpt2", dict(batch=4, seq=512)), ("vit_b_16", dict(batch=16)), ("llama-tiny", dict(batch=8, seq=512)),
                         ("bert-base", dict(batch=8, seq=384))):
        for precision in ("fp32", "amp-bf16", "bf16"):
            found.append(r(model, **{**T, "precision": precision}, **sizes))
        found.append(r(model, **{**T, "optimizer": "sgd-momentum"}, **sizes))
        found.append(r(model, **{**T, "precision": "amp-fp16"}, **sizes))
        found.append(r(model, **I, **sizes))
        found.append(r(model, **{**I, "precision": "bf16"}, **sizes))
    # Batch sizes.
    for model, sizes in (("resnet50", [dict(batch=b) for b in (1, 8, 128)]), ("gpt2", [dict(batch=1, seq=256), dict(batch=16, seq=1024)]),
                         ("vit_b_16", [dict(batch=1), dict(batch=64)]), ("llama-tiny", [dict(batch=1, seq=256), dict(batch=32, seq=1024)])):
        for s in sizes:
            found.append(r(model, **T, **s))
            found.append(r(model, **{**T, "precision": "amp-bf16", "optimizer": "sgd-momentum"}, **s))
    # Other kinds of models.
    for model, sizes in (("resnet18", dict(batch=32)), ("mobilenet_v3_large", dict(batch=32)), ("convnext_tiny", dict(batch=16)), ("unet", dict(batch=4)),
                         ("lstm_lm", dict(batch=16)), ("t5-small", dict(batch=8, seq=256)), ("moe_lm", dict(batch=8, seq=256)), ("mlp", dict(batch=256))):
        found.append(r(model, **T, **sizes))
        found.append(r(model, **{**T, "precision": "amp-bf16"}, **sizes))
    # Checkpointing, accumulation, clipping, optimizers, allocator settings.
    for model, glob, sizes in (("gpt2", "model.transformer.h.*", dict(batch=4, seq=512)), ("llama-tiny", "model.model.layers.*", dict(batch=8, seq=512)),
                               ("vit_b_16", "encoder.layers.*", dict(batch=16)), ("resnet50", "layer?", dict(batch=32))):
        found.append(r(model, **T, checkpoint=glob, **sizes))
        found.append(r(model, **{**T, "precision": "amp-bf16"}, checkpoint=glob, **sizes))
    for settings in (dict(optimizer="adam", clip=True), dict(optimizer="sgd"), dict(optimizer="adafactor"), dict(impl="fused"), dict(impl="loop"), dict(accumulate=4),
                     dict(alloc_conf="expandable_segments:True"), dict(zero_grad="end")):
        found.append(r("gpt2", **{**T, **settings}, batch=4, seq=512))
    for settings in (dict(clip=True), dict(accumulate=4), dict(alloc_conf="expandable_segments:True")):
        found.append(r("resnet50", **{**T, **settings}, batch=32))
    return found


CONVOLUTIONS = [  # input, weight, stride, padding, groups
    ((32, 3, 224, 224), (64, 3, 7, 7), 2, 3, 1),
    ((32, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1),
    ((32, 64, 56, 56), (256, 64, 1, 1), 1, 0, 1),
    ((32, 512, 7, 7), (512, 512, 3, 3), 1, 1, 1),
    ((32, 96, 56, 56), (96, 1, 7, 7), 1, 3, 96),
    ((1, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1),
]
NORMS = [(32, 64, 112, 112), (32, 256, 56, 56), (32, 2048, 7, 7), (1, 64, 56, 56), (256, 512)]
RECURRENT = [("LSTM", 1, 256, 64, 16), ("LSTM", 2, 512, 128, 32), ("GRU", 2, 512, 64, 16), ("LSTM", 1, 1024, 64, 64)]  # kind, layers, hidden, length, batch


def probes():
    """Calls of probes.py: [name, arguments]"""
    found = [["libraries", {}], ["cublas", {}], ["nccl", {}]]
    for dtype in ("float32", "float16", "bfloat16"):
        found += [["batch_norm", dict(shape=list(s), dtype=dtype, channels_last=c)] for s in NORMS for c in ((False, True) if len(s) == 4 else (False,))]
    for dtype in ("float32", "bfloat16"):
        found += [["convolution", dict(x=list(x), w=list(w), stride=s, padding=p, groups=g, dtype=dtype, channels_last=c)]
                  for x, w, s, p, g in CONVOLUTIONS for c in (False, True)]
    for dtype in ("float32", "float16"):
        found += [["recurrent", dict(kind=k, layers=n, hidden=h, length=t, batch=b, dtype=dtype)] for k, n, h, t, b in RECURRENT]
    found += [["fsdp2", dict(world=w, layers=4, hidden=512, precision=p)] for w in (2, 8) for p in ("fp32", "bf16")]
    found += [["ddp", dict(model=m, as_view=v)] for m in ("resnet50", "gpt2") for v in (False, True)]
    return found
