"""ONNX files written field by field, so that the tests can say what no library would write. Numbers are those of onnx.proto."""
import struct


def varint(n):
    n &= (1 << 64) - 1
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def field(number, what):
    """A number, or bytes and texts with their length."""
    if isinstance(what, int):
        return varint(number << 3) + varint(what)
    data = what.encode() if isinstance(what, str) else what
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(number, many):
    return b"".join(field(number, one) for one in many)


def attribute(name, what):
    """AttributeProto of an integer, a text, integers, or a graph."""
    if isinstance(what, int):
        return field(1, name) + field(3, what) + field(20, 2)
    if isinstance(what, str):
        return field(1, name) + field(4, what) + field(20, 3)
    if isinstance(what, list):
        return field(1, name) + fields(8, what) + field(20, 7)
    return field(1, name) + field(6, what) + field(20, 5)


def node(op, inputs, outputs, name="", domain="", **attributes):
    return (fields(1, inputs) + fields(2, outputs) + (field(3, name) if name else b"") + field(4, op) + fields(5, [attribute(k, v) for k, v in attributes.items()])
            + (field(7, domain) if domain else b""))


def value(name, sizes, kind=1):
    """ValueInfoProto of a tensor; a text is the name of an open size."""
    dims = fields(1, [field(2, s) if isinstance(s, str) else field(1, s) for s in sizes])
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def tensor(name, sizes, data, kind=1):
    return fields(1, sizes) + field(2, kind) + field(8, name) + field(9, data)


def floats(n):
    return struct.pack(f"<{n}f", *[0.5] * n)


def graph(nodes, inputs, outputs, weights=()):
    return fields(1, nodes) + field(2, "g") + fields(5, weights) + fields(11, inputs) + fields(12, outputs)


def function(name, inputs, outputs, nodes):
    return field(1, name) + fields(4, inputs) + fields(5, outputs) + fields(7, nodes) + field(9, field(1, "") + field(2, 18)) + field(10, "own")


def model(body, functions=()):
    return field(1, 10) + field(2, "test") + field(7, body) + field(8, field(1, "") + field(2, 18)) + field(8, field(1, "own") + field(2, 1)) + fields(25, functions)
