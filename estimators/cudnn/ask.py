# Asks cuDNN about convolutions, line by line, under the emulated GPU. memplan starts it:
#   LD_PRELOAD=libemulated_gpu.so EMULATED_GPU=CARD python -I -c "…" LIBCUDNN
# It says cuDNN's version, "9.19.0", or "no: REASON". A line of numbers as cudnn_convolutions.cpp takes them is answered
# with bytes; -1: no engine.
import ctypes
import glob
import os
import sys


def hold_open(library):
    """cuDNN opens and closes these for every answer, which takes 30 times as long."""
    packages = os.path.join(os.path.dirname(library), os.pardir, os.pardir)
    for name in ("libnvrtc.so.1?", "libcublasLt.so.1?"):
        for path in glob.glob(os.path.join(packages, "*", "lib", name))[:1]:
            try:
                ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
            except OSError:
                pass


def main(library):
    try:
        hold_open(library)
        cudnn = ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
        cudnn.cudnnGetVersion.restype = ctypes.c_size_t
        workspace = ctypes.CDLL(None).emulated_gpu_convolution_workspace
    except (OSError, AttributeError) as error:
        print("no: " + " ".join(str(error).split()), flush=True)
        return
    workspace.restype = ctypes.c_int64
    version = cudnn.cudnnGetVersion()
    print(f"{version // 10000}.{version % 10000 // 100}.{version % 100}", flush=True)
    for line in sys.stdin:
        numbers = [int(word) for word in line.split()]
        given = (ctypes.c_int64 * len(numbers))(*numbers)
        print(workspace(given, ctypes.c_int64(len(numbers))), flush=True)


main(sys.argv[1])
