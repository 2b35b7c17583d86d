"""What ONNX Runtime asks for on the emulated GPU, model by model:

    LD_PRELOAD=…/libemulated_gpu.so EMULATED_GPU=h100 python record.py MODEL.onnx --models OUT_FOLDER >> rows.jsonl

(a Python with onnxruntime-gpu; LD_LIBRARY_PATH leads to the CUDA and cuDNN of PyTorch's wheels, and up to 1.26 to nvidia-cublas-cu12, -cuda-runtime-,
-cuda-nvrtc-, -cudnn-, -cufft- and -curand-cu12; tests/ort/models.py makes the files, and keep.py keeps the rows of older versions.)

A row is one session of three runs. With `requests`, every request reaches the log through the provider's own options
gpu_external_alloc and gpu_external_free, which leave out the arena: "+BYTES" takes, "-N" gives the N-th one of the row
back (from 0). With `arena`, ONNX Runtime's arena runs, and the log has what it takes from the driver: bytes held after
the session was made and after each run, and the most so far.
Each model is run from the exported file (`plain`) and from the file that the first session saved optimized (`saved`).
Both are kept in OUT_FOLDER without their weights.
"""
import argparse
import ctypes
import gzip
import json
import os
import sys
import tempfile

SMALL = 1024  # bytes of a tensor whose contents are kept: sizes and axes, which shapes depend on


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--models", help="folder for the files without weights")
    p.add_argument("--batches", default="1,8")
    p.add_argument("--seq", type=int)
    p.add_argument("--past", type=int, help="positions in the cache that a decoder is given")
    p.add_argument("--sources", default="plain,saved")
    return p.parse_args()


class Log:
    """The emulated device's log of requests, phase by phase."""

    def __init__(self):
        self.path = os.environ["EMULATED_GPU_REQUESTS"]
        self.library = ctypes.CDLL("libcuda.so.1")
        self.at = 0

    def mark(self, text):
        self.library.emulated_gpu_mark(f"# {text}".encode())

    def take(self):
        """Lines since the last call, as (what, bytes, address)."""
        with open(self.path) as f:
            f.seek(self.at)
            lines = [line.split() for line in f if not line.startswith("#")]
            self.at = f.tell()
        return [(what, int(size), address) for what, size, address in lines]

    def allocator(self):
        address = lambda f: str(ctypes.cast(f, ctypes.c_void_p).value)
        return {"gpu_external_alloc": address(self.library.emulated_gpu_external_alloc),
                "gpu_external_free": address(self.library.emulated_gpu_external_free)}


class Requests:
    """Numbers requests across the phases of one session."""

    def __init__(self):
        self.count, self.of = 0, {}

    def text(self, lines):
        out = []
        for what, size, address in lines:
            if what == "malloc":
                self.of[address] = self.count
                self.count += 1
                out.append(f"+{size}")
            elif address in self.of:
                out.append(f"-{self.of.pop(address)}")
        return " ".join(out)


class Held:
    """Bytes held from the driver, as they were asked for."""

    def __init__(self):
        self.of, self.now, self.most = {}, 0, 0

    def __call__(self, lines):
        for what, size, address in lines:
            if what == "malloc":
                self.of[address] = size
                self.now += size
                self.most = max(self.most, self.now)
            else:
                self.now -= self.of.pop(address, 0)
        return [self.now, self.most]


def run(path, feed, log, provider, pattern=True, shrink=False, save=None, see=None):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.enable_mem_pattern = pattern
    if save:
        options.optimized_model_filepath = save
    out = {}
    log.take()
    session = ort.InferenceSession(path, options, providers=[("CUDAExecutionProvider", provider)])
    out["session"] = see(log.take())
    run_options = ort.RunOptions()
    if shrink:
        run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "gpu:0")
    for i in (1, 2, 3):
        result = session.run(None, feed, run_options)
        out[f"run {i}"] = see(log.take())
    del session, result
    log.take()
    return out


def without_weights(path, to):
    import onnx

    model = onnx.load(path)
    for t in model.graph.initializer:
        if t.ByteSize() > SMALL + 64 and (t.raw_data or len(t.float_data)):
            kept = onnx.TensorProto(name=t.name, data_type=t.data_type, dims=t.dims, data_location=onnx.TensorProto.EXTERNAL)
            kept.external_data.add(key="location", value="weights")
            t.CopyFrom(kept)
    del model.metadata_props[:]
    for part in (model.graph, *model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer):
        del part.metadata_props[:]
        if hasattr(part, "doc_string"):
            part.doc_string = ""
    with gzip.GzipFile(to, "wb", mtime=0) as f:
        f.write(model.SerializeToString(deterministic=True))


def feed_of(path, batch, seq, past):
    import numpy as np
    import onnx

    kinds = {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.FLOAT16: np.float16, onnx.TensorProto.INT64: np.int64}
    feed = {}
    model = onnx.load(path, load_external_data=False)
    stored = {t.name for t in model.graph.initializer}
    for i in model.graph.input:
        if i.name in stored:
            continue
        t = i.type.tensor_type
        shape = [d.dim_value or {"batch": batch, "seq": seq, "past": past}[d.dim_param] for d in t.shape.dim]
        feed[i.name] = np.zeros(shape, kinds[t.elem_type])
    return feed


def sessions(path, source, name, batch, o, log, saved):
    feed = feed_of(path, batch, o.seq, o.past)
    row = {"model": name, "source": source, "batch": batch, "seq": o.seq} | ({"past": o.past} if o.past else {})
    first = run(path, feed, log, log.allocator(), save=saved, see=Requests().text)
    yield {**row, "kind": "requests", "setting": "default", **first}
    yield {**row, "kind": "requests", "setting": "no pattern", **run(path, feed, log, log.allocator(), pattern=False, see=Requests().text)}
    conv = {**log.allocator(), "cudnn_conv_algo_search": "DEFAULT"}
    yield {**row, "kind": "requests", "setting": "conv default", **run(path, feed, log, conv, see=Requests().text)}
    same = {"arena_extend_strategy": "kSameAsRequested"}
    yield {**row, "kind": "arena", "setting": "same", **run(path, feed, log, same, see=Held())}
    yield {**row, "kind": "arena", "setting": "same, no pattern", **run(path, feed, log, same, pattern=False, see=Held())}
    yield {**row, "kind": "arena", "setting": "same, shrink", **run(path, feed, log, same, shrink=True, see=Held())}
    yield {**row, "kind": "arena", "setting": "default", **run(path, feed, log, {}, see=Held())}


def main():
    o = parse()
    name = os.path.basename(o.model).removesuffix(".onnx")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EMULATED_GPU_REQUESTS"] = os.path.join(folder, "log")  # read at the first request
        libc = ctypes.CDLL(None)
        libc.setenv(b"EMULATED_GPU_REQUESTS", os.environ["EMULATED_GPU_REQUESTS"].encode(), 1)
        open(os.environ["EMULATED_GPU_REQUESTS"], "w").close()
        log = Log()
        saved = os.path.join(folder, "saved.onnx")
        for source in o.sources.split(","):
            path = o.model if source == "plain" else saved
            for batch in map(int, o.batches.split(",")):
                for row in sessions(path, source, name, batch, o, log, saved if source == "plain" else None):
                    print(json.dumps(row), flush=True)
            if o.models:
                without_weights(path, os.path.join(o.models, f"{name}.{source}.onnx.gz"))


if __name__ == "__main__":
    sys.exit(main())
