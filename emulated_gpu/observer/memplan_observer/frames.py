"""Where in a program something happened, in words: from Python frames, innermost first."""
import linecache
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
_site = os.sep + "site-packages" + os.sep
_torch = os.sep + "torch" + os.sep
_python = os.path.dirname(os.__file__) + os.sep


def _is_torch(file):
    return _torch in file


def _is_library(file):
    return _site in file or file.startswith((_python, "<")) or _torch in file


def _short(file):
    """Below site-packages: the package's own path. Otherwise the path from the working directory, where it lies in it."""
    if _site in file:
        return file.rpartition(_site)[2]
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
        if _is_torch(file):
            # What is of interest is how the program called it, not how it is made.
            last_torch = function if function not in ("_call_impl", "_wrapped_call_impl", "decorate_context", "wrapper", "_use_grad", "profile_hook_step") else last_torch
            continue
        if file.startswith((_python, "<")):
            continue
        if "code" not in found:
            found["code"] = f"{_short(file)}:{line} in {function}"
            found["text"] = linecache.getline(file, line).strip()[:160]
            if last_torch:
                found["op"] = last_torch
        if not _is_library(file):
            found["script"] = f"{_short(file)}:{line}"
            break
    if not found and last_torch:
        found["op"] = last_torch
    return found


def here():
    """The frames of the calling thread, innermost first."""
    frame, found = sys._getframe(1), []
    while frame is not None and len(found) < 64:
        found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found
