"""Where a script takes values off the device: they are zeros here, so a decision that rests on one may go another way."""
import ctypes
import os

_sites = {}
_callback = None
MOST = 200


def install():
    global _callback
    library = ctypes.CDLL(None)
    if _callback or not hasattr(library, "emulated_gpu_on_read"):
        return
    from . import frames

    def read(size):
        try:
            where = frames.describe(frames.here())
            key = (where.get("script"), where.get("code"), where.get("op"))
            row = _sites.get(key)
            if row is None:
                if len(_sites) >= MOST:
                    return
                row = _sites[key] = dict(count=0, bytes=0, **where)
            row["count"] += 1
            row["bytes"] += size
        except Exception:
            pass  # an exception must not cross C code

    _callback = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(read)
    library.emulated_gpu_on_read(_callback)
    pid = os.getpid()
    import atexit

    atexit.register(lambda: pid == os.getpid() and library.emulated_gpu_on_read(None))


def table():
    return sorted(_sites.values(), key=lambda r: -r["count"])
