# Runs a file in sessions of ONNX Runtime and says what each asked its GPU for. memplan starts it, under the emulated GPU:
#   python -I -c "…" PACKAGES FOLDER < request.json
# FOLDER has model.onnx. Prints a JSON object; {"error": …, "kind": "missing" or "run"} where there is nothing to say.
# A request: {"inputs": {name: [dtype, sizes]}, "provider": {…}, "session": {…}, "run": {…}, "members": {…}, "runs": 3, "arena": bool}
# Without the arena every request of kernels and of the planner reaches the log; with it, what the arena takes from the driver.
import ctypes
import glob
import json
import os
import sys

SAME_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE
DTYPES = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}


def with_fixed_addresses():
    """The order of a session's weights follows from addresses: with fixed ones, two processes have the same order."""
    libc = ctypes.CDLL(None)
    now = libc.personality(0xFFFFFFFF)
    if now >= 0 and not now & SAME_ADDRESSES and libc.personality(now | SAME_ADDRESSES) >= 0:
        os.execv(sys.executable, sys.orig_argv)


class Missing(Exception):
    pass


class Log:
    """The emulated device's log of requests, session by session."""

    def __init__(self, path):
        self.path, self.at = path, 0
        ctypes.CDLL(None).setenv(b"EMULATED_GPU_REQUESTS", path.encode(), 1)  # read at the first request
        open(path, "w").close()
        self.library = ctypes.CDLL("libcuda.so.1")
        if not hasattr(self.library, "emulated_gpu_external_alloc"):
            raise Missing("the emulated GPU is not loaded")

    def take(self):
        with open(self.path) as f:
            f.seek(self.at)
            lines = [line.split() for line in f if not line.startswith("#")]
            self.at = f.tell()
        return [[what != "malloc", int(size), int(address, 16)] for what, size, address in lines]

    def allocator(self):
        address = lambda f: str(ctypes.cast(f, ctypes.c_void_p).value)
        return {"gpu_external_alloc": address(self.library.emulated_gpu_external_alloc),
                "gpu_external_free": address(self.library.emulated_gpu_external_free)}


def load_provider(packages):
    sys.path.insert(0, packages)
    import onnxruntime as ort

    found = glob.glob(os.path.join(packages, "onnxruntime", "capi", "libonnxruntime_providers_cuda.so"))
    if not found:
        raise Missing(f"onnxruntime {ort.__version__} there has no CUDA provider")
    for name in ("libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"):
        try:
            ctypes.CDLL(os.path.join(os.path.dirname(found[0]), name), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise Missing(f"the CUDA provider of onnxruntime {ort.__version__} does not load: {error}")
    return ort


def feed_of(inputs):
    import numpy as np

    return {name: np.zeros(sizes, DTYPES.get(dtype, dtype)) for name, (dtype, sizes) in inputs.items()}


def make_session(ort, folder, request, log):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    for name, value in request["members"].items():
        setattr(options, name, value)
    for name, value in request["session"].items():
        options.add_session_config_entry(name, value)
    provider = request["provider"] if request["arena"] else request["provider"] | log.allocator()
    session = ort.InferenceSession(os.path.join(folder, "model.onnx"), options, providers=[("CUDAExecutionProvider", provider)])
    if session.get_providers()[:1] != ["CUDAExecutionProvider"]:
        raise Missing("the session does not take the CUDA provider")
    return session


def run(packages, folder):
    request = json.load(sys.stdin)
    log = Log(os.path.join(folder, "log"))
    ort = load_provider(packages)
    reply = {"version": ort.__version__, "phases": []}
    feed = feed_of(request["inputs"])
    run_options = ort.RunOptions()
    for name, value in request["run"].items():
        run_options.add_run_config_entry(name, value)
    log.take()
    try:
        session = make_session(ort, folder, request, log)
        reply["phases"].append(log.take())
        for _ in range(request["runs"]):
            session.run(None, feed, run_options)
            reply["phases"].append(log.take())
    except Missing:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        if "Failed to allocate memory" not in text and "out of memory" not in text.lower():
            raise
        reply["phases"].append(log.take())
        reply["out_of_memory"] = text[:400]
    return reply


def main(packages, folder):
    with_fixed_addresses()
    try:
        reply = run(packages, folder)
    except BaseException as error:
        reply = {"error": " ".join(str(error).split())[:400] or type(error).__name__, "kind": "missing" if isinstance(error, Missing) else "run"}
    sys.stdout.flush()
    sys.__stdout__.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
    os._exit(0)  # what is left needs no orderly end


main(*sys.argv[1:])
