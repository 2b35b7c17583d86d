"""Sessions of onnxruntime-gpu that place nodes by memplan's file, under several limits:

    LD_PRELOAD=…/libemulated_gpu.so EMULATED_GPU=h100 python place.py --memplan build/release/memplan MODEL.onnx --dims batch=8 --limits 120,200,328

(a Python with onnxruntime-gpu and onnx; LD_LIBRARY_PATH leads to the CUDA and cuDNN of PyTorch's wheels; tests/ort/models.py makes files, and a file without
its weights gets zeros.) A limit is in MiB, and the arena's own limit as well. Printed are how many nodes run on the GPU and what the arena took at most. The
exit status is 1 where a session does not start, runs out of memory, or takes more than its limit. docs/onnxruntime.md has the figures.
"""
import argparse
import gzip
import os
import subprocess
import sys
import tempfile

MIB = 1 << 20


def with_zeros(path, folder):
    """The file, with its absent weights as zeros that take no disk."""
    import onnx

    model = onnx.ModelProto()
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
        model.ParseFromString(f.read())
    most = 0
    for t in model.graph.initializer:
        if t.data_location != onnx.TensorProto.EXTERNAL:
            continue
        size = onnx.helper.tensor_dtype_to_np_dtype(t.data_type).itemsize
        for d in t.dims:
            size *= d
        del t.external_data[:]
        for key, value in (("location", "weights"), ("offset", "0"), ("length", str(size))):
            t.external_data.add(key=key, value=value)
        most = max(most, size)
    out = os.path.join(folder, "model.onnx")
    with open(out, "wb") as f:
        f.write(model.SerializeToString())
    with open(os.path.join(folder, "weights"), "wb") as f:
        f.truncate(most)
    return out


def feed_of(path, dims):
    import numpy as np
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    stored = {t.name for t in graph.initializer}
    feed = {}
    for i in graph.input:
        t = i.type.tensor_type
        if i.name not in stored:
            feed[i.name] = np.zeros([d.dim_value or dims[d.dim_param] for d in t.shape.dim], onnx.helper.tensor_dtype_to_np_dtype(t.elem_type))
    return feed


def held(path):
    """The most bytes that were held of the driver, by the emulated device's log."""
    of, now, most = {}, 0, 0
    with open(path) as f:
        for what, size, address in (line.split() for line in f):
            if what == "malloc":
                of[address] = int(size)
                now += int(size)
                most = max(most, now)
            else:
                now -= of.pop(address, 0)
    return most


def one_session(path, limit, dims):
    """In a process of its own: nodes on the GPU and nodes in all."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.resource_cuda_partitioning_settings", f"{limit // 1024},stats.csv")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    provider = {"arena_extend_strategy": "kSameAsRequested", "gpu_mem_limit": str(limit)}
    session = ort.InferenceSession(path, options, providers=[("CUDAExecutionProvider", provider), "CPUExecutionProvider"])
    for _ in range(3):
        session.run(None, feed_of(path, dims))
    providers = [part.ep_name for part in session.get_provider_graph_assignment_info() for _ in part.get_nodes()]
    print(sum(p == "CUDAExecutionProvider" for p in providers), len(providers), flush=True)
    os._exit(0)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--memplan")
    p.add_argument("--dims", default="", help="batch=8,seq=128")
    p.add_argument("--limits", required=True, help="MiB, joined by commas")
    p.add_argument("--inside", action="store_true", help="one session, in this process")
    o = p.parse_args()
    dims = {n: int(size) for n, size in (d.split("=") for d in o.dims.split(",") if d)}
    if o.inside:
        one_session(o.model, int(o.limits), dims)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = with_zeros(o.model, folder)
        words = [w for n, size in dims.items() for w in ("--dim", f"{n}={size}")]
        alone = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        subprocess.run([o.memplan, path, "--runtime", "ort", "--onnxruntime", sys.executable, *words, "--no-search", "-q", "--export",
                        f"ort-node-stats={folder}/stats.csv"], check=True, env=alone)
        for limit in (int(float(mib) * MIB) for mib in o.limits.split(",")):
            log = os.path.join(folder, "log")
            run = subprocess.run([sys.executable, os.path.abspath(__file__), path, "--inside", "--dims", o.dims, "--limits", str(limit)],
                                 env=dict(os.environ, EMULATED_GPU_REQUESTS=log), capture_output=True, text=True)
            said = run.stdout.split()
            fine = run.returncode == 0 and len(said) == 2 and held(log) <= limit
            failed += not fine
            print(f"{limit / MIB:8.1f} MiB: " + (f"{said[0]} of {said[1]} nodes on the GPU, at most {held(log) / MIB:.1f} MiB" if len(said) == 2 else run.stderr[-300:]),
                  "" if fine else "FAILED", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
