"""Packs what `query curves` printed into data/cudnn/workspaces.txt (format: see its header, written below).

    python pack.py VERSION data/cudnn/workspaces.txt 90.txt 80.txt …      the table anew
    python pack.py VERSION data/cudnn/workspaces.txt --add 90.txt …       more lines for it; what it has already stays
    python pack.py VERSION OUT --samples data/cudnn/workspaces.txt 90.txt …   what `query samples` printed, less what equals the table
"""
import collections
import string
import sys

BATCHES = [*range(1, 64), *range(64, 128, 2), *range(128, 256, 8), *range(256, 1025, 32)]  # as in query.cpp
ORDER = [(dtype, nhwc, op) for dtype in (0, 2, 9) for nhwc in (0, 1) for op in (0, 1, 2)]
NAMES = string.ascii_letters


def values(text):
    """The runs of a curve, back to one workspace per batch size."""
    runs = [tuple(int(v) for v in run.split(":")) for run in text.split()]
    out, i = [], 0
    for n in BATCHES:
        while i + 1 < len(runs) and runs[i + 1][0] <= n:
            i += 1
        out.append(runs[i][1] + runs[i][2] * n)
    return out, runs


def lines_through(ws, runs):
    """The fewest lines a + b * N found greedily that pass through every point, the most used one first."""
    slopes = {0} | {b for _, _, b in runs}
    count = collections.Counter()
    for n, w in zip(BATCHES, ws):
        for b in slopes:
            count[(w - b * n, b)] += 1
    left, chosen = set(range(len(ws))), []
    on = collections.defaultdict(set)
    for i, (n, w) in enumerate(zip(BATCHES, ws)):
        for b in slopes:
            on[(w - b * n, b)].add(i)
    while left:
        best = max(on, key=lambda line: (len(on[line] & left), line[1] == 0, -line[0], line))
        chosen.append(best)
        left -= on.pop(best)
    return chosen, {line: {i for i, (n, w) in enumerate(zip(BATCHES, ws)) if line[0] + line[1] * n == w} for line in chosen}


def curve(text):
    ws, runs = values(text)
    if min(ws) < 0:
        return "-"
    chosen, on = lines_through(ws, runs)
    steps, i = [], 0
    while i < len(ws):
        # The line that carries furthest from here.
        def reach(line):
            j = i
            while j in on[line]:
                j += 1
            return j
        best = max(chosen, key=reach)
        steps.append((best, reach(best) - i))
        i = reach(best)
    used = list(dict.fromkeys(line for line, _ in steps))
    if len(used) > len(NAMES):
        return None
    names = {line: NAMES[k] for k, line in enumerate(used)}
    palette = ",".join(f"{a}+{b}" if b else f"{a}" for a, b in used)
    if len(steps) == 1:
        return palette
    return palette + ":" + "".join(names[line] + (str(length) if length > 1 else "") for line, length in steps[:-1]) + names[steps[-1][0]]


ONNXRUNTIME = """\
# Workspaces of cuDNN convolutions in bytes as ONNX Runtime's CUDA provider asks for them (cuDNN's frontend, heuristic mode B):
# the forward pass in float32 and float16 and NCHW, other curves are not known. Made by tools/cudnn_workspaces from cuDNN {version} for
# the models of tests/ort (tests/ort/convolutions.py). The format is that of workspaces.txt.
"""

HEADER = """\
# Workspaces of cuDNN convolutions in bytes: what the engine wants that the heuristics rank first.
# Made by tools/cudnn_workspaces (query.cpp, pack.py) from cuDNN {version}. The compute capability stands first: 75 was
# asked for a T4, 80 for an A100, 86 for an RTX 3060, 89 for an L4, 90 for an H100, 100 for a B200 and 120 for an RTX 5090.
# A line: sm C H W K R S pad_h pad_w stride_h stride_w dilation_h dilation_w groups|curves
# 18 curves, divided by ';': float32, float16, bfloat16; each NCHW, NHWC; each forward, data gradient, weight gradient.
# A curve is '=i' (the same as curve i of the line), '-' (not known) or lines:steps over the batch sizes
# 1, 2 .. 64, 66 .. 128, 136 .. 256, 288 .. 1024. Lines 'a+b' mean a + b * N bytes ('a' alone: b is 0); a step is the letter of a line
# and for how many batch sizes it holds (1 if left out; the last one holds to the end).
"""


