"""From keywords to the flags of the command line, and back."""
from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Dict, List

# What the module decides itself: the program is asked for JSON, and a Report makes every other form.
RESERVED = {"format", "output", "quiet", "color", "ascii", "width", "exit_zero", "export", "help", "version"}

# The program knows the flags and the keywords that words() makes of them; with this its errors speak of keywords.
KEYWORDS = {"MEMPLAN_KEYWORDS": "1"}

# Their lists are one value, not several points of a sweep.
REPEATED = {"dim", "alloc_conf", "freeze", "blocks", "lora", "qlora", "checkpoint_save", "input", "kv_cache", "offload", "env"}


def words(setup: Mapping[str, Any], command: str = "estimate") -> List[str]:
    """`precision="amp-bf16"` is --precision amp-bf16, `clip=True` is --clip, lists repeat a flag, `dim={"s0": 4}` is
    --dim s0=4. None and False leave a flag out."""
    out: List[str] = []
    for name, value in setup.items():
        if name in RESERVED:
            raise TypeError(f"{command}() takes no keyword '{name}': its result has to_dict(), to_json() and str()")
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            out.append(flag)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                out.append(f"{flag}={key}={item}")
        elif isinstance(value, (str, os.PathLike)) or not isinstance(value, Sequence):
            out.append(f"{flag}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
        else:
            out += [f"{flag}={item}" for item in value]
    return out


def list_words(setup: Mapping[str, Any], command: str) -> List[str]:
    """words() of a sweep: lists are the values of an axis."""
    joined = {name: ",".join(map(str, value)) if isinstance(value, (list, tuple, range)) and name not in REPEATED else value for name, value in setup.items()}
    return words(joined, command)


def keywords(flags: str) -> Dict[str, Any]:
    """The way back: "--amp bf16 --checkpoint blocks --clip" as keywords of estimate()."""
    given = shlex.split(flags)
    out: Dict[str, Any] = {}
    at = 0
    while at < len(given):
        name, equals, value = given[at].partition("=")
        at += 1
        key = name.lstrip("-").replace("-", "_")
        parsed: Any = True
        if not equals and at < len(given) and not given[at].startswith("--"):
            value, equals = given[at], "="
            at += 1
        if equals:
            parsed = int(value) if value.isdigit() else value
        if key == "dim" and isinstance(parsed, str):
            symbol, _, number = parsed.partition("=")
            out.setdefault(key, {})[symbol] = int(number)
        elif key == "env" and isinstance(parsed, str):
            variable, _, setting = parsed.partition("=")
            out.setdefault(key, {})[variable] = setting
        elif key in ("checkpoint", "freeze", "offload") and key in out:
            out[key] = [*(out[key] if isinstance(out[key], list) else [out[key]]), parsed]
        else:
            out[key] = parsed
    return out


def in_python(text: str) -> str:
    """A message with keywords for flags: "did you mean --batch?" asks for batch=, and an example command is its keywords."""
    head, colon, command = text.partition(": memplan ")
    head = re.sub(r"'--([a-z][a-z0-9-]*)(?:=[^']*)?' is not a flag of memplan \w+", lambda m: f"there is no keyword '{_keyword(m[1])}'", head)
    head = re.sub(r"--([a-z][a-z0-9-]*)(=[^\s,;)]+)?", lambda m: f"{_keyword(m[1])}{m[2] or '='}", head)
    if not colon:
        return head
    example = command.partition(" --")
    try:
        said = ", ".join(f"{name}={value!r}" for name, value in keywords("--" + example[2]).items()) if example[1] else ""
    except ValueError:  # not a command alone
        said = ""
    return f"{head}: {said or 'memplan ' + command}"


def _keyword(flag: str) -> str:
    return flag.replace("-", "_")
