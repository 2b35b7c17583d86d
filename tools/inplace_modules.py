#!/usr/bin/env python3
"""Writes data/aten/inplace_modules.json: which activation modules the models of torchvision, timm, segmentation_models_pytorch, MONAI and
nnU-Net construct with inplace=True.

    python tools/inplace_modules.py [--out data/aten/inplace_modules.json] [--of-each 6]

An ONNX graph cannot say so: export makes every op functional. A rule is [root class, owner class, name in the owner,
module class]; the owner is the nearest enclosing module that is not a plain container. "rules" are those of in-place
modules, "either" those that some models construct so and others not. Every model of timm is made, or of each file as many as --of-each says,
the smallest names first.
"""
import argparse
import importlib.metadata
import json
import os

import timm
import torch
import torchvision

CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)


def full_name(module):
    c = type(module)
    return f"{c.__module__}.{c.__qualname__}"


def walk(root, owner, module, path, found):
    for name, child in module.named_children():
        here = path + [name]
        if isinstance(getattr(child, "inplace", None), bool):
            last = ".".join("*" if p.isdigit() else p for p in here)
            found.setdefault((full_name(root), full_name(owner), last, full_name(child)), set()).add(child.inplace)
        if type(child) in CONTAINERS:
            walk(root, owner, child, here, found)
        else:
            walk(root, child, child, [], found)


def timm_models(of_each):
    by_file = {}
    for name in timm.list_models():
        by_file.setdefault(timm.model_entrypoint(name).__module__, []).append(name)
    for names in by_file.values():
        for name in sorted(names, key=lambda n: (len(n), n))[:of_each]:
            try:
                with torch.device("meta"):
                    yield timm.create_model(name)
            except Exception as error:  # a constructor that reads values
                print("left out:", name, type(error).__name__)


def segmentation_models():
    """Each architecture with an encoder of each file."""
    import segmentation_models_pytorch as smp

    encoders = ("resnet18", "mobilenet_v2", "densenet121", "efficientnet-b0", "vgg11_bn", "mit_b0", "dpn68", "xception", "inceptionv4", "senet154", "se_resnet50", "resnext50_32x4d")
    for architecture in ("Unet", "UnetPlusPlus", "MAnet", "Linknet", "FPN", "PSPNet", "DeepLabV3", "DeepLabV3Plus", "PAN", "UPerNet", "Segformer"):
        for encoder in encoders:
            try:
                yield getattr(smp, architecture)(encoder, encoder_weights=None)
            except (ValueError, KeyError, TypeError):  # not every decoder takes every encoder
                continue
    yield smp.Unet("resnet18", encoder_weights=None, decoder_attention_type="scse")


def monai_models():
    import monai.networks.nets as nets

    yield nets.UNet(2, 1, 2, (8, 16, 32), (2, 2))
    yield nets.UNet(3, 1, 2, (8, 16, 32), (2, 2), num_res_units=2)
    yield nets.UNet(2, 1, 2, (8, 16, 32), (2, 2), act="RELU")
    for res_block in (False, True):
        yield nets.DynUNet(2, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], res_block=res_block)
    for make in (nets.BasicUNet, nets.BasicUNetPlusPlus, nets.SegResNet, nets.SegResNetDS, nets.VNet, nets.HighResNet):
        yield make(2)
    yield nets.SegResNetVAE((64, 64, 64))
    yield nets.AttentionUnet(2, 1, 2, (8, 16, 32), (2, 2))
    yield nets.resnet18(spatial_dims=2)
    yield nets.resnet50()
    yield nets.DenseNet121(2, 1, 2)
    yield nets.SEResNet50(spatial_dims=2, in_channels=1, num_classes=2)
    yield nets.UNETR(1, 2, (64, 64), spatial_dims=2)
    yield nets.SwinUNETR(1, 2, spatial_dims=2)
    yield nets.RegUNet(2, 1, 8, 2)


def nnunet_models():
    """As nnU-Net's plans have them: nonlin_kwargs={"inplace": True}."""
    from dynamic_network_architectures.architectures.unet import PlainConvUNet, ResidualEncoderUNet

    kwargs = dict(norm_op=torch.nn.InstanceNorm2d, norm_op_kwargs=dict(affine=True), nonlin=torch.nn.LeakyReLU, nonlin_kwargs=dict(inplace=True))
    yield PlainConvUNet(1, 2, (8, 16), torch.nn.Conv2d, 3, (1, 2), (2, 2), 2, (2,), **kwargs)
    yield ResidualEncoderUNet(1, 2, (8, 16), torch.nn.Conv2d, 3, (1, 2), (2, 2), 2, (2,), **kwargs)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "..", "data", "aten", "inplace_modules.json"))
    p.add_argument("--of-each", type=int)
    args = p.parse_args()
    out = args.out
    found = {}
    for name in torchvision.models.list_models():
        keywords = {"weights": None}
        if name.startswith(("deeplab", "fcn", "lraspp", "fasterrcnn", "maskrcnn", "keypointrcnn", "retinanet", "ssd")) or name.startswith("fcos"):
            keywords["weights_backbone"] = None
        if name.startswith("quantized"):
            continue
        if name.endswith("128gf"):
            continue  # the classes of its smaller siblings
        try:
            # RegNet computes its widths with tensors, which hold no values on meta.
            with torch.device("cpu" if name.startswith("regnet") else "meta"):
                model = torchvision.models.get_model(name, **keywords)
        except (RuntimeError, NotImplementedError, ValueError):
            continue
        walk(model, model, model, [], found)
    for model in timm_models(args.of_each):
        walk(model, model, model, [], found)
    for models in (segmentation_models(), monai_models(), nnunet_models()):
        for model in models:
            walk(model, model, model, [], found)
    rules = sorted(list(k) for k, v in found.items() if v == {True})
    # One rule for all roots where no root disagrees.
    by_rest = {}
    for key, value in found.items():
        by_rest.setdefault(key[1:], set()).update(value)
    merged = sorted({tuple(["*", *r[1:]]) if by_rest[tuple(r[1:])] == {True} and not r[1] == r[0] else tuple(r) for r in rules})
    either = sorted({("*", *k[1:]) for k in found if len(by_rest[k[1:]]) > 1 and list(k) not in rules})
    version = lambda m: m.__version__.split("+")[0]
    with open(out, "w") as f:
        libraries = [f"{name} {importlib.metadata.version(name)}" for name in ("segmentation_models_pytorch", "monai", "dynamic_network_architectures")]
        f.write('{\n "source": "%s, tools/inplace_modules.py"' % ", ".join([f"torchvision {version(torchvision)}", f"timm {version(timm)}", *libraries]))
        for name, rows in (("rules", merged), ("either", either)):
            f.write(',\n "%s": [\n' % name + ",\n".join("  " + json.dumps(r) for r in rows) + "\n ]")
        f.write("\n}\n")
    print(len(merged), "rules,", len(either), "either way")


if __name__ == "__main__":
    main()