SAMPLED = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256]  # as in query.cpp
DIFFERENCES = """\
# Workspaces of cuDNN convolutions in bytes as cuDNN {version} has them, where it differs from workspaces.txt (see there for lines).
# Made by tools/cudnn_workspaces. A curve is '~' (as in workspaces.txt), '=i' (as curve i of this line), '-' (not known) or
# the figures for batch sizes 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128 and 256. '@' stands before each compute capability of which every
# line of workspaces.txt was asked for at these sizes: what is not here is the same there.
"""


def at(curve, n):
    """What a curve of the table says of a batch size; None where it is not known."""
    if curve == "-":
        return None
    lines, _, steps = curve.partition(":")
    line, left = 0, BATCHES.index(n)
    while steps:
        line, steps = NAMES.index(steps[0]), steps[1:]
        digits = len(steps) - len(steps.lstrip("0123456789"))
        length, steps = int(steps[:digits] or 1), steps[digits:]
        if not steps or left < length:
            break
        left -= length
    a, _, b = lines.split(",")[line].partition("+")
    return int(a) + int(b or 0) * n


def differences(version, out, table, files):
    base, rows = existing(table), collections.defaultdict(dict)
    for path in files:
        for text in open(path):
            key, figures = text.split("|")
            sm, dtype, nhwc, op, *shape = (int(v) for v in key.split())
            rows[(sm, *shape)][dtype, nhwc, op] = [int(v) for v in figures.split()]
    written = 0
    with open(out, "w") as f:
        f.write(DIFFERENCES.format(version=version))
        f.writelines(f"@{sm}\n" for sm in sorted({key[0] for key in rows}))
        for key, curves in sorted(rows.items()):
            known, texts = base[key].split(";"), []
            for index, of in enumerate(ORDER):
                was = known[index] if known[index][0] != "=" else known[int(known[index][1:])]
                now = curves.get(of, [-1])
                text = "-" if min(now) < 0 else ",".join(map(str, now))
                if text != "-" and now == [at(was, n) for n in SAMPLED] or text == was == "-":
                    text = "~"
                texts.append(f"={texts.index(text)}" if len(text) > 3 and text in texts else text)
            if set(texts) != {"~"}:
                f.write(f"{' '.join(map(str, key))}|{';'.join(texts)}\n")
                written += 1
    print(f"{written} of {len(rows)} lines differ", file=sys.stderr)


def packed(curves):
    """A line's 18 curves, and how many of them have too many lines to be written down."""
    texts, left_out = [], 0
    for key in ORDER:
        text = curve(curves[key]) if key in curves else "-"
        left_out += text is None
        text = text or "-"
        texts.append(f"={texts.index(text)}" if text in texts and len(text) > 2 else text)
    return ";".join(texts), left_out


def existing(path):
    """{numbers in front of the '|': curves} of a table."""
    with open(path) as f:
        return {tuple(map(int, key.split())): curves.strip() for key, _, curves in (line.partition("|") for line in f if line[0] != "#")}


def main():
    version, out, *files = sys.argv[1:]
    if files[0] == "--samples":
        return differences(version, out, files[1], files[2:])
    rows = existing(out) if files[0] == "--add" else {}
    table = collections.defaultdict(dict)
    for path in files[files[0] == "--add":]:
        for text in open(path):
            key, runs = text.split("|")
            sm, dtype, nhwc, op, *shape = (int(v) for v in key.split())
            table[(sm, *shape)][dtype, nhwc, op] = runs
    unpacked = 0
    for key, curves in table.items():
        if key in rows:
            continue
        rows[key], left_out = packed(curves)
        unpacked += left_out
    with open(out, "w") as f:
        f.write((ONNXRUNTIME if out.endswith("onnxruntime.txt") else HEADER).format(version=version))
        f.writelines(f"{' '.join(map(str, key))}|{curves}\n" for key, curves in sorted(rows.items()))
    print(f"{len(rows)} lines, {unpacked} curves with too many lines left out", file=sys.stderr)


main()
