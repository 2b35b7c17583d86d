"""Exports that the program made before, below ~/.cache/memplan. Kept by what they are made of: a configuration or a name, the flags, the versions."""
from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from importlib import metadata
from typing import Any, List, Optional

from ._sources import Choice, configuration_of

KEPT = 64  # files; the ones that were not used for longest go


def _folder() -> str:
    home = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(home if os.path.isabs(home) else os.path.expanduser("~/.cache"), "memplan", "exports")


def _versions() -> List[Any]:
    found: List[Any] = []
    for package in ("torch", "transformers", "timm", "torchvision"):
        try:
            found.append([package, metadata.version(package)])
        except metadata.PackageNotFoundError:
            pass
    program = os.environ.get("MEMPLAN_PROGRAM", "")
    if os.path.exists(program):  # it brings this package
        state = os.stat(program)
        found.append([state.st_size, state.st_mtime_ns])
    return found


def place(source: str, choice: Choice, more: List[Any]) -> Optional[str]:
    """The file of this export; None where something decides about it that is not seen from here: code of the user's, or of the model's."""
    if choice.trust:
        return None
    kind, colon, _ = source.partition(":")
    if kind in ("timm", "torchvision") and colon:
        content = source
    elif ".py:" in source:
        return None
    else:
        try:
            with open(configuration_of(source) or "", encoding="utf-8") as f:
                content = f.read()
        except (OSError, UnicodeDecodeError):
            return None
    chosen = {**dataclasses.asdict(choice), "download": False}
    key = hashlib.sha256(json.dumps([content, chosen, more, _versions()], sort_keys=True).encode()).hexdigest()
    return os.path.join(_folder(), key[:32] + ".pt2")


def used(path: str) -> bool:
    """Whether it is there; then it counts as used now."""
    try:
        os.utime(path)
        return True
    except OSError:
        return False


def keep(file: str, path: str) -> None:
    """A copy of the file, which appears when it is complete. Without a place for it nothing is kept."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(file, "rb") as f, tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as to:
            to.write(f.read())
        os.replace(to.name, path)
        files = sorted((os.path.join(folder, n) for n in os.listdir(folder)), key=os.path.getmtime, reverse=True)
        for old in files[KEPT:]:
            os.unlink(old)
    except OSError:
        pass
