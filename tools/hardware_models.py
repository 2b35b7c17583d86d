"""The models of published measurements on real GPUs (data/measured/hardware), exported from their real sizes on the meta device.

    python tools/hardware_models.py [NAME …]     writes data/measured/hardware/models/NAME.pt2; nothing is downloaded

Needs torch, torchvision and timm. An archive holds the graph without weights, its batch is open, its image
has the size that was measured.
"""
import os
import sys
import tempfile
import time
import warnings

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import export_pt2  # also finds export_models

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "measured", "hardware", "models")


def vision(name, size, classes):
    def build():
        import torchvision

        with torch.device("cpu"):  # RegNet reads its widths from a tensor
            module = getattr(torchvision.models, name)(weights=None, num_classes=classes)
        return module.to("meta"), (torch.empty(2, 3, size, size),)

    return build


def timm_model(name, size):
    def build():
        import timm

        return timm.create_model(name, pretrained=False), (torch.empty(2, 3, size, size),)

    return build


IMAGES = ["convnext_base", "convnext_tiny", "mobilenet_v2", "regnet_y_400mf", "resnet101", "resnet152", "vgg16"]
TIMM = {name: 224 for name in (
    "convnext_tiny efficientnet_b0 mobilenetv2_100 mobilenetv3_large_100 resnet152 resnet18 resnet50 swin_base_patch4_window7_224 vgg16 vit_base_patch16_224 "
    "beit_base_patch16_224 convnext_base mixer_b16_224 regnety_032 resnet101 resnet34 vgg19 vit_large_patch16_224 vit_small_patch16_224 vit_tiny_patch16_224").split()}
TIMM.update(inception_v3=299, efficientnetv2_s=288)

MODELS = {f"{name}-86": vision(name, 86, 1000) for name in IMAGES}
MODELS.update({f"{name}-86": vision(name, 86, 10) for name in ("mobilenet_v3_large", "mobilenet_v3_small")})
MODELS.update({f"timm-{name}": timm_model(name, size) for name, size in TIMM.items()})
MODELS.update({f"{name}-224": vision(name, 224, 1000) for name in ("resnet50", "vgg16")})


def export(name):
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        module, inputs = MODELS[name]()
        module.train()
        shapes = tuple({0: torch.export.Dim("batch", min=2)} for _ in inputs)
        program = torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
    path = os.path.join(OUT, name + ".pt2")
    with tempfile.TemporaryDirectory() as folder:
        full = os.path.join(folder, name + ".pt2")
        torch.export.save(program, full)
        export_pt2.strip(full, path)
    return path


def main():
    os.makedirs(OUT, exist_ok=True)
    failed = 0
    for name in sys.argv[1:] or MODELS:
        start = time.time()
        try:
            path = export(name)
            print(f"{name}: {os.path.getsize(path)} bytes, {time.time() - start:.1f} s", flush=True)
        except Exception as error:
            failed += 1
            print(f"{name}: not exported: {type(error).__name__}: {str(error).splitlines()[0][:300]}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
