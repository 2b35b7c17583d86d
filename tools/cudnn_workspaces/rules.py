"""Learns data/cudnn/rules.txt from cuDNN's answers: which kind of workspace its heuristics choose for a convolution.

    python draw.py 101 26000 2 > 2d.q;  python draw.py 102 5000 1 >> 2d.q;  python draw.py 103 8000 3 > 3d.q     convolutions to ask about
    LD_PRELOAD=… EMULATED_GPU=h100 ./engines < 2d.q > 2d.h100                   answers (engines.cpp), for each card
    python rules.py 9.19.0 ../../data/cudnn/rules.txt 90:2:2d.q:2d.h100 90:3:3d.q:3d.h100 80:2:2d.q:2d.a100 …

Needs numpy and scikit-learn. Several files of one architecture and number of dimensions are taken together. The same input gives the same file.
The kinds, the tables of copies, constants and tiles, and the order of the features are those of
estimators/runtime/torch/aten/cudnn_rule_sizes.cpp and cudnn_rules.cpp.
"""
import collections
import sys

import numpy as np
from sklearn.tree import DecisionTreeClassifier

# Layout wanted (1: channels last), channels padded to, 1: groups widened to a power of two, 1: the pass's inputs always.
COPIES = [(1, 8, 0, 0), (1, 4, 0, 1), (0, 1, 0, 1), (1, 8, 1, 0), (1, 4, 1, 1), (0, 4, 0, 0), (1, 1, 0, 1), (1, 4, 0, 0), (0, 1, 0, 0), (1, 4, 1, 0), (1, 1, 0, 0)]
CONSTANTS = [0, 131, 128, 159, 131 + 2359416]  # and after the last one a table of six bytes for each position
TILES = [(128, 128), (256, 128), (128, 256), (128, 64), (64, 128), (64, 64), (256, 64), (64, 256)]
GRIDS = [(32, 64), (64, 32)]
BLOCKS = [(a, b) for a in (32, 64, 128, 256) for b in (32, 64, 128, 256)]
INPUTS = np.array([3, 6, 5])  # of a pass: 1 input, 2 weight, 4 output
OPEN = "SURKO"  # kinds with an amount
KINDS = (["Z"] + [f"C{c}.{k}" for c in range(len(COPIES)) for k in range(len(CONSTANTS) + 1)] + [f"S{c}" for c in range(len(COPIES))]
         + [f"T{c}.{t}" for c in (0, 1, 3, 4) for t in range(len(TILES))]
         + [f"U{c}.{t}" for c in (0, 1, 3, 4) for t in range(len(BLOCKS))] + ["V0.0", "V0.1"] + ["R0", "R1", "K", "O", "N"])

LEAVES = {2: (3000, 3000, 6000), 3: (1000, 1000, 1500)}  # by pass
AROUND = {2: 400, 3: 1500}  # a range comes from at least so many convolutions
DROPPED = .002  # of them may lie outside


