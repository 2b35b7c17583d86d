"""From keywords to the flags of the command line."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, List

# What the module decides itself: the program is asked for JSON, and a Report makes every other form.
RESERVED = {"format", "output", "quiet", "color", "ascii", "width", "exit_zero", "export", "help", "version"}

# The program knows the flags and the keywords that words() makes of them; with this its errors speak of keywords.
KEYWORDS = {"MEMPLAN_KEYWORDS": "1"}


def words(setup: Mapping[str, Any]) -> List[str]:
    """`precision="amp-bf16"` is --precision amp-bf16, `clip=True` is --clip, lists repeat a flag, `dim={"s0": 4}` is
    --dim s0=4. None and False leave a flag out."""
    out: List[str] = []
    for name, value in setup.items():
        if name in RESERVED:
            raise TypeError(f"estimate() takes no keyword '{name}': the Report has to_dict(), to_json() and str()")
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
