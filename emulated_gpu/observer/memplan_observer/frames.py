"""Where in a program something happened, in words: from Python frames, innermost first."""
import linecache
import os
import sys

from .recording import compiled

HERE = os.path.dirname(os.path.abspath(__file__))
_packages = tuple(os.sep + folder + os.sep for folder in ("site-packages", "dist-packages"))
_python = os.path.dirname(os.__file__) + os.sep


def _of_package(file):
    """The path below the packages of a Python, wherever that Python lies; None for files elsewhere. Only this part tells
    whose the file is: an environment may lie in a folder "torch", or below the user's own checkout."""
    at, folder = max((file.rfind(p), p) for p in _packages)
    return file[at + len(folder) :] if at >= 0 else None


def _torch_folder():
    """Where PyTorch itself lies, which may be a checkout of its own."""
    torch = sys.modules.get("torch")
    return os.path.dirname(torch.__file__) + os.sep if getattr(torch, "__file__", None) else None


def is_torch(file, below=""):
    """Whether the file is PyTorch's, in the folder `below` of it."""
    inside = _of_package(file)
    if inside is None:
        root = _torch_folder()
        inside = os.path.join("torch", file[len(root) :]) if root and file.startswith(root) else ""
    return inside.startswith(os.path.join("torch", below, ""))


def _is_library(file):
    return _of_package(file) is not None or file.startswith((_python, "<")) or is_torch(file)


def _is_command(file):
    """Whether it is the program of `python -c`."""
    return file == "<string>" and sys.argv[:1] == ["-c"]


def _short(file):
    """Below site-packages: the package's own path. Otherwise the path from the working directory, where it lies in it."""
    package = _of_package(file)
    if package is not None:
        return package
    near = os.path.relpath(file) if os.path.isabs(file) else file
    return file if near.startswith("..") else near


def describe(frames):
    """frames: [(file, line, function)] innermost first -> {"script", "code", "text", "op"}, each may be missing.

    script: the innermost line of the user's own files; code: the innermost line that is not PyTorch's (a model of a
    library); text: that line as written; op: the function of PyTorch that it called."""
    frames = [f for f in frames if not f[0].startswith(HERE) and f[0] != "??"]
    found = {}
    last_torch = None
    for file, line, function in frames:
        if compiled.is_generated(file):
            # Inductor's code stands for lines of the program, which the next kernel names.
            operators, lines, _ = compiled.of_generated(file, line)
            if lines and "code" not in found:
                found.update({k: v for k, v in describe(lines[:1]).items() if k != "op"})
            if operators and "op" not in found:
                found["op"] = f"compiled: {operators}"
            if "script" in found:
                break
            continue
        if is_torch(file):
            # What is of interest is how the program called it, not how it is made.
            last_torch = function if function not in ("_call_impl", "_wrapped_call_impl", "decorate_context", "wrapper", "_use_grad", "profile_hook_step") else last_torch
            continue
        if (file.startswith("<") and not _is_command(file)) or (file.startswith(_python) and _of_package(file) is None):
            continue
        if "code" not in found:
            found["code"] = f"{_short(file)}:{line} in {function}"
            found["text"] = linecache.getline(file, line).strip()[:160]
            if last_torch:
                found.setdefault("op", last_torch)
        if not _is_library(file) or _is_command(file):
            found["script"] = f"{_short(file)}:{line}"
            break
    if last_torch and not found:
        found["op"] = last_torch
    return found


def here():
    """The frames of the calling thread, innermost first."""
    frame, found = sys._getframe(1), []
    while frame is not None and len(found) < 64:
        found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found
