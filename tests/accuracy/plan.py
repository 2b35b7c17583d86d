"""Which runs of the reference program make up the truth that the estimator is compared with.

Every run is a configuration of reference_program.run plus "device". Order is by worth: what comes first tells most.
"""
import models

PRECISIONS = ("fp32", "amp-bf16", "bf16")

# Settings beyond the matrix, on small models whose other settings are covered.
VARIANTS = [
    ("mlp", dict(optimizer="sgd")),
    ("mlp", dict(optimizer="adam")),
    ("mlp", dict(optimizer="adamw", impl="fused")),
    ("mlp", dict(optimizer="adamw", impl="loop")),
    ("mlp", dict(optimizer="adagrad")),
    ("mlp", dict(optimizer="rmsprop")),
    ("mlp", dict(optimizer="adafactor")),
    ("mlp", dict(optimizer="adamw-amsgrad")),
    ("mlp", dict(precision="amp-fp16")),
    ("mlp", dict(zero_grad="end")),
    ("mlp", dict(clip=True)),
    ("mlp", dict(accumulate=4)),
    ("resnet18", dict(optimizer="sgd")),
    ("resnet18", dict(precision="amp-fp16", optimizer="sgd-momentum")),
    ("resnet18", dict(accumulate=4)),
    ("resnet18", dict(clip=True)),
    ("resnet18", dict(alloc_conf="expandable_segments:True")),
    ("resnet50", dict(optimizer="adamw", impl="fused", precision="amp-fp16")),
    ("gpt2", dict(impl="fused")),
    ("gpt2", dict(impl="loop")),
    ("gpt2", dict(optimizer="adam", clip=True)),
    ("gpt2", dict(optimizer="sgd", precision="amp-fp16")),
    ("gpt2", dict(accumulate=4, precision="amp-bf16")),
    ("gpt2", dict(zero_grad="end", precision="bf16")),
    ("gpt2", dict(optimizer="adafactor")),
    ("gpt2", dict(alloc_conf="expandable_segments:True")),
    ("llama-tiny", dict(clip=True, precision="bf16")),
    ("llama-tiny", dict(optimizer="sgd", accumulate=2)),
    ("llama-tiny", dict(impl="fused", precision="amp-bf16")),
    ("llama-tiny", dict(optimizer="adamw-amsgrad")),
    ("vit_b_16", dict(precision="amp-fp16")),
    ("vit_b_16", dict(clip=True, accumulate=2)),
    ("vit_b_16", dict(optimizer="rmsprop")),
]

# The memory strategies of docs/strategies.md.
LAYERS = {"llama-tiny": "model.model.layers.*", "gpt2": "model.transformer.h.*", "vit_b_16": "encoder.layers.*", "resnet18": "layer?.*", "resnet50": "layer?.*"}
STRATEGIES = [
    ("llama-tiny", dict(checkpoint=LAYERS["llama-tiny"], precision="bf16")),
    ("llama-tiny", dict(checkpoint="every:2")),
    ("llama-tiny", dict(checkpoint="groups:2", precision="amp-bf16")),
    ("llama-tiny", dict(checkpoint=LAYERS["llama-tiny"], checkpoint_save="matmul,attention", precision="bf16")),
    ("llama-tiny", dict(checkpoint=LAYERS["llama-tiny"], checkpoint_save="attention")),
    ("gpt2", dict(checkpoint=LAYERS["gpt2"], precision="amp-bf16")),
    ("gpt2", dict(checkpoint=LAYERS["gpt2"], checkpoint_save="matmul")),
    ("resnet18", dict(checkpoint=LAYERS["resnet18"])),
    ("resnet18", dict(checkpoint=LAYERS["resnet18"], checkpoint_save="convolution")),
    ("resnet50", dict(checkpoint=LAYERS["resnet50"], optimizer="sgd-momentum")),
    ("vit_b_16", dict(checkpoint=LAYERS["vit_b_16"], precision="bf16")),
    ("llama-tiny", dict(offload="activations")),
    ("llama-tiny", dict(offload="activations", checkpoint=LAYERS["llama-tiny"], precision="bf16")),
    ("resnet18", dict(offload="activations", precision="amp-bf16")),
    ("llama-tiny", dict(offload="optimizer")),
    ("llama-tiny", dict(offload="parameters", mode="inference", precision="bf16")),
    ("llama-tiny", dict(lora="r=16", precision="bf16")),
    ("llama-tiny", dict(lora="r=8,dropout=0.1,targets=q_proj|v_proj", precision="amp-bf16")),
    ("gpt2", dict(lora="r=8")),
    ("llama-tiny", dict(lora="r=8", checkpoint=LAYERS["llama-tiny"], precision="bf16")),
    ("llama-tiny", dict(optimizer="muon")),
    ("mlp", dict(optimizer="lion")),
    ("mlp", dict(optimizer="adafactor-hf")),
    ("gpt2", dict(optimizer="adafactor-hf")),
    ("llama-tiny", dict(optimizer="adafactor-hf", precision="bf16")),
    ("llama-tiny", dict(kv_cache="sequences=4,length=500,block=16", mode="inference", precision="bf16")),
    ("resnet18", dict(channels_last=True)),
    ("resnet50", dict(channels_last=True, precision="amp-bf16")),
    ("mlp", dict(loss_history=True)),
    ("resnet18", dict(loss_history=True, mode="inference")),
    ("resnet18", dict(empty_cache=True)),
]


