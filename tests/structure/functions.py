"""How long functions are: python tests/structure/functions.py [LINES] lists those with more lines, the longest first.

Sources are as clang-format leaves them, so that a function ends at the first closing brace that stands as far left as it begins.
"""
import os
import re
import sys

import layers

LONGEST = 60
# Looked at one by one: cutting these would part what is read together. (path, function): (lines, why). They may shrink, not grow.
ROWS = "a table: one line for each op"
PATTERN = "one pattern, from its last node to its first, then the calls that it stands for"
LONGER = {
    ("estimators/measured/pickle.cpp", "step"): (149, "one case for each opcode of pickle"),
    ("estimators/runtime/torch/aten/rows/views.cpp", "register_views"): (143, ROWS),
    ("estimators/runtime/torch/aten/rows/collectives.cpp", "register_collectives"): (91, ROWS),
    ("estimators/runtime/torch/aten/rows/elementwise.cpp", "register_elementwise"): (80, ROWS),
    ("estimators/runtime/torch/versions/torch_2_11.cpp", "autocast_2_11"): (96, "lists of names, one on a line"),
    ("estimators/frontends/onnx/patterns/recurrent.cpp", "match_recurrent"): (76, PATTERN),
    ("estimators/frontends/onnx/patterns/attention.cpp", "match_attention"): (71, PATTERN),
    ("estimators/runtime/torch/aten/rows/attention.cpp", "flash"): (65, "one kernel's tensors in the order in which they come and go, forward and backward"),
}
# What opens a brace at the end of a line and is no function.
OTHER = re.compile(r"(namespace|extern|struct|class|union|enum|if|for|while|switch|else|do|try|return|case|default|typedef|using)\b|[}#]|//")
OPENS = re.compile(r"\)(?: (?:const|noexcept|override|final|mutable|try))*(?: -> [^;{}]+)? \{$")
GOES_ON = re.compile(r"[;{}:]$|^\s*(//|#|$)|^\s*(public|private|protected):$")


def signature(lines, at):
    """Index of the line where the declaration that opens a brace in line `at` begins; none where it declares no function."""
    first = at
    while first > 0 and not GOES_ON.search(lines[first - 1]):
        first -= 1
    text = " ".join(line.strip() for line in lines[first:at + 1])
    if OTHER.match(text) or "(" not in text:
        return None
    head = re.sub(r"^(.*?\))(?: const| noexcept)* : .*$", r"\1 {", text)  # without a constructor's initializers
    if not OPENS.search(head) or re.search(r"(?<![=!<>])=(?!=)[^()]*\{$", head):
        return None
    return first


def functions(text):
    """(lines, first line, its text) of every function; a lambda is part of the function around it."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        first = signature(lines, at) if lines[at].endswith("{") else None
        if first is None:
            at += 1
            continue
        indent = re.match(" *", lines[first])[0]
        end = next((i for i in range(at + 1, len(lines)) if lines[i].startswith(indent + "}")), None)
        if end is None:
            at += 1
            continue
        yield end - first + 1, first + 1, lines[first].strip()
        at = end + 1


def name_of(first_line):
    """`document_of` of its first line."""
    found = re.search(r"(operator\S+|~?\w+)\(", first_line)
    return found[1] if found else first_line


def texts():
    """{path: text} of every C++ file of the layers."""
    found = {}
    for path in sorted(layers.sources()):
        with open(os.path.join(layers.ROOT, path)) as f:
            found[path] = f.read()
    return found


def long_functions(files, most=LONGEST):
    """(lines, path, line, name) of all that have more lines than `most`."""
    for path, text in files.items():
        for lines, at, first in functions(text):
            if lines > most:
                yield lines, path, at, name_of(first)


def problems(files, longer=None):
    """What breaks the rule, one line each."""
    longer = LONGER if longer is None else longer
    seen = set()
    for lines, path, at, name in long_functions(files):
        seen.add((path, name))
        most = longer.get((path, name), (LONGEST, ""))[0]
        if lines > most:
            yield f"{path}:{at} {name} has {lines} lines, at most {most}"
    for path, name in sorted(set(longer) - seen):
        yield f"{name} of {path} stands in the list of long functions and is not long"


def broken_on_purpose(files):
    """(what was broken, files, list of long ones): each must give a problem of its own."""
    body = "  work();\n" * LONGEST
    for what, head in (("a function", "void f() {"), ("a member", "Result<Tape> Thing::f(const Tape& tape,\n                       int n) const {"),
                       ("a constructor", "Thing::Thing(int n)\n    : n_(n) {"), ("a function that tries", "Tape f(const json& j) try {")):
        yield f"{what} is too long", {**files, "base/any.cpp": f"{head}\n{body}}}\n"}, LONGER
    yield "a list names a short function", files, {**LONGER, ("base/any.cpp", "f"): (99, "")}
    (path, name), (lines, why) = next(iter(LONGER.items()))
    yield "a long function grows", files, {**LONGER, (path, name): (lines - 1, why)}


if __name__ == "__main__":
    for lines, path, at, name in sorted(long_functions(texts(), int(sys.argv[1]) if len(sys.argv) > 1 else LONGEST), reverse=True):
        print(f"{lines:4} {path}:{at} {name}")
