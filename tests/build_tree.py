"""What a build folder knows of PyTorch and of sanitizers, and whose turn it is in a commit."""
import os
import re
import subprocess


def cached(build, name):
    """A variable of the build's CMake cache, or None."""
    try:
        with open(os.path.join(build, "CMakeCache.txt")) as f:
            found = re.search(rf"^{name}:\w+=(.+)$", f.read(), re.M)
    except OSError:
        return None
    return found and found[1]


def sanitized(build):
    """Whether its programs have sanitizers, which reserve terabytes of addresses and are slower."""
    return "-fsanitize=" in (cached(build, "CMAKE_CXX_FLAGS") or "")


def emulated(build):
    """(a Python with PyTorch, the emulated GPU's library), or None where the build has none."""
    python, library = cached(build, "MEMPLAN_TORCH_PYTHON"), os.path.join(build, "emulated_gpu", "libemulated_gpu.so")
    return (python, library) if python and os.path.exists(library) else None


def whose_turn(names, parts):
    """One in `parts` of the names, which ones the commit's number says; all where there is no repository."""
    here = os.path.dirname(os.path.abspath(__file__))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True).stdout.strip()
    return list(names)[int(commit, 16) % parts :: parts] if commit else list(names)