# Full and selective checkpointing at three batch sizes each, on the models of tests/accuracy/parallel_record.py.
CHECKPOINTED = {"gpt2": ("model.transformer.h.*", "matmul,attention", [dict(batch=b, seq=512) for b in (1, 4, 8)]),
                "llama-3.2-1b": ("model.model.layers.*", "matmul,attention", [dict(batch=b, seq=512) for b in (1, 2, 4)]),
                "resnet50": ("layer?.*", "convolution", [dict(batch=b) for b in (8, 32, 64)])}


def _matrix(device, name, sizes):
    for precision in PRECISIONS:
        for optimizer in ("adamw", "sgd-momentum"):
            yield dict(device=device, model=name, mode="train", precision=precision, optimizer=optimizer, **sizes)
        yield dict(device=device, model=name, mode="inference", precision=precision, **sizes)


def _other_sizes(device, name, sizes):
    for mode, precision, optimizer in (("train", "fp32", "adamw"), ("train", "amp-bf16", "sgd-momentum"), ("train", "bf16", "adamw"),
                                       ("inference", "bf16", None)):
        run = dict(device=device, model=name, mode=mode, precision=precision, **sizes)
        yield run | ({"optimizer": optimizer} if optimizer else {})


def runs():
    specs = sorted((s for s in models.REGISTRY.values() if s.recorded), key=lambda s: (s.group != "tuning", s.big))
    usual = {s.name: dict(batch=s.batch, seq=s.seq) if s.seq else dict(batch=s.batch) for s in specs}

    def resized(spec, batch, seq):
        return dict(batch=batch, seq=seq) if spec.seq else dict(batch=batch)

    for group in ("tuning", "held-out"):
        members = [s for s in specs if s.group == group]
        for s in members:
            yield from _matrix("h100", s.name, usual[s.name])
        for s in members:
            yield from _matrix("a100", s.name, usual[s.name])
        for s in members:
            # One sample (a dimension of one is a special case of many kernels), and a batch that fills the device more.
            yield from _other_sizes("h100", s.name, resized(s, 1 if s.name not in ("lstm_lm",) else 2, s.seq and s.seq // 2))
            if not s.big:
                yield from _other_sizes("h100", s.name, resized(s, s.batch * 3, s.seq and min(s.seq * 2, s.longest or s.seq * 2)))
    for name, settings in VARIANTS:
        yield dict(device="h100", model=name, mode="train", **{"precision": "fp32", "optimizer": "adamw", **settings}, **usual[name])


def more():
    """Those of more_models.py: once with and once without autocast, and a forward pass."""
    import more_models

    settings = (dict(mode="train", precision="fp32", optimizer="adamw"), dict(mode="train", precision="amp-bf16", optimizer="sgd-momentum"),
                dict(mode="inference", precision="fp32"))
    for chosen in settings:
        for name in more_models.NAMES:
            spec = models.REGISTRY[name]
            yield dict(device="h100", model=name, **chosen, **(dict(batch=spec.batch, seq=spec.seq) if spec.seq else dict(batch=spec.batch)))


# Of every kind of model some, a third of them held out: what is recorded with every version of PyTorch (versions.py).
VERSION_MODELS = ("mlp", "resnet18", "mobilenet_v3_large", "convnext_tiny", "vit_b_16", "unet", "lstm_lm", "moe_lm", "gpt2", "t5-small", "llama-tiny",
                  "alexnet", "efficientnet_b0", "swin_t", "bert-base", "qwen2-0.5b", "opt-125m", "whisper-tiny")
VERSION_VARIANTS = [
    ("mlp", dict(optimizer="sgd")),
    ("mlp", dict(optimizer="adamw", impl="fused")),
    ("mlp", dict(optimizer="adafactor")),
    ("mlp", dict(optimizer="adagrad", precision="amp-fp16")),
    ("gpt2", dict(impl="fused", precision="bf16")),
    ("gpt2", dict(accumulate=4, precision="amp-bf16")),
    ("gpt2", dict(alloc_conf="expandable_segments:True")),
    ("llama-tiny", dict(clip=True, precision="bf16")),
    ("resnet18", dict(precision="amp-fp16", optimizer="sgd-momentum")),
]


def versions():
    """Settings that the runs of 2.11 have as well, so that what a version changes can be seen without an estimator."""
    settings = (dict(device="h100", mode="train", precision="fp32", optimizer="adamw"), dict(device="h100", mode="train", precision="bf16", optimizer="adamw"),
                dict(device="a100", mode="train", precision="amp-bf16", optimizer="sgd-momentum"), dict(device="h100", mode="inference", precision="fp32"))
    for s in settings:
        for name in VERSION_MODELS:
            spec = models.REGISTRY[name]
            yield {"device": s["device"], "model": name, **s, **(dict(batch=spec.batch, seq=spec.seq) if spec.seq else dict(batch=spec.batch))}
    for name, s in VERSION_VARIANTS:
        spec = models.REGISTRY[name]
        yield dict(device="h100", model=name, mode="train", **{"precision": "fp32", "optimizer": "adamw", **s},
                   **(dict(batch=spec.batch, seq=spec.seq) if spec.seq else dict(batch=spec.batch)))


# One by one, and where one decides what another means. What a version does not read, too: it must change nothing.
ENVIRONMENTS = [
    {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
    {"CUBLAS_WORKSPACE_CONFIG": ":16:8"},
    {"CUBLAS_WORKSPACE_CONFIG": ":4096:2:16:8", "CUBLASLT_WORKSPACE_SIZE": "16384"},
    {"CUBLASLT_WORKSPACE_SIZE": "8192"},
    {"TORCH_CUBLASLT_UNIFIED_WORKSPACE": "1"},
    {"TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0"},
    {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"},
    {"TORCH_CUBLAS_WORKSPACE_CACHE": "1"},
    {"TORCH_CUBLAS_WORKSPACE_CACHE": "1", "TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0", "CUBLASLT_WORKSPACE_SIZE": "4096"},
]


def environments():
    """Variables of the environment (docs/versions.md): GPT-2 has products by cuBLAS and cuBLASLt, dropout and attention, Llama no cuBLASLt."""
    for env in ENVIRONMENTS:
        yield dict(device="h100", model="gpt2", mode="train", precision="bf16", optimizer="adamw", batch=4, seq=512, env=env)
        yield dict(device="a100", model="gpt2", mode="inference", precision="fp32", optimizer="adamw", batch=4, seq=512, env=env)
        yield dict(device="h100", model="llama-tiny", mode="train", precision="bf16", optimizer="adamw", batch=8, seq=512, env=env)


def strategies():
    for name, settings in STRATEGIES:
        spec = models.REGISTRY[name]
        sizes = dict(batch=spec.batch, seq=spec.seq) if spec.seq else dict(batch=spec.batch)
        yield dict(device="h100", model=name, **{"mode": "train", "precision": "fp32", "optimizer": "adamw", **settings}, **sizes)
    for name, (layers, save, all_sizes) in CHECKPOINTED.items():
        for settings in (dict(checkpoint=layers), dict(checkpoint=layers, checkpoint_save=save), dict(checkpoint="every:2")):
            for sizes in all_sizes:
                yield dict(device="h100", model=name, mode="train", precision="fp32", optimizer="adamw", **settings, **sizes)
    # Nested checkpoints, and activations that wait in host memory at several batch sizes.
    for name, settings in (("gpt2", dict(checkpoint="groups:4/blocks")), ("gpt2", dict(checkpoint="groups:6/groups:2/blocks", precision="bf16")),
                           ("vit_b_16", dict(checkpoint="groups:4/blocks", precision="amp-bf16"))):
        sizes = dict(batch=4, seq=512) if name == "gpt2" else dict(batch=16)
        yield dict(device="h100", model=name, **{"mode": "train", "precision": "fp32", "optimizer": "adamw", **settings}, **sizes)
    for batch in (8, 16, 32):
        yield dict(device="h100", model="resnet50", mode="train", precision="amp-bf16", optimizer="adamw", offload="activations", batch=batch)
    # Where activations are gone, the workspace of a convolution is what decides: on a card of another compute capability, too.
    for settings in (dict(offload="activations", batch=16), dict(offload="activations", batch=32), dict(batch=32)):
        yield dict(device="rtx3060-12gb", model="resnet50", mode="train", precision="amp-bf16", optimizer="adamw", **settings)
