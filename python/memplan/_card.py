"""The card that notebooks show for a Report: a verdict, a bar and the largest parts."""
from __future__ import annotations

import os
from html import escape
from typing import Any, Dict, List

GIB = 2.0**30
COLORS = {"fits": "#1a7f37", "tight": "#9a6700", "no-fit": "#cf222e", "unknown": "#6e7781"}
WORDS = {"no-fit": "DOES NOT FIT"}  # those of the text report
# The colours of the HTML report (cli/report/html/style.css).
PART_COLORS = {"context": "#8d99a6", "parameters": "#2f6fb5", "buffers": "#7fb0dd", "optimizer state": "#6f55b5", "gradients": "#159a8c", "batch": "#4fb6d3",
               "activations": "#eda63a", "outputs": "#c97bb8", "temporaries": "#d8505e", "workspaces": "#93735a", "rounding": "#59636e", "cached": "#cdd4db"}
OTHER_COLOR = "#8d99a6"
ROWS = 6  # further parts are added up in one


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB" if size >= GIB / 100 else f"{size / 2**20:.2f} MiB"


def _parts(data: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The largest parts, and the rest as one."""
    parts = sorted((p for p in data["breakdown"] if p["bytes"] > 0), key=lambda p: -int(p["bytes"]))
    if len(parts) <= ROWS:
        return parts
    return [*parts[:ROWS - 1], {"category": "other parts", "bytes": sum(int(p["bytes"]) for p in parts[ROWS - 1:])}]


def card(data: Dict[str, Any]) -> str:
    """HTML without scripts, classes or references. Every text of the report is escaped: names come from files."""
    summary, setup, device = data["summary"], data["setup"], data["device"]
    verdict, peak, limit = summary["verdict"], int(summary["peak_bytes"]), summary["limit_bytes"]
    what = [os.path.basename(data["input"]["path"]), setup["mode"], setup["precision"]]
    if setup["mode"] == "training":
        what.append(setup["optimizer"]["kind"])
    what += [f"{d['name']}={d['size']}" for d in setup["dims"]]
    badge = ""
    if verdict:
        badge = (f'<span style="background:{COLORS.get(verdict, "#6e7781")};color:#fff;border-radius:4px;padding:1px 8px;font-weight:600">'
                 f"{escape(WORDS.get(verdict, verdict.upper()))}</span> ")
    size = f"<b>{escape(_gib(peak))}</b>"
    if limit is not None:
        size += f" of {escape(_gib(int(limit)))} on {escape(device['name'])}"
    else:
        size += " at the peak"
    whole = max(peak, int(limit or 0), 1)
    bar, rows = [], []
    for part in _parts(data):
        color = PART_COLORS.get(part["category"], OTHER_COLOR)
        share = 100 * int(part["bytes"]) / whole
        bar.append(f'<span style="display:inline-block;height:100%;width:{share:.2f}%;background:{color}"></span>')
        rows.append(f'<div><span style="color:{color}">&#9632;</span> {escape(_gib(int(part["bytes"])))} {escape(part["category"])}</div>')
    tick = ""
    if limit is not None and peak > int(limit):  # where the card ends
        tick = f'<span style="position:absolute;top:-3px;bottom:-3px;left:{100 * int(limit) / whole:.2f}%;width:2px;background:{COLORS["no-fit"]}"></span>'
    why = f'<div style="opacity:.8">{escape(summary["why"])}</div>' if summary["why"] else ""
    return ('<div style="font-family:system-ui,sans-serif;font-size:13px;line-height:1.5;max-width:640px;border:1px solid #8886;border-radius:8px;padding:10px 14px">'
            f'<div style="opacity:.8">{escape(" · ".join(str(w) for w in what))}</div>'
            f'<div style="font-size:15px;margin:2px 0">{badge}{size}</div>'
            f'<div style="position:relative;margin:6px 0">{tick}<div style="height:12px;background:#8883;border-radius:3px;overflow:hidden;white-space:nowrap;font-size:0">{"".join(bar)}</div></div>'
            f"{why}"
            f'<div style="display:flex;flex-wrap:wrap;column-gap:18px;margin-top:4px">{"".join(rows)}</div></div>')