def up(a, b):
    return -(-a // b) * b


class Sizes:
    def __init__(self, q, rank):
        self.n, self.c, self.k, self.g = q[:, 5], q[:, 6], q[:, 7 + rank], q[:, 8 + 5 * rank]
        part = lambda i: q[:, 8 + i * rank:8 + (i + 1) * rank]
        self.image, self.kernel, self.pad, self.stride, self.dilation = q[:, 7:7 + rank], part(1), part(2), part(3), part(4)
        self.result = (self.image + 2 * self.pad - self.dilation * (self.kernel - 1) - 1) // self.stride + 1
        self.op, self.dtype, self.nhwc = q[:, 0], q[:, 1], q[:, 2]
        self.i, self.o, self.r = self.image.prod(1), self.result.prod(1), self.kernel.prod(1)
        self.e, self.cg, self.kg = np.where(self.dtype == 0, 4, 2), self.c // self.g, self.k // self.g


def copies(s, kind):
    """Bytes, what alignment adds, padded channels and outputs of a group, groups at once, tables."""
    last, multiple, widened, inputs = kind
    cp, kp = up(s.cg, multiple), up(s.kg, multiple)
    if widened:
        wide = np.full_like(cp, multiple)
        for _ in range(20):
            wide = np.where(wide < np.maximum(s.cg, s.kg), wide * 2, wide)
        cp, kp = np.where(s.g > 1, wide, cp), np.where(s.g > 1, wide, kp)
    at_once = s.g if widened else np.minimum(s.g, 8)
    tables = np.ones_like(s.g) if widened else at_once
    other, cut, always = s.nhwc != last, (s.g > 1) & (not widened), INPUTS[s.op] if inputs else np.zeros_like(s.op)
    x = (cp != s.cg) | cut | (other & (s.i > 1) & (s.c > 1)) | ((always & 1) > 0)
    w = (cp != s.cg) | (kp != s.kg) | (other & (s.r > 1) & (s.cg > 1)) | ((always & 2) > 0)
    y = (kp != s.kg) | cut | (other & (s.o > 1) & (s.k > 1)) | ((always & 4) > 0)
    b = (x * s.n * s.i * cp * at_once + w * kp * cp * s.r * at_once + y * s.n * s.o * kp * at_once) * s.e
    return b, (x | w | y) * 16 * tables, cp, kp, at_once, tables


def features(s):
    power = lambda a: np.minimum(a & -a, 64)
    tiles = up(s.kg, 128) // 128 * (up(s.cg * s.r, 128) // 128)
    f = [s.nhwc, (s.dtype == 9).astype(int), s.n, s.c, s.k, s.cg, s.kg, s.g]
    for d in range(s.image.shape[1]):
        f += [v[:, d] for v in (s.image, s.result, s.kernel, s.stride, s.dilation, s.pad)]
    f += [s.i, s.o, s.r, s.n * s.o, s.n * s.i, s.cg * s.r, s.kg * s.r, s.n * s.i * s.c, s.n * s.o * s.k, s.k * s.cg * s.r, power(s.cg), power(s.kg),
          s.n * s.o * s.k * s.cg * s.r, tiles, up(s.n * s.o, 128) // 128 * (up(s.kg, 128) // 128), up(s.n * s.i, 128) // 128 * (up(s.cg, 128) // 128),
          s.n * s.o // tiles]
    return np.stack(f, 1).astype(np.float32)


def explained(s, ws, split, buffers):
    """The kind of each answer, and its amount: the first kind that gives these bytes exactly, or one with a rough size."""
    kind, amount = np.full(len(ws), -1), np.zeros(len(ws))
    weights = s.op == 2

    def put(where, name, value=None):
        where = where & (kind < 0)
        kind[where] = KINDS.index(name)
        if value is not None:
            amount[where] = value[where]

    put(ws == 0, "Z")
    made = [copies(s, c) for c in COPIES]
    for c, (b, aligned, cp, kp, at_once, tables) in enumerate(made):
        for i, constant in enumerate([*CONSTANTS, (6 * np.where(s.op == 1, s.i, s.o) // 128 + 1) * 128]):
            put((b + aligned + constant * tables == ws) & ((aligned > 0) | (i > 0)), f"C{c}.{i}")
    for c, (b, aligned, cp, kp, at_once, tables) in enumerate(made):
        put(weights & (b + aligned + 128 * tables + split * kp * cp * s.r * 4 * at_once == ws), f"S{c}", split)
    for i, (rows, columns) in enumerate(GRIDS):
        put(weights & (16 * (up(s.kg, rows) // rows) * (up(s.cg * s.r, columns) // columns) * np.minimum(s.g, 8) == ws), f"V0.{i}")
    for c in (0, 1, 4, 3):
        b, aligned, cp, kp, at_once, tables = made[c]
        for i, (rows, columns) in enumerate(TILES):
            tiles = up(kp, rows) // rows * (up(cp * s.r, columns) // columns)
            put(weights & (b + aligned + 128 * tables + 4 * tables * tiles == ws), f"T{c}.{i}")
    for c in (0, 1, 3, 4):
        b, aligned, cp, kp, at_once, tables = made[c]
        left = ws - b - aligned - 159 * tables
        m, n = np.choose(s.op, [s.n * s.o, s.n * s.i, kp]), np.choose(s.op, [kp, cp, cp * s.r])
        for i, (rows, columns) in enumerate(BLOCKS):
            blocks = up(m, rows) // rows * (up(n, columns) // columns) * at_once
            put((buffers > 0) & (left == blocks * (4 * (buffers + 1) + buffers * 4 * rows * columns)), f"U{c}.{i}", buffers)
    for c in (0, 1):
        b, aligned, cp, kp, at_once, tables = made[c]
        rest = (ws - b) / (kp * cp * s.r * 4.0 * at_once)
        put(weights & ((s.dtype == 0) == (c == 1)) & (rest > .05), f"R{c}", 8 * np.log2(np.maximum(rest, 1e-9)))
    put((ws > 0) & (ws < 1 << 18), "K", 8 * np.log2(np.maximum(ws, 1)))
    put(ws > 0, "O", 8 * np.log2(np.maximum(ws, 1) / ((s.n * s.i * s.c + s.n * s.o * s.k + s.k * s.cg * s.r) * s.e)))
    put(ws < 0, "N")
    return kind, amount


def read_answers(path):
    """Bytes, into how many parts the matrix product is split (knobs 0 and 17), and buffers for partial sums (knob 12; -1 means one)."""
    ws, split, buffers = [], [], []
    for line in open(path):
        words = line.split()
        ws.append(int(words[0]))
        split.append(next((int(w.split(":")[1]) for w in words[2:] if w.startswith(("17:", "0:"))), 1))
        buffers.append(next((abs(int(w[3:])) for w in words[2:] if w.startswith("12:")), 0))
    return np.array(ws), np.array(split), np.array(buffers)


def groups_by(values):
    order = np.argsort(values, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(values[order])) + 1)


def leaf_text(kind, amount, rows):
    of = np.bincount(kind[rows]).argmax()
    if KINDS[of][0] not in OPEN:
        return f".{of}"
    there = amount[rows][kind[rows] == of]
    if KINDS[of][0] in "SU":
        values, count = np.unique(there, return_counts=True)
        middle = values[count.argmax()] if count.max() > 1 else np.median(there)
    else:
        middle = np.median(there)
    return f".{of}:{round(float(middle))}"


def list_text(kind, amount, rows):
    """The kinds that stand in for nearly all rows, the most frequent first, with the ends of their amounts."""
    count, covered, out = np.bincount(kind[rows]), 0, []
    for of in np.argsort(-count, kind="stable"):
        if count[of] == 0 or covered >= (1 - DROPPED) * len(rows):
            break
        covered += count[of]
        if KINDS[of][0] not in OPEN:
            out.append(f"{of}")
            continue
        there = amount[rows][kind[rows] == of]
        ends = np.quantile(there, [DROPPED / 2, 1 - DROPPED / 2]) if len(there) >= 40 else np.array([there.min(), there.max()])
        out.append(f"{of},{int(np.floor(ends[0]))},{int(np.ceil(ends[1]))}")
    return ";".join(out)


def tree_text(x, kind, amount, leaves, around):
    # Amounts that are far apart are told apart, too.
    target = kind * 1000 + np.where(np.isin(kind, [i for i, k in enumerate(KINDS) if k[0] in "RKO"]), np.clip(np.round(amount / 16), -60, 200) + 100, 0).astype(int)
    split = np.array([KINDS[k][0] in "SU" for k in kind])
    target[split] += np.minimum(np.round(np.log2(np.maximum(amount[split], 1))), 40).astype(int)
    tree = DecisionTreeClassifier(criterion="entropy", max_leaf_nodes=leaves, min_samples_leaf=2, random_state=0).fit(x, target)
    t, at = tree.tree_, tree.apply(x)
    region = np.zeros(t.node_count, int)  # the lowest node above with enough rows
    stack = [(0, 0)]
    while stack:
        node, above = stack.pop()
        region[node] = above = node if t.n_node_samples[node] >= around else above
        if t.children_left[node] >= 0:
            stack += [(t.children_left[node], above), (t.children_right[node], above)]
    leaf = {at[rows[0]]: leaf_text(kind, amount, rows) for rows in groups_by(at)}
    lists = {region[at[rows[0]]]: list_text(kind, amount, rows) for rows in groups_by(region[at])}
    texts = list(dict.fromkeys(lists.values()))
    numbers = {text: i for i, text in enumerate(texts)}
    words, stack = [], [(0, 0)]
    while stack:
        node, listed = stack.pop()
        if node in lists and numbers[lists[node]] != listed:
            listed = numbers[lists[node]]
            words.append(f"@{listed}")
        if t.children_left[node] < 0:
            words.append(leaf[node])
        else:
            words.append(chr(ord("A") + t.feature[node]) + str(int(np.floor(t.threshold[node]))))
            stack += [(t.children_right[node], listed), (t.children_left[node], listed)]
    return " ".join(texts) + "\n" + " ".join(words) + "\n"


HEADER = """\
# Which kind of workspace cuDNN {version} chooses for a convolution: decision trees made by tools/cudnn_workspaces/rules.py from its own answers.
# 'kinds': what leaves and lists mean by a number (estimators/runtime/torch/aten/cudnn_rule_sizes.h).
# 'tree': compute capability, dimensions, pass (0 forward, 1 data gradient, 2 weight gradient), 1 for types of two bytes. Two lines follow:
# lists of the kinds that occur around a leaf, "kind,least,most;…"; and the nodes from the root, the left one first: a feature's letter and
# the most that goes left, or a leaf ".kind:amount"; '@' says which list holds from there on down.
"""


def main():
    version, out, *files = sys.argv[1:]
    together = collections.defaultdict(list)
    for text in files:
        sm, rank, questions, answers = text.split(":")
        together[int(sm), int(rank)].append((questions, answers))
    with open(out, "w") as f:
        f.write(HEADER.format(version=version) + "kinds " + " ".join(KINDS) + "\n")
        for (sm, rank), pairs in sorted(together.items()):
            read = [(np.loadtxt(q, dtype=np.int64, ndmin=2), *read_answers(a)) for q, a in pairs]
            q, ws, split, buffers = (np.concatenate([r[i] for r in read]) for i in range(4))
            for op in (0, 1, 2):
                for half in (0, 1):
                    rows = (q[:, 0] == op) & ((q[:, 1] > 0) == half) & ((q[:, 1] != 9) | (sm >= 80))  # no bfloat16 before
                    s = Sizes(q[rows], rank)
                    kind, amount = explained(s, ws[rows], split[rows], buffers[rows])
                    f.write(f"tree {sm} {rank} {op} {half}\n" + tree_text(features(s), kind, amount, LEAVES[rank][op], AROUND[rank]))
            print(sm, rank, len(q), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
