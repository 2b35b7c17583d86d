"""Brings both sides' answers into one text form: what a recording holds and what is compared."""


def lines(answer):
    """One line per mark, event and output layout, or None for an error. Buffers are numbered from the first mark on;
    "in" is what lived before it."""
    if "error" in answer:
        return None
    start, out, ids, marks = answer["marks"][0][1], [], {}, {}
    for text, at in answer["marks"]:
        marks.setdefault(at, []).append(text.removeprefix("aten::"))
    for i in range(start, len(answer["events"]) + 1):
        out += [f"| {m}" for m in marks.get(i, [])]
        if i == len(answer["events"]) or "end" in marks.get(i, []):
            break
        sign, size, buffer = answer["events"][i]
        if sign[0] in "+a":
            ids[buffer] = len(ids)
            out.append(f"+{size} {ids[buffer]}")
        else:
            out.append(f"-{size} {ids.get(buffer, 'in')}")
    for name, sizes, strides, kind in answer["layouts"]:
        # The stride of a dimension of size 1 is never used.
        strides = [0 if n == 1 else s for n, s in zip(sizes, strides)]
        out.append(f"{name} {kind} {','.join(map(str, sizes))} {','.join(map(str, strides))}")
    return out
