"""Learns data/cudnn/rules.txt from cuDNN's answers: which kind of workspace its heuristics choose for a convolution.

    python draw.py 201 1500000 2 > 2d.q;  python draw.py 202 300000 1 >> 2d.q;  python draw.py 203 300000 3 > 3d.q     convolutions to ask about
    LD_PRELOAD=… EMULATED_GPU=h100 ./engines < 2d.q > 2d.h100                   answers (engines.cpp), for each card
    python rules.py 9.19.0 ../../data/cudnn/rules.txt 90:2:2d.q:2d.h100 90:3:3d.q:3d.h100 90:near:near.q:near.h100 80:2:2d.q:2d.a100 …

Needs numpy and scikit-learn. Several files of one architecture and number of dimensions are taken together. The same input gives the same file.
The order of the features is that of cudnn_rules.cpp in estimators/runtime/torch/aten; the kinds are in kinds.py.
"""
import collections
import heapq
import sys

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from kinds import COPIES, COUNTED, KINDS, NUMBERS, OPEN, STREAM_K_TILES, Sizes, candidates, copies, named, up

NEAR = 1  # in the place of the dimensions: convolutions of images that are nearly one of data/cudnn/workspaces.txt
LEAVES = {2: (11000, 11000, 22000), 3: (2800, 2800, 4500), NEAR: (3500, 3500, 7000)}  # by pass
GROWN = {2: (1, 1, 2), 3: (1, 1, 2), NEAR: (3, 3, 3)}  # times as many leaves are grown as are kept
AROUND = {2: 800, 3: 3000, NEAR: 200}  # a range comes from at least so many convolutions, of so many or fewer in all; of more from more
ALL = {2: 300000, 3: 50000, NEAR: 100000}
DROPPED = .001  # of them may lie outside
SELDOM = 10  # convolutions: kinds and amounts that fewer have are not told apart
IS_COUNTED, IS_ROUGH = ([i for i, name in enumerate(KINDS) if name[0] in letters] for letters in (COUNTED, "RKO"))
AMOUNTS = (0, 12, 17, 23)  # knobs that say how many parts or buffers there are
STREAM_K_ROWS = {knob: row for row, knob in enumerate(STREAM_K_TILES)}


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


def explained(s, ws, knobs):
    """The kind of each answer, and its amount: one that gives these bytes exactly, or a rough size. Where several do, the answers of one engine
    have the kind that gives most of them: padding to 4 and to 8 is the same for many sizes, but an engine does one of them. Without groups, kinds
    that treat groups in different ways are the same, and the first one is taken. Kinds that knobs name go before all others: they say for which sizes
    nothing is shared, which no tree learns."""
    kind, amount = np.full(len(ws), -1), np.zeros(len(ws))
    made = [copies(s, c) for c in COPIES]
    for of, where, bytes_of, value in named(s, knobs, made):
        where = where & (bytes_of == ws)
        kind[where] = of
        if value is not None:
            amount[where] = value[where]
    found = [(NUMBERS[name], where, value) for name, where, value in candidates(s, ws, knobs, made) if where.any()]
    for engine, grouped in np.unique(np.stack([knobs.engines, s.g > 1], 1), axis=0):
        left = np.flatnonzero((knobs.engines == engine) & ((s.g > 1) == grouped) & (ws >= 0) & (kind < 0))
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
        kind[where] = NUMBERS[name]
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
    means one), and of persistent engines the kind that their tile, their cluster and whether tiles are shared make: on Blackwell knobs 40, 41, 27, 28
    and 38, on Hopper 2, 27, 28 and 25."""

    def __init__(self, answers):
        self.engines, self.split, self.buffers, self.named, self.config = [], [], [], [], []
        known = {}
        for words in answers:
            self.engines.append(int(words[1]) if len(words) > 1 else -1)
            of = dict(map(int, w.split(":")) for w in words[2:])
            self.split.append(of.get(17, of.get(0, 1)))
            self.buffers.append(abs(of.get(12, 0)))
            self.named.append(self.kind(of))
            rest = tuple(sorted(knob for knob in of.items() if knob[0] not in AMOUNTS))
            self.config.append(known.setdefault((self.engines[-1], rest), len(known)))
        for name in ("engines", "split", "buffers", "named", "config"):
            setattr(self, name, np.array(getattr(self, name), dtype=np.int64))

    @staticmethod
    def kind(of):
        if of.get(2) in STREAM_K_ROWS and 25 in of and 28 in of:
            return NUMBERS.get(f"{'Q' if of[25] else 'P'}{STREAM_K_ROWS[of[2]]}.{(of.get(27, 1) - 1) * 8 + of[28] - 1}", -1)
        side = {2: 0, 3: 1, 4: 2}
        if of.get(40) not in side or of.get(41) not in side or (of.get(17, 1) == 1 and of.get(38, 0) != 1):
            return -1
        cluster = (of[27].bit_length() - 1) * 4 + of[28].bit_length() - 1
        return NUMBERS[f"{'X' if of.get(38, 0) else 'Y'}{side[of[40]] * 3 + side[of[41]]}.{cluster}"]

    def of(self, rows):
        out = Knobs([])
        for name, values in vars(self).items():
            setattr(out, name, values[rows])
        return out


def read_answers(*paths):
    words = [line.split() for path in paths for line in open(path)]
    return np.array([int(w[0]) for w in words]), Knobs(words)


def groups_by(values):
    order = np.argsort(values, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(values[order])) + 1)


def answers_of(kind, amount):
    """One number for each kind and amount, where that counts something."""
    return (kind.astype(np.int64) << 32) + np.where(np.isin(kind, IS_COUNTED), amount, 0).astype(np.int64)


def leaf_text(kind, amount, answers, rows):
    values, count = np.unique(answers[rows], return_counts=True)
    best = int(values[count.argmax()])
    of, middle = best >> 32, best & 0xFFFFFFFF
    if KINDS[of][0] not in OPEN:
        return f".{of}"
    return f".{of}:{middle if of in IS_COUNTED else round(float(np.median(amount[rows][kind[rows] == of])))}"


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


def classes(kind, amount, config, of_weights):
    """What a tree tells apart: what cuDNN chose, an engine with its knobs, which sizes decide; bytes alone are a poorer guide to them. Of the weight's
    gradient, whose sums are of amounts that no other knob tells, kinds and amounts as well; what occurs seldom is not told apart."""
    if not of_weights:
        return config
    rough, counted = np.isin(kind, IS_ROUGH), np.isin(kind, IS_COUNTED)
    steps = np.where(rough, np.clip(np.round(amount / 16), -60, 200) + 100, np.where(counted, amount, 0)).astype(np.int64)
    _, at, count = np.unique(((config * len(KINDS) + kind) << 32) + steps, return_inverse=True, return_counts=True)
    return np.where(count[at] < SELDOM, -1 - config, at)


def pruned(left, right, leaf_labels, leaves):
    """Cuts subtrees until so many leaves are left, first those that tell the fewest convolutions right for each leaf that they have more: what a
    class of another engine changes in no bytes goes without loss. `leaf_labels`: a counter of each leaf's answers."""
    parent = {c: i for i in range(len(left)) if left[i] >= 0 for c in (left[i], right[i])}
    alone, right_below, count, seen = {}, {}, {}, {}
    for i in reversed(range(len(left))):  # children have higher numbers
        if left[i] < 0:
            seen[i] = leaf_labels[i]
            alone[i] = right_below[i] = max(seen[i].values())
            count[i] = 1
            continue
        a, b = sorted((seen.pop(left[i]), seen.pop(right[i])), key=len)
        b.update(a)
        seen[i] = b
        alone[i] = max(b.values())
        right_below[i], count[i] = (of[left[i]] + of[right[i]] for of in (right_below, count))
    link = lambda i: (right_below[i] - alone[i]) / (count[i] - 1)
    heap = [(link(i), i, count[i]) for i in range(len(left)) if left[i] >= 0]
    heapq.heapify(heap)
    while heap and count[0] > leaves:
        _, i, size = heapq.heappop(heap)
        if left[i] < 0 or size != count[i]:
            continue
        stack = [left[i], right[i]]
        while stack:
            below = stack.pop()
            if left[below] >= 0:
                stack += [left[below], right[below]]
                left[below] = right[below] = -1
        fewer, lost = count[i] - 1, right_below[i] - alone[i]
        left[i] = right[i] = -1
        count[i], right_below[i] = 1, alone[i]
        while i in parent:
            i = parent[i]
            count[i] -= fewer
            right_below[i] -= lost
            heapq.heappush(heap, (link(i), i, count[i]))


