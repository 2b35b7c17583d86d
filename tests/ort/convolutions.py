"""The convolutions of the models in data/models/ort, for tools/cudnn_workspaces: python convolutions.py > problems.txt
(a Python with onnx)

A line: C H W K R S pad_h pad_w stride_h stride_w dilation_h dilation_w groups."""
import glob
import gzip
import os

import onnx
from onnx import shape_inference

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def problems(path):
    model = onnx.ModelProto()
    with gzip.open(path) as f:
        model.ParseFromString(f.read())
    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*graph.value_info, *graph.input, *graph.output)}
    shapes.update({t.name: list(t.dims) for t in graph.initializer})
    for node in graph.node:
        if node.op_type not in ("Conv", "FusedConv"):
            continue
        x, w = shapes.get(node.input[0]), shapes[node.input[1]]
        if not x or len(x) not in (3, 4) or not x[2]:
            continue
        a = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        n = len(x) - 2  # [N, C, D] runs as [N, C, D, 1]
        image = lambda sizes, one: [*sizes[:n], one][:2]
        yield (x[1], *image(x[2:], 1), w[0], *image(w[2:], 1), *image(a.get("pads", [0] * n), 0), *image(a.get("strides", [1] * n), 1),
               *image(a.get("dilations", [1] * n), 1), a.get("group", 1))


if __name__ == "__main__":
    for p in sorted({p for path in glob.glob(os.path.join(ROOT, "data", "models", "ort", "*.onnx.gz")) for p in problems(path)}):
        print(*p)
