"""Learns data/cudnn/rules.txt from cuDNN's answers: which kind of workspace its heuristics choose for a convolution.

    python draw.py 201 1500000 2 > 2d.q;  python draw.py 202 300000 1 >> 2d.q;  python draw.py 203 300000 3 > 3d.q     convolutions to ask about
    LD_PRELOAD=… EMULATED_GPU=h100 ./engines < 2d.q > 2d.h100                   answers (engines.cpp), for each card
    python rules.py 9.19.0 ../../data/cudnn/rules.txt 90:2:2d.q:2d.h100 90:3:3d.q:3d.h100 90:near:near.q:near.h100 80:2:2d.q:2d.a100 …

Needs numpy and scikit-learn. Several files of one architecture and number of dimensions are taken together. The same input gives the same file.
The kinds, the tables of copies, constants and tiles, and the order of the features are those of cudnn_rule_sizes.cpp, cudnn_copies.cpp,
cudnn_engine_tables.cpp, cudnn_persistent.cpp and cudnn_rules.cpp in estimators/runtime/torch/aten.
"""
import collections
import sys

import numpy as np
from sklearn.tree import DecisionTreeClassifier

INPUTS, WEIGHT = (3, 6, 5), (2, 2, 2)  # of a pass: 1 input, 2 weight, 4 output
# Layout wanted (1: channels last), channels padded to, groups (1: widened to a power of two, 2: left where they are; 3: nothing is copied), always copied.
COPIES = [(1, 8, 0, 0), (1, 4, 0, INPUTS), (0, 1, 0, INPUTS), (1, 8, 1, 0), (1, 4, 1, INPUTS), (0, 4, 0, 0), (1, 1, 0, INPUTS), (1, 4, 0, 0),
          (0, 1, 0, 0), (1, 4, 1, 0), (1, 1, 0, 0), (0, 4, 0, INPUTS), (1, 8, 0, WEIGHT), (0, 1, 2, 0), (1, 1, 3, 0)]
CONSTANTS = [0, 131, 128, 159, 131 + 2359416]
POSITIONS, GRADIENT, POSITIONS_AND_HEAD = range(5, 8)  # after the constants: a table of positions, the data gradient's table, a longer one of positions
TILES = [(128, 128), (256, 128), (128, 256), (128, 64), (64, 128), (64, 64), (256, 64), (64, 256)]
BLOCKS = [(a, b) for a in (32, 64, 128, 256) for b in (32, 64, 128, 256)] + [(32, 16), (16, 64), (64, 16)]
SMALL_BLOCKS = [0, 16, 17, 18]  # of BLOCKS
PERSISTENT_TILES = [(a, b) for a in (64, 128, 256) for b in (64, 128, 256)]  # rows and columns, by knobs 40 and 41
CLUSTERS = [(a, b) for a in (1, 2, 4, 8) for b in (1, 2, 4, 8)]  # of blocks, by knobs 27 and 28
MULTIPROCESSORS = 148  # of the B200
OPEN = "SURKODGXY"  # kinds with an amount
COUNTED = "SUDGXY"  # of them, those whose amount is a whole number that gives the bytes exactly
KINDS = (["Z"] + [f"C{c}.{k}" for c in range(12) for k in range(8)] + ["C14.5", "C14.7", "S0", "S1"]
         + [f"T{c}.{t}" for c in (0, 1, 3, 4) for t in range(len(TILES))] + ["R0", "R1", "K", "O", "N"]
         + [f"U{c}.{t}" for c in (0, 1, 3, 4, 11) for t in range(16)] + [f"U{c}.{t}" for c in (6, 10) for t in SMALL_BLOCKS]
         + [f"G9.{t}" for t in range(16)]
         + [f"{way}{t}.{c}" for way in "XY" for t in range(len(PERSISTENT_TILES)) for c in range(len(CLUSTERS))]
         + [f"D{c}" for c in (0, 7, 1, 8, 2)] + ["W8", "V13", "V14", "E8.0", "E8.1", "I8.0", "I8.1", "H8", "H13", "A12.0", "A12.1", "J"])

