"""Waits for the modules that are of interest and looks at them right after their import."""
import importlib.abc
import importlib.machinery
import json
import os
import re
import sys
import threading


def refuse(what, hint):
    """Ends the process: figures of a wrong set-up would be taken for right ones. memplan prints what is wrong."""
    write_json("refused", dict(what=what, hint=hint))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(3)


def write_json(kind, value):
    """One file per process, which appears only when it is complete."""
    path = os.path.join(os.environ["MEMPLAN_OBSERVE_TO"], f"{kind}-{os.getpid()}.json")
    part = f"{path}.{threading.get_ident()}.part"
    try:
        with open(part, "w") as f:
            json.dump(value, f)
        os.replace(part, path)
    except FileNotFoundError:
        pass  # memplan has ended, and its folder is gone


def _version_of(spec):
    """torch.__version__ without importing it."""
    try:
        with open(os.path.join(os.path.dirname(spec.origin), "version.py")) as f:
            text = f.read()
    except OSError:
        return None
    found = re.search(r"""__version__\s*=\s*['"]([^'"]+)['"]""", text)
    return found[1] if found else None


def _minor(version):
    """2.11 of 2.11.0+cu130"""
    return ".".join(version.partition("+")[0].split(".")[:2])


def before_torch(spec):
    import ctypes

    try:
        built_for = ctypes.CDLL(None).emulated_gpu_built_for
    except AttributeError:
        refuse("the emulated GPU is not loaded into the script's Python", "LD_PRELOAD must reach it: no setuid program may stand in between")
    built_for.restype = ctypes.c_char_p
    known, found = built_for().decode().split(), _version_of(spec)
    if not found:
        return
    if "+cpu" in found:
        refuse(f"PyTorch {found} of this Python is a build without CUDA", "install the CUDA build from PyPI: pip install torch")
    if _minor(found) not in known:
        refuse(f"the emulated GPU knows PyTorch {known[0]} to {known[-1]}, and the script's Python ({sys.executable}) has {found}",
               "build one that knows it, in memplan's sources: cmake --preset release -DMEMPLAN_TORCH_PYTHON=" + sys.executable
               + " && cmake --build build/release --target emulated_gpu")


def after_torch(module):
    from . import record

    record.after_torch(module)


def after_c10d(module):
    from . import groups

    groups.after_c10d(module)


def after_distributed(module):
    from . import groups

    groups.after_distributed(module)


def _compiled(name):
    def after(module):
        from .recording import compiled

        compiled.AFTER[name](module)

    return after


BEFORE = {"torch": before_torch}
AFTER = {"torch": after_torch, "torch.distributed.distributed_c10d": after_c10d, "torch.distributed": after_distributed,
         **{name: _compiled(name) for name in ("torch._dynamo.convert_frame", "torch._inductor.utils", "torch._inductor.async_compile",
                                               "torch._inductor.autotune_process", "torch._inductor.fx_passes.pad_mm",
                                               "triton.backends.nvidia.driver", "triton.runtime.jit")}}


class _Loader(importlib.abc.Loader):
    def __init__(self, name, loader):
        self._name, self._loader = name, loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        AFTER[self._name](module)

    def __getattr__(self, name):  # get_source, get_code, … of the loader that it stands for
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in AFTER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            if name == "torch":
                write_json("missing", dict(executable=sys.executable))
            return None
        if name in BEFORE:
            BEFORE[name](spec)
        spec.loader = _Loader(name, spec.loader)
        return spec


def install():
    sys.meta_path.insert(0, _Finder())
