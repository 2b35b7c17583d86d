"""The few questions to NVML that a measurement has; ctypes, because pynvml need not be installed."""
import ctypes
import os


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


class Nvml:
    """Raises OSError where there is no NVML."""

    def __init__(self, index=0):
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._call("nvmlInit_v2")
        self._handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(self._handle))

    @classmethod
    def every(cls):
        """All cards of the machine, whatever CUDA_VISIBLE_DEVICES says; none where there is no NVML."""
        try:
            first = cls()
            count = ctypes.c_uint()
            first._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
            return [first, *(cls(i) for i in range(1, count.value))]
        except OSError:
            return []

    def uuid(self):
        return self._text("nvmlDeviceGetUUID", self._handle)

    def _call(self, name, *arguments):
        status = getattr(self._library, name)(*arguments)
        if status:
            raise OSError(f"{name}: {status}")

    def _text(self, name, *before):
        out = ctypes.create_string_buffer(96)
        self._call(name, *before, out, ctypes.c_uint(96))
        return out.value.decode()

    def driver(self):
        return self._text("nvmlSystemGetDriverVersion")

    def name(self):
        return self._text("nvmlDeviceGetName", self._handle)

    def total(self):
        return self._memory().total

    def _memory(self):
        m = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._handle, ctypes.byref(m))
        return m

    def used(self):
        """Bytes in use on the whole device."""
        return self._memory().used

    def used_by_this_process(self):
        """Bytes, or None where the driver does not tell (other pid namespaces, some drivers)."""
        for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"):
            count = ctypes.c_uint(64)
            rows = (_Process * 64)()
            try:
                self._call(name, self._handle, ctypes.byref(count), rows)
            except (OSError, AttributeError):
                continue
            for row in rows[: count.value]:
                if row.pid == os.getpid() and row.used != 2**64 - 1:
                    return row.used
            return None
        return None
