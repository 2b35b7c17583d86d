"""No two types have the same name in the same namespace, outside of unnamed ones: the linker keeps one copy of a template's code for a name, made for either.

memplan::Life was once two structs of different sizes; a build of -O1 then took the other one's std::vector<Life>, and crashed.
"""
import collections
import re

TYPE = re.compile(r"(?:struct|class|enum class|enum) (\w+)(?: final)?(?: :[^;{]*)? ?\{")


def types(text):
    """Types at the level of a namespace that has a name, with it."""
    spaces = []
    for line in text.splitlines():
        if opened := re.match(r"(?:inline )?namespace(?: ([\w:]+))? \{", line):
            spaces.append(opened[1])
        elif line.startswith("}  // namespace") and spaces:
            spaces.pop()
        elif (found := TYPE.match(line)) and None not in spaces:
            yield "::".join([*spaces, found[1]])


def problems(files, _table=None):
    where = collections.defaultdict(set)
    for path, text in files.items():
        for name in types(text):
            where[name].add(path)
    return [f"{name} is defined in {' and in '.join(sorted(paths))}" for name, paths in sorted(where.items()) if len(paths) > 1]


def broken_on_purpose(files):
    path = next(p for p, text in files.items() if any(types(text)))
    name = next(types(files[path]))
    space, _, own = name.rpartition("::")
    yield "a type has two definitions", {**files, "base/any.h": f"namespace {space} {{\nstruct {own} {{\n}};\n}}  // namespace {space}\n"}, None