NEAR = 1  # in the place of the dimensions: convolutions of images that are nearly one of data/cudnn/workspaces.txt
LEAVES = {2: (10000, 10000, 20000), 3: (2500, 2500, 4000), NEAR: (3000, 3000, 6000)}  # by pass
AROUND = {2: 400, 3: 1500, NEAR: 200}  # a range comes from at least so many convolutions, of so many or fewer in all; of more from more
ALL = {2: 300000, 3: 50000, NEAR: 100000}
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
    last, multiple, groups, always = kind
    cp, kp, widened = up(s.cg, multiple), up(s.kg, multiple), groups == 1
    if widened:
        wide = np.full_like(cp, multiple)
        for _ in range(20):
            wide = np.where(wide < np.maximum(s.cg, s.kg), wide * 2, wide)
        cp, kp = np.where(s.g > 1, wide, cp), np.where(s.g > 1, wide, kp)
    at_once = s.g if widened else np.minimum(s.g, 8)
    tables = np.ones_like(s.g) if widened else at_once
    other, always = s.nhwc != last, np.array(always or (0, 0, 0))[s.op]
    # Groups are cut out, unless they are turned into planes all the same. A single image's or pixel's are in one piece.
    planes = (not last) & (s.nhwc > 0)
    cut = lambda positions: (groups == 0) & (s.g > 1) & ~planes & (s.n * np.where(s.nhwc > 0, positions, 1) > 1)
    # Which sizes of one leave a layout as it is depends on the pass: of planes, a group's channels of the result and all channels of the rest.
    x = (cp != s.cg) | cut(s.i) | (other & (s.i > 1) & (np.where(planes & (s.op != 1), s.c, s.cg) > 1)) | ((always & 1) > 0)
    w = (cp != s.cg) | (kp != s.kg) | (other & (s.r > 1) & (np.where(planes, s.c, s.cg) > 1)) | ((always & 2) > 0)
    y = (kp != s.kg) | cut(s.o) | (other & (s.o > 1) & (np.where(planes & (s.op != 0), s.k, s.kg) > 1)) | ((always & 4) > 0)
    if groups == 3:
        x = w = y = np.zeros_like(x)
    b = (x * s.n * s.i * cp * at_once + w * kp * cp * s.r * at_once + y * s.n * s.o * kp * at_once) * s.e
    aligned = np.where(x | w | y, 16 * tables - b // tables % 16 * tables, 0)  # of each group
    return b, aligned, cp, kp, at_once, tables


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


def persistent(s, tile, cluster, stream, split):
    """Bytes of an engine whose blocks stay on their multiprocessors (Blackwell): of split sums, or of tiles that blocks share (stream-K)."""
    (rows, columns), (high, wide) = PERSISTENT_TILES[tile], CLUSTERS[cluster]
    pairs = rows == 256 or (rows == 128 and high > 1)  # two blocks work at one tile
    step = np.where(s.e == 4, 32, 64)
    m = up(np.choose(s.op, [s.n * s.o, s.n * s.i, s.kg]), rows) // rows
    n = np.choose(s.op, [up(s.kg, columns) // columns, up(s.cg, columns) // columns, up(s.cg, columns) // columns * s.r])
    parts = np.choose(s.op, [s.r * (up(s.cg, step) // step), s.r * (up(s.kg, step) // step), up(s.n * s.o, step) // step])
    high = high // 2 if pairs else high
    tiles = up(m, high) * up(n, wide)
    if not stream:
        at = np.minimum(split, parts)
        buffers, shared = np.where(at >= 4, at, np.where(at > 1, 1, 0)), np.where(at > 1, tiles, 0)
    else:
        cluster_tiles = high * wide
        at_once = MULTIPROCESSORS // (2 if pairs else 1)
        whole = max(at_once // cluster_tiles, 1) * cluster_tiles
        if pairs and high == 4:
            at_once = whole
        waves = tiles // at_once
        shared = tiles - np.where(waves > 1, up((waves - 1) * at_once, cluster_tiles), 0)
        shared = np.where(shared == 2 * whole, whole, shared)
        shared = np.where((tiles % at_once == 0) | (parts <= 8), 0, shared)
        each = np.minimum(at_once, shared * parts // 8) // np.maximum(shared, 1)
        buffers = np.where(each >= 4, each + 2, 1)
    return np.where(shared > 0, buffers * shared * rows * columns * 4 + 64 + up(4 * shared * (1 + pairs), 128), 0)


def candidates(s, ws, knobs, made):
    """Every kind that gives the bytes of some answers exactly: its name, where it does, and the amounts (None: it has none).
    `made`: the copies of each row of COPIES."""
    split, buffers = knobs.split, knobs.buffers
    weights = s.op == 2
    yield "Z", ws == 0, None
    positions = (6 * np.where(s.op == 1, s.i, s.o) // 128 + 1) * 128
    behind = {**dict(enumerate(CONSTANTS)), POSITIONS: positions, POSITIONS_AND_HEAD: positions + 17 * 128}
    gradient = up(16 * s.r + 4 * (s.i + s.image.sum(1)) + 28, 128)
    for c, (b, aligned, cp, kp, at_once, tables) in enumerate(made):
        for i, constant in behind.items():
            if f"C{c}.{i}" in KINDS:
                yield f"C{c}.{i}", b + aligned + constant * tables == ws, None
        if f"C{c}.{GRADIENT}" in KINDS:
            yield f"C{c}.{GRADIENT}", (s.op == 1) & (b + aligned + gradient == ws), None
        if f"S{c}" in KINDS:
            yield f"S{c}", weights & (b + aligned + 128 * tables + split * kp * cp * s.r * 4 * at_once == ws), split

    def tabled(c, table):
        """Copies, and a table for each group at work; those of several groups are aligned."""
        b, aligned, _, _, at_once, _ = made[c]
        return b + aligned + at_once * np.where(s.g > 1, up(table, 16), table) == ws

    short, long = (np.where(s.op == 0, one, other) for one, other in ((s.cg, s.kg), (s.kg, s.cg)))
    yield "W8", ~weights & (s.e == 4) & tabled(8, 36 * s.cg * s.kg + 64 * up(short, 8) * up(long, 32) + 4 * long), None
    for c in (8, 13):
        yield f"H{c}", (s.op == 0) & tabled(c, 4 * s.cg * s.r), None
    for c in (13, 14):
        yield f"V{c}", weights & tabled(c, 8 * (up(s.kg, 32) // 32) * (up(s.cg * s.r, 32) // 32)), None
    for i, side in enumerate((64, 32)):
        yield f"E8.{i}", weights & tabled(8, 2303 + 2 * (s.r % 2 == 0) + 6 * (s.r + 1) * s.result[:, 0]
                                          + 4 * s.r * (up(s.kg, side) // side) * (up(s.cg * s.r, 128) // 128)), None
        yield f"I8.{i}", (s.op == 0) & tabled(8, positions + 2303 + 4 * (up(s.n * s.o, 128) // 128) * (up(s.kg, side) // side)), None
    _, _, cp, kp, _, _ = made[12]
    for i, side in enumerate((64, 128)):
        partial = kp * cp * s.r * s.e
        yield f"A12.{i}", weights & tabled(12, partial + 127 + 8 * s.r + 4 * s.r * (up(kp, side) // side) * (up(cp, side) // side)), None
    yield "J", weights & (s.cg == 1) & (s.kg == 1) & (32 * s.r * s.n * up(s.c, 32) == ws), None
    for c in (0, 1, 3, 4):
        b, aligned, cp, kp, at_once, tables = made[c]
        for i, (rows, columns) in enumerate(TILES):
            tiles = up(kp, rows) // rows * (up(cp * s.r, columns) // columns)
            yield f"T{c}.{i}", weights & (b + aligned + 128 * tables + 4 * tables * tiles == ws), None

    def buffered(c, blocks, i, tables):
        rows, columns = BLOCKS[i]
        return (buffers > 0) & (ws - made[c][0] - made[c][1] - 159 * tables == blocks * (4 * (buffers + 1) + buffers * 4 * rows * columns))

    for c in (0, 1, 3, 4, 6, 10, 11):
        b, aligned, cp, kp, at_once, tables = made[c]
        m, n = np.choose(s.op, [s.n * s.o, s.n * s.i, kp]), np.choose(s.op, [kp, cp, cp * s.r])
        for i in SMALL_BLOCKS if c in (6, 10) else range(16):
            rows, columns = BLOCKS[i]
            blocks = up(m, rows) // rows * (up(n, columns) // columns) * at_once
            yield f"U{c}.{i}", buffered(c, blocks, i, tables) & (weights if c in (6, 10) else True), buffers
    _, _, cp, kp, _, _ = made[9]
    for i in range(16):
        rows, columns = BLOCKS[i]
        yield f"G9.{i}", weights & (s.g > 1) & buffered(9, up(kp * s.g, rows) // rows * (up(cp, columns) // columns) * s.r, i, 1), buffers
    copied = np.where(s.e == 4, made[7][0] + made[7][1], made[0][0] + made[0][1])
    for tile, cluster, stream in np.unique(knobs.persistent[knobs.persistent[:, 0] >= 0], axis=0).tolist():
        of = (knobs.persistent == (tile, cluster, stream)).all(1)
        want = copied + persistent(s, tile, cluster, stream, split)
        yield f"{'X' if stream else 'Y'}{tile}.{cluster}", of & (ws == want), np.where(stream, 1, split)


def explained(s, ws, knobs):
    """The kind of each answer, and its amount: one that gives these bytes exactly, or a rough size. Where several do, the answers of one engine
    have the kind that gives most of them: padding to 4 and to 8 is the same for many sizes, but an engine does one of them. Without groups, kinds
    that treat groups in different ways are the same, and the first one is taken."""
    kind, amount = np.full(len(ws), -1), np.zeros(len(ws))
    made = [copies(s, c) for c in COPIES]
    found = [(KINDS.index(name), where, value) for name, where, value in candidates(s, ws, knobs, made) if where.any()]
    for engine, grouped in np.unique(np.stack([knobs.engines, s.g > 1], 1), axis=0):
        left = np.flatnonzero((knobs.engines == engine) & ((s.g > 1) == grouped) & (ws >= 0))
        matches = np.array([where[left] for _, where, _ in found])
        while matches.any():
            best = matches.sum(1).argmax()
            of, _, value = found[best]
            here = matches[best]
            kind[left[here]] = of
            if value is not None:
                amount[left[here]] = value[left[here]]
            left, matches = left[~here], matches[:, ~here]

    def put(where, name, value):
        where = where & (kind < 0)
        kind[where] = KINDS.index(name)
        amount[where] = value[where]

    for c in (0, 7, 1, 8, 2):
        rest = ws - made[c][0] - made[c][1]
        values, at, count = np.unique(np.where(kind < 0, rest, -1), return_inverse=True, return_counts=True)
        put((rest > 0) & (rest < 1 << 23) & (count[at] >= max(15, len(ws) // 2500)), f"D{c}", rest)
    for c in (0, 1):
        b, aligned, cp, kp, at_once, tables = made[c]
        rest = (ws - b) / (kp * cp * s.r * 4.0 * at_once)
        put((s.op == 2) & ((s.dtype == 0) == (c == 1)) & (rest > .05), f"R{c}", 8 * np.log2(np.maximum(rest, 1e-9)))
    put((ws > 0) & (ws < 1 << 18), "K", 8 * np.log2(np.maximum(ws, 1)))
    put(ws > 0, "O", 8 * np.log2(np.maximum(ws, 1) / ((s.n * s.i * s.c + s.n * s.o * s.k + s.k * s.cg * s.r) * s.e)))
    put(ws < 0, "N", amount)
    return kind, amount


class Knobs:
    """What the answers say of the engines: into how many parts the matrix product is split (knobs 0 and 17), buffers for partial sums (knob 12; -1
    means one), and of persistent engines (knobs 40 and 41) the tile, the cluster and whether tiles are shared (knob 38)."""

    def __init__(self, answers):
        self.engines, self.split, self.buffers, self.persistent = [], [], [], []
        for words in answers:
            self.engines.append(int(words[1]) if len(words) > 1 else -1)
            of = dict(map(int, w.split(":")) for w in words[2:])
            self.split.append(of.get(17, of.get(0, 1)))
            self.buffers.append(abs(of.get(12, 0)))
            self.persistent.append(self.engine(of))
        self.engines, self.split, self.buffers, self.persistent = map(np.array, (self.engines, self.split, self.buffers, self.persistent))

    @staticmethod
    def engine(of):
        side = {2: 0, 3: 1, 4: 2}
        if of.get(40) not in side or of.get(41) not in side or (of.get(17, 1) == 1 and of.get(38, 0) != 1):
            return -1, -1, -1
        return side[of[40]] * 3 + side[of[41]], (of[27].bit_length() - 1) * 4 + of[28].bit_length() - 1, of.get(38, 0)

    def of(self, rows):
        out = Knobs([])
        out.engines, out.split, out.buffers, out.persistent = self.engines[rows], self.split[rows], self.buffers[rows], self.persistent[rows]
        return out


def read_answers(*paths):
    words = [line.split() for path in paths for line in open(path)]
    return np.array([int(w[0]) for w in words]), Knobs(words)


def groups_by(values):
    order = np.argsort(values, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(values[order])) + 1)


def leaf_text(kind, amount, rows):
    of = np.bincount(kind[rows]).argmax()
    if KINDS[of][0] not in OPEN:
        return f".{of}"
    there = amount[rows][kind[rows] == of]
    if KINDS[of][0] in COUNTED:
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
    # Amounts that count something are told apart, rough ones where they are far apart.
    target = kind.astype(np.int64) << 24
    rough, counted = (np.isin(kind, [i for i, k in enumerate(KINDS) if k[0] in letters]) for letters in ("RKO", COUNTED))
    target[rough] += (np.clip(np.round(amount / 16), -60, 200) + 100).astype(int)[rough]
    target[counted] += amount.astype(int)[counted]
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
# 'tree': compute capability, dimensions (1: images like those of workspaces.txt), pass (0 forward, 1 data gradient, 2 weight gradient), 1 for types of two bytes. Two lines follow:
# lists of the kinds that occur around a leaf, "kind,least,most;…"; and the nodes from the root, the left one first: a feature's letter and
# the most that goes left, or a leaf ".kind:amount"; '@' says which list holds from there on down.
"""


def main():
    version, out, *files = sys.argv[1:]
    together = collections.defaultdict(list)
    for text in files:
        sm, rank, questions, answers = text.split(":")
        together[int(sm), NEAR if rank == "near" else int(rank)].append((questions, answers))
    with open(out, "w") as f:
        f.write(HEADER.format(version=version) + "kinds " + " ".join(KINDS) + "\n")
        for (sm, rank), pairs in sorted(together.items()):
            q = np.concatenate([np.loadtxt(q, dtype=np.int64, ndmin=2) for q, _ in pairs])
            ws, knobs = read_answers(*(a for _, a in pairs))
            for op in (0, 1, 2):
                for half in (0, 1):
                    rows = (q[:, 0] == op) & ((q[:, 1] > 0) == half) & ((q[:, 1] != 9) | (sm >= 80))  # no bfloat16 before
                    s = Sizes(q[rows], 2 if rank == NEAR else rank)
                    kind, amount = explained(s, ws[rows], knobs.of(rows))
                    around = AROUND[rank] * max(1, round(len(kind) / ALL[rank], 1))
                    f.write(f"tree {sm} {rank} {op} {half}\n" + tree_text(features(s), kind, amount, LEAVES[rank][op], around))
            print(sm, rank, len(q), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
