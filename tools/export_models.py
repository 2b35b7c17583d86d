#!/usr/bin/env python3
"""Exports the model zoo (tests/accuracy/models.py) as ONNX files without weights, into data/models/.

    python tools/export_models.py [NAME …] [--out data/models] [--kind dynamo|legacy|optimized]

Every file keeps what the exporter says of a node's PyTorch origin (fx_node, module scopes, stack trace), because that is
what an estimator of the PyTorch model behind the file reads. Weights stay behind: initializers point into a "weights.bin"
that does not exist. Small tensors that the exporter wrote into nodes (shapes, axes, scalars) stay inline.
"""
import argparse
import contextlib
import gzip
import json
import os
import re
import sys
import time
import warnings

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "accuracy"))
import models
import onnx

FX, TRACE = "pkg.torch.onnx.fx_node", "pkg.torch.onnx.stack_trace"
KEEP = {FX, TRACE, "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"}
COMPRESS_ABOVE = 550_000  # bytes: such files are stored as .onnx.gz (tests/accuracy/zoo.py unpacks them)
PLAIN = {"gpt2", "vit_b_16", "bert-base", "llama-tiny"}  # but these are the first that people try
INLINE_BYTES = 1024  # integer constants up to this size are shape arithmetic and stay in the file


@contextlib.contextmanager
def as_eager():
    """transformers builds other programs while it is traced: explicit causal masks where eager code passes is_causal.
    What is measured is the eager program, so the export takes the eager branches. (The eager code also looks whether
    position ids are packed sequences and, finding none, drops the answer: those few small tensors are not in the file.)"""
    try:
        from transformers import masking_utils as m
    except ImportError:
        yield
        return
    saved = m.is_torchdynamo_exporting, m.is_tracing, m.find_packed_sequence_indices
    m.is_torchdynamo_exporting = lambda: False
    m.is_tracing = lambda *a: False
    m.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        m.is_torchdynamo_exporting, m.is_tracing, m.find_packed_sequence_indices = saved


def example(spec):
    dims = {"batch": 2, "seq": 64}
    device = "cpu" if spec.recorded else "meta"
    return tuple(torch.zeros(i.shape(dims), dtype=getattr(torch, i.dtype), device=device) for i in spec.inputs)


