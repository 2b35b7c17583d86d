"""Finding and calling the program that comes with this module."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from typing import Any, List, Mapping, Optional, Sequence

from ._errors import Error, InputError, UsageError
from ._words import KEYWORDS, in_python

NAME = "memplan.exe" if os.name == "nt" else "memplan"


def program() -> str:
    """The path of the memplan program. The environment variable MEMPLAN_PROGRAM names another one."""
    named = os.environ.get("MEMPLAN_PROGRAM")
    if named:
        return named
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [
        sysconfig.get_path("scripts"),
        # pip install --user
        sysconfig.get_path("scripts", scheme=f"{os.name}_user"),
        # pip install --target, and --prefix with the module found by PYTHONPATH
        os.path.join(here, os.pardir, "bin"),
        os.path.join(here, os.pardir, os.pardir, os.pardir, os.pardir, "bin"),
        os.path.dirname(sys.executable),
    ]
    for folder in folders:
        path = os.path.normpath(os.path.join(folder, NAME))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    found = shutil.which(NAME)
    if found:
        return found
    raise Error("the memplan program is not where pip puts it", hint="install the package again, or set MEMPLAN_PROGRAM to its path")


def call(words: Sequence[str], folder: Optional[str], timeout: Optional[float], said: Optional[List[str]] = None) -> tuple[int, str]:
    """Exit code and standard output; what it says beside goes to `said`. Raises Error when the program dies or `timeout` (seconds) has passed."""
    try:
        done = subprocess.run([program(), *words], cwd=folder, env={"MEMPLAN_PYTHON": sys.executable, **os.environ, **KEYWORDS}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Error(f"memplan gave no answer within {timeout} s") from None
    if said is not None:
        said.append(done.stderr.decode(errors="replace"))
    if done.returncode < 0:
        raise Error(f"memplan was ended by signal {-done.returncode}", hint=done.stderr.decode(errors="replace").strip())
    return done.returncode, done.stdout.decode(errors="replace")


def call_json(words: Sequence[str], folder: Optional[str], timeout: Optional[float], names: Mapping[str, str] = {}, said: Optional[List[str]] = None) -> Any:
    """The report. Raises what its error says, with the `names` of temporary files replaced by what they stand for."""
    # Flags end at "--", behind which a command may stand.
    at = words.index("--") if "--" in words else len(words)
    code, out = call([*words[:at], "--format", "json", *words[at:]], folder, timeout, said)
    try:
        answer = json.loads(out)
    except json.JSONDecodeError:
        last = said[-1].strip().splitlines()[-1:] if said else []
        raise Error(f"memplan ended with exit code {code} and no report", hint=" ".join(last), code=code) from None
    if "error" in answer:
        e = answer["error"]
        kind = {2: UsageError, 3: InputError}.get(e["code"], Error)
        texts = [in_python(e[key]) for key in ("message", "where", "hint")]
        for file, name in names.items():
            texts = [text.replace(file, name) for text in texts]
        raise kind(*texts, e["code"])
    return answer
