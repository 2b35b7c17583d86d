"""The kinds of workspaces that cuDNN's engines ask for, as functions of a convolution's sizes, for many convolutions at once.

The kinds, the tables of copies, constants and tiles are those of cudnn_rule_sizes.cpp, cudnn_copies.cpp, cudnn_engine_tables.cpp, cudnn_persistent.cpp
and cudnn_stream_k.cpp in estimators/runtime/torch/aten.
"""
import numpy as np

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
STREAM_K_TILES = {0: (128, 128), 1: (128, 64), 2: (128, 32), 3: (256, 128), 4: (256, 64), 5: (64, 64), 6: (128, 256), 7: (64, 128), 8: (64, 32),
                  9: (64, 256), 16: (256, 32), 18: (64, 192), 19: (128, 192), 20: (256, 96)}  # of Hopper's engines, by knob 2
AT_ONCE = 18  # blocks of a wave of these, whatever the card
STREAM_K_CLUSTERS = [(a, b) for a in range(1, 9) for b in range(1, 9)]
OPEN = "SURKODGXY"  # kinds with an amount
COUNTED = "SUDGXY"  # of them, those whose amount is a whole number that gives the bytes exactly
KINDS = (["Z"] + [f"C{c}.{k}" for c in range(12) for k in range(8)] + ["C14.5", "C14.7", "S0", "S1"]
         + [f"T{c}.{t}" for c in (0, 1, 3, 4) for t in range(len(TILES))] + ["R0", "R1", "K", "O", "N"]
         + [f"U{c}.{t}" for c in (0, 1, 3, 4, 11) for t in range(16)] + [f"U{c}.{t}" for c in (6, 10) for t in SMALL_BLOCKS]
         + [f"G9.{t}" for t in range(16)]
         + [f"{way}{t}.{c}" for way in "XY" for t in range(len(PERSISTENT_TILES)) for c in range(len(CLUSTERS))]
         + [f"D{c}" for c in (0, 7, 1, 8, 2)] + ["W8", "V13", "V14", "E8.0", "E8.1", "I8.0", "I8.1", "H8", "H13", "A12.0", "A12.1", "J"]
         + [f"{way}{t}.{c}" for way in "PQ" for t in range(len(STREAM_K_TILES)) for c, (a, b) in enumerate(STREAM_K_CLUSTERS) if a * b <= AT_ONCE])
NUMBERS = {name: i for i, name in enumerate(KINDS)}


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


def matrix_product(s, c, k):
    """Rows, columns, and for each position of the kernel (of the weight's gradient) how often, of the product that a pass is."""
    return np.choose(s.op, [s.n * s.o, s.n * s.i, k]), np.choose(s.op, [k, c, c]), np.where(s.op == 2, s.r, 1)


def depth_steps(s):
    """Steps of 128 bytes of a persistent engine through the depth of the product of one group."""
    step = np.where(s.e == 4, 32, 64)
    return np.choose(s.op, [s.r * (up(s.cg, step) // step), s.r * (up(s.kg, step) // step), up(s.n * s.o, step) // step])


def persistent(s, tile, cluster, stream, split):
    """Bytes of an engine whose blocks stay on their multiprocessors (Blackwell): of split sums, or of tiles that blocks share (stream-K)."""
    (rows, columns), (high, wide) = PERSISTENT_TILES[tile], CLUSTERS[cluster]
    pairs = rows == 256 or (rows == 128 and high > 1)  # two blocks work at one tile
    m, n, times = matrix_product(s, s.cg, s.kg)
    parts = depth_steps(s)
    high = high // 2 if pairs else high
    tiles = up(up(m, rows) // rows, high) * up(up(n, columns) // columns * times, wide)
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


def halvings(n):
    """Sums of pairs until one is left: 4 for the sums of 4 parts is 2 + 1, of 9 it is 5 + 3 + 2 + 1."""
    out = np.zeros_like(n)
    while (n > 1).any():
        n = np.where(n > 1, up(n, 2) // 2, 0)
        out = out + n
    return out


def stream_k(s, tile, cluster, shared):
    """Bytes of an engine of Hopper whose blocks stay on their multiprocessors: those that share the tiles of the last wave (stream-K), and a counter
    where there are more than two waves."""
    (rows, columns), (high, wide) = list(STREAM_K_TILES.values())[tile], STREAM_K_CLUSTERS[cluster]
    m, n, times = matrix_product(s, s.cg, s.kg)
    parts = depth_steps(s)
    wave = AT_ONCE // (high * wide)
    clusters = up(up(m, rows) // rows, high) // high * (up(up(n, columns) // columns * times, wide) // wide)
    last = clusters % wave
    tiles = last * high * wide
    # A part is worth sharing where it takes so many steps: more of bfloat16, and of small tiles.
    least = np.where(s.dtype == 0, 8, np.where(s.dtype == 9, 32, 4)) * (4 + (rows * columns < 128 * 128) + (rows * columns < 128 * 64)) // 4
    most = wave * high * wide // np.maximum(tiles, 1)
    split = np.minimum(most, parts // least)
    split = np.maximum(split - ((split < most) & (split < 6) & (split % 2 == 1)), 1)
    steps = up(parts, split) // split
    split = up(parts, steps) // steps
    on = shared & (last > 0) & (2 * last <= wave) & (split > 1)
    sums = np.where(on, tiles * split * rows * columns * 4 + 32 + 4 * tiles * halvings(split), 0)
    behind = sums + 4 * (clusters > 2 * wave)
    return np.where(behind > 0, behind + 127, 0)


def named(s, knobs, made):
    """The kinds that knobs of persistent engines name: which it is, the answers that have it, the bytes, and amounts (None: it has none)."""
    copied = np.where(s.e == 4, made[7][0] + made[7][1], made[0][0] + made[0][1])
    for kind in np.unique(knobs.named[knobs.named >= 0]).tolist():
        way, (tile, cluster) = KINDS[kind][0], map(int, KINDS[kind][1:].split("."))
        of = knobs.named == kind
        if way in "PQ":
            yield kind, of & (s.g == 1), copied + stream_k(s, tile, cluster, way == "P"), None
        else:
            yield kind, of, copied + persistent(s, tile, cluster, way == "X", knobs.split), np.where(way == "X", 1, knobs.split)


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
            if f"C{c}.{i}" in NUMBERS:
                yield f"C{c}.{i}", b + aligned + constant * tables == ws, None
        if f"C{c}.{GRADIENT}" in NUMBERS:
            yield f"C{c}.{GRADIENT}", (s.op == 1) & (b + aligned + gradient == ws), None
        if f"S{c}" in NUMBERS:
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
        m, n, times = matrix_product(s, cp, kp)
        for i in SMALL_BLOCKS if c in (6, 10) else range(16):
            rows, columns = BLOCKS[i]
            blocks = up(m, rows) // rows * (up(n * times, columns) // columns) * at_once
            yield f"U{c}.{i}", buffered(c, blocks, i, tables) & (weights if c in (6, 10) else True), buffers
    _, _, cp, kp, _, _ = made[9]
    for i in range(16):
        rows, columns = BLOCKS[i]
        yield f"G9.{i}", weights & (s.g > 1) & buffered(9, up(kp * s.g, rows) // rows * (up(cp, columns) // columns) * s.r, i, 1), buffers