def export_dynamo(spec, module, optimize):
    symbols = {"batch": torch.export.Dim("batch", min=2), "seq": torch.export.Dim("seq", min=2)}
    shapes = tuple({k: symbols[s] for k, s in enumerate(i.sizes) if isinstance(s, str)} for i in spec.inputs)
    names = [i.name for i in spec.inputs]
    with as_eager(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(module, example(spec), dynamo=True, optimize=optimize, dynamic_shapes=shapes,
                                    input_names=names, output_names=["output"], verbose=False)
    import onnx_ir

    offset = 0
    for value in program.model.graph.initializers.values():
        tensor = value.const_value
        if small_integers(tensor):
            continue
        value.const_value = onnx_ir.ExternalTensor("weights.bin", offset, tensor.nbytes, tensor.dtype, shape=tensor.shape,
                                                   name=tensor.name)
        offset += tensor.nbytes
    return onnx_ir.to_proto(program.model)


def small_integers(tensor):
    return tensor.dtype.name in ("INT64", "INT32", "BOOL") and tensor.nbytes <= INLINE_BYTES


def export_legacy(spec, module, path):
    """torch.onnx.export(dynamo=False), through the TorchScript tracer: what files from before 2.9 look like."""
    axes = {i.name: {k: s for k, s in enumerate(i.sizes) if isinstance(s, str)} for i in spec.inputs}
    with as_eager(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, example(spec), path, dynamo=False, input_names=[i.name for i in spec.inputs],
                          output_names=["output"], dynamic_axes={**axes, "output": dict(next(iter(axes.values())))},
                          training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
    proto = onnx.load(path)
    offset = 0
    for t in proto.graph.initializer:
        size = len(t.raw_data)
        if t.data_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL) and size <= INLINE_BYTES:
            continue
        t.ClearField("raw_data")
        t.data_location = onnx.TensorProto.EXTERNAL
        for k, v in (("location", "weights.bin"), ("offset", offset), ("length", size)):
            t.external_data.add(key=k, value=str(v))
        offset += size
    return proto


FRAME = re.compile(r'File "([^"]*)"')
ROOT = os.path.realpath(os.path.join(HERE, ".."))


def relative(match):
    """A frame's file as everybody has it: below site-packages, or below this project."""
    path = match.group(1)
    for packages in ("site-packages/", "dist-packages/"):
        if packages in path:
            return f'File "{path[path.rindex(packages):]}"'
    if os.path.isabs(path):
        path = os.path.relpath(os.path.realpath(path), ROOT)
    return f'File "{os.path.basename(path) if path.startswith("..") else path}"'


def tidy(proto, spec, program_text, in_place=()):
    """Drops what no reader of the files needs and makes paths relative. Every node keeps its fx_node; where it stands
    (scopes, classes, source lines) is said once per fx node, on its last ONNX node."""
    graphs = [proto.graph]
    while graphs:
        graph = graphs.pop()
        placed = set()
        for node in reversed(graph.node):
            for a in node.attribute:
                if a.type == onnx.AttributeProto.GRAPH:
                    graphs.append(a.g)
            props = {p.key: p.value for p in node.metadata_props if p.key in KEEP}
            fx = props.get(FX)
            if fx is not None and fx in placed:
                props = {FX: fx}
            placed.add(fx)
            if TRACE in props:
                props[TRACE] = FRAME.sub(relative, props[TRACE])
            del node.metadata_props[:]
            node.doc_string = ""
            for k, v in props.items():
                node.metadata_props.add(key=k, value=v)
    for f in proto.functions:
        f.doc_string = ""
    if in_place:  # no library whose classes memplan could know constructs these
        proto.metadata_props.add(key="memplan.inplace", value=" ".join(in_place))
    for key, value in (("memplan.source", spec.source), ("memplan.loss", spec.loss), ("memplan.export", program_text)):
        proto.metadata_props.add(key=key, value=value)


def build(spec):
    # Weights are not written, so their values need not exist; those of billions of parameters do not fit on the host either.
    if spec.recorded:
        return models.build(spec.name, fill=False).train()
    with torch.device("meta"):
        return models.build(spec.name).train()


def write(proto, path):
    data = proto.SerializeToString()
    name = os.path.basename(path).removesuffix(".onnx")
    if len(data) > COMPRESS_ABOVE and name not in PLAIN:
        if os.path.exists(path):
            os.remove(path)
        with open(path + ".gz", "wb") as f:
            f.write(gzip.compress(data, mtime=0))
    else:
        with open(path, "wb") as f:
            f.write(data)
    return len(data)


def write_index(folder):
    """What the files are, for readers that have no PyTorch."""
    rows = {}
    for s in models.REGISTRY.values():
        rows[s.name] = dict(group=s.group, kind=s.kind, source=s.source, loss=s.loss, batch=s.batch, seq=s.seq,
                            inputs={i.name: [i.dtype, *i.sizes] for i in s.inputs})
    with open(os.path.join(folder, "index.json"), "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items()) + "\n}\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("--out", default=os.path.join(HERE, "..", "data", "models"))
    p.add_argument("--kind", choices=["dynamo", "legacy", "optimized"], default="dynamo")
    a = p.parse_args()
    out = a.out if a.kind == "dynamo" else os.path.join(a.out, a.kind)
    os.makedirs(out, exist_ok=True)
    write_index(a.out)
    for name in a.names or list(models.REGISTRY):
        spec = models.REGISTRY[name]
        path = os.path.join(out, f"{name}.onnx")
        start = time.time()
        module = build(spec)
        if a.kind == "legacy":
            proto = export_legacy(spec, module, path)
            text = f"torch {torch.__version__} torch.onnx.export(dynamo=False)"
        else:
            proto = export_dynamo(spec, module, a.kind == "optimized")
            text = f"torch {torch.__version__} torch.onnx.export(dynamo=True, optimize={a.kind == 'optimized'})"
        own = not spec.source.startswith(("torchvision.", "transformers."))
        frozen = [n for n, w in module.named_parameters() if not w.requires_grad]
        if frozen:  # the graph does not say so either
            proto.metadata_props.add(key="memplan.frozen", value=" ".join(frozen))
        tidy(proto, spec, text, [n for n, m in module.named_modules() if own and getattr(m, "inplace", False) is True])
        size = write(proto, path)
        print(f"{path}: {size} bytes, {len(proto.graph.node)} nodes, {time.time() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
