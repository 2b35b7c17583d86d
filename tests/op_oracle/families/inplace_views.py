"""Writes into a part of a tensor, which give the whole of it a new history."""
from program import MIXED, Program, T


def part_of(p, x, dim=1, start=10, end=40):
    return p("slice.Tensor", x, dim, start, end)


def programs(c):
    for dt in MIXED:
        p = Program(f"copy_ into buffer {dt}")
        x, part = p.new(dt, [64, 100], grad=False), p.new(dt, [64, 30])
        p("copy_", part_of(p, x), p("mul.Tensor", part, 2.0))
        c.add(p.back(p("relu", x)))

        p = Program(f"copy_ twice {dt}")
        x = p("mul.Tensor", p.new(dt, [64, 100]), 2.0)
        p("copy_", part_of(p, x, 1, 0, 30), p.new(dt, [64, 30]))
        p("copy_", part_of(p, x, 1, 30, 100), p.new(dt, [64, 70], grad=False))
        c.add(p.back(p("sin", x)))

        p = Program(f"copy_ broadcast {dt}")
        x = p("mul.Tensor", p.new(dt, [64, 100]), 2.0)
        p("copy_", part_of(p, x), p("expand", p.new(dt, [1, 30]), [64, 30]))
        c.add(p.back(p("sin", x)))

        p = Program(f"copy_ whole {dt}")
        x = p("mul.Tensor", p.new(dt, [64, 100]), 2.0)
        p("copy_", x, p.new("float32", [64, 100]))
        c.add(p.back(p("sin", x)))

        p = Program(f"view after a write {dt}")
        x = p("mul.Tensor", p.new(dt, [64, 100]), 2.0)
        flat = p("view", x, [6400])
        p("copy_", p("select.int", x, 1, 3), p.new(dt, [64]))
        c.add(p.back(p("sin", flat)))

        p = Program(f"write through a view of a view {dt}")
        x = p("mul.Tensor", p.new(dt, [64, 100]), 2.0)
        v = p("permute", p("view", x, [64, 10, 10]), [0, 2, 1])
        p("mul_.Tensor", p("select.int", v, 1, 3), 3.0)
        c.add(p.back(p("cos", x)))

        p = Program(f"add_ into slice {dt}")
        x = p("mul.Tensor", p.new(dt, [64, 100]), 2.0)
        p("add_.Tensor", part_of(p, x), p.new(dt, [64, 30]))
        c.add(p.back(p("relu", x)))

        p = Program(f"relu_ of a view {dt}")
        v = p("view", p("mul.Tensor", p.new(dt, [64, 100]), 2.0), [100, 64])
        c.add(p.back(p("sin", p("relu_", v))))

        p = Program(f"masked_fill_ into slice {dt}")
        x = p("mul.Tensor", p.new(dt, [64, 100]), 2.0)
        p("masked_fill_.Scalar", part_of(p, x), p.new("bool", [64, 30]), 0.0)
        c.add(p.back(p("relu", x)))

        p = Program(f"scatter_ into slice {dt}")
        x = p("mul.Tensor", p.new(dt, [64, 100]), 2.0)
        p("scatter_.src", part_of(p, x), 1, p.new("int64", [64, 4]), p.new(dt, [64, 4]))
        c.add(p.back(p("relu", x)))

        p = Program(f"index_put_ into slice {dt}")
        x = p("mul.Tensor", p.new(dt, [64, 100]), 2.0)
        p("index_put_", part_of(p, x, 0, 10, 40), [p.new("int64", [7])], p.new(dt, [7, 100]))
        c.add(p.back(p("relu", x)))

        p = Program(f"zero_ of a row {dt}")
        x = p("mul.Tensor", p.new(dt, [64, 100]), 2.0)
        p("zero_", p("select.int", x, 0, 3))
        c.add(p.back(p("relu", x)))

        for op in ("zero_", "fill_.Scalar"):
            c.simple(f"{op} {dt}", op, T(dt, 64, 100), *([1.0] if op == "fill_.Scalar" else []), before="mul.Tensor", then="sin")
