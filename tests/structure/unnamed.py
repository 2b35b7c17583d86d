"""Files of a folder are compiled together (cmake/FastBuild.cmake; all of them by `make demo`), so what their unnamed namespaces declare must not collide,
neither there nor with the folder's headers.

Overloads and aliases of one type do not. The table of ONNX ops and memplan-torch are compiled file by file, and left out.
"""
import collections
import os
import re

import functions

APART = ("estimators/frontends/onnx/ops", "memplan_torch")
VALUE = re.compile(r"(?:inline |static |constexpr |const |constinit |thread_local )+[\w:<>,&* ]+?\b(\w+)(?:\[[^\]]*\])? ?(?:=|\{)")
TYPE = re.compile(r"(?:struct|class|enum class|enum) (\w+)")
ALIAS = re.compile(r"using (\w+) = (.*;)")


def of_namespaces(text, opening):
    """(name, parameters of a function or what an alias stands for) of what the namespaces that a line opens declare."""
    lines, inside = text.split("\n"), False
    for at, line in enumerate(lines):
        if line.startswith("namespace"):
            inside = line == opening
        elif line.startswith("}  // namespace"):
            inside = False
        elif inside and line[:1] not in ("", " ", "}", "#", "/"):
            if found := ALIAS.match(line):
                yield found[1], found[2]
            elif (found := TYPE.match(line)) and not line.endswith(";"):
                yield found[1], ""
            elif found := VALUE.match(line):
                yield found[1], ""
        if inside and line.endswith("{") and (first := functions.signature(lines, at)) is not None and not lines[first].startswith(" "):
            head = " ".join(part.strip() for part in lines[first:at + 1])
            name = functions.name_of(head)
            yield name, kinds(head[head.index(name + "(") + len(name):])


def kinds(text):
    """`(const Tape&, int)` of `(const Tape& tape, int n = 0) const {`: overloads differ in it."""
    depth, inside = 0, ""
    for c in text:
        depth += (c in "(<{[") - (c in ")>}]")
        if depth == 0:
            break
        inside += "\0" if c == "," and depth == 1 else c
    return "(" + ", ".join(re.sub(r"\s*=.*$", "", part).strip().rpartition(" ")[0] or part for part in inside[1:].split("\0")) + ")"


def problems(files, _table=None):
    where = collections.defaultdict(lambda: collections.defaultdict(set))
    for path, text in files.items():
        folder = os.path.dirname(path)
        if path.endswith(".cpp") and not folder.startswith(APART):
            for name, parameters in of_namespaces(text, "namespace {"):
                where[folder, name][path].add(parameters)
        elif path.endswith(".h"):
            for name, parameters in of_namespaces(text, "namespace memplan {"):
                where[folder, name][path].add(parameters)
    found = []
    for (_, name), of in sorted(where.items()):
        alike = {p for a in of if a.endswith(".cpp") for b in of if a != b and clash(of[a], of[b]) for p in (a, b)}
        if alike:
            found.append(f"{name} is declared in {' and in '.join(sorted(alike))}: their folder is compiled as one file")
    return found


def clash(one, other):
    """Whether two files' declarations of a name cannot stand in one file."""
    def aliases(those):
        return {p for p in those if p.endswith(";")}
    if aliases(one) and aliases(other):
        return one != other
    overloads = all(p.startswith("(") for p in one | other)
    return bool(one & other) if overloads else True


def broken_on_purpose(files):
    folder = "cli/report"
    for what, line in (("functions", "int twice(const std::vector<int>& all, int n) {\n  return n;\n}"), ("constants", "constexpr int twice = 2;"), ("types", "struct Twice {\n};")):
        text = f"namespace memplan {{\n\nnamespace {{\n\n{line}\n\n}}  // namespace\n\n}}  // namespace memplan\n"
        yield f"two {what} of a folder have one name", {**files, f"{folder}/a.cpp": text, f"{folder}/b.cpp": text}, None