def tree_text(x, kind, amount, target, leaves, grown, around):
    t = DecisionTreeClassifier(criterion="entropy", max_leaf_nodes=grown * leaves, min_samples_leaf=2, random_state=0).fit(x, target).tree_
    answers, grown_leaf = answers_of(kind, amount), t.apply(x)
    rows_of = {grown_leaf[rows[0]]: rows for rows in groups_by(grown_leaf)}
    left, right = t.children_left.tolist(), t.children_right.tolist()
    if grown > 1:
        pruned(left, right, {i: collections.Counter(answers[rows].tolist()) for i, rows in rows_of.items()}, leaves)
    at = np.zeros(len(x), int)  # the leaf of each convolution after that
    region = np.zeros(t.node_count, int)  # the lowest node above with enough rows
    stack = [(0, 0, -1)]
    while stack:
        node, above, cut = stack.pop()
        region[node] = above = node if t.n_node_samples[node] >= around and cut < 0 else above
        cut = node if cut < 0 and left[node] < 0 else cut
        if t.children_left[node] >= 0:
            stack += [(t.children_left[node], above, cut), (t.children_right[node], above, cut)]
        else:
            at[rows_of[node]] = cut
    leaf = {at[rows[0]]: leaf_text(kind, amount, answers, rows) for rows in groups_by(at)}
    lists = {region[at[rows[0]]]: list_text(kind, amount, rows) for rows in groups_by(region[at])}
    texts = list(dict.fromkeys(lists.values()))
    numbers = {text: i for i, text in enumerate(texts)}
    words, stack = [], [(0, 0)]
    while stack:
        node, listed = stack.pop()
        if node in lists and numbers[lists[node]] != listed:
            listed = numbers[lists[node]]
            words.append(f"@{listed}")
        if left[node] < 0:
            words.append(leaf[node])
        else:
            words.append(chr(ord("A") + t.feature[node]) + str(int(np.floor(t.threshold[node]))))
            stack += [(right[node], listed), (left[node], listed)]
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
                    of = knobs.of(rows)
                    kind, amount = explained(s, ws[rows], of)
                    around = AROUND[rank] * max(1, round(len(kind) / ALL[rank], 1))
                    target = classes(kind, amount, of.config, op == 2)
                    tree = tree_text(features(s), kind, amount, target, LEAVES[rank][op], GROWN[rank][op], around)
                    f.write(f"tree {sm} {rank} {op} {half}\n" + tree)
            print(sm, rank, len(q), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
