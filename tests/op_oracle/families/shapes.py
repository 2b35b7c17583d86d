"""Views, copies, joining, reductions."""
from program import MIXED, Program, T


def programs(c):
    for dt in MIXED:
        x = T(dt, 8, 512, 30)
        for name, op, *args in (
            ("slice", "slice.Tensor", 1, 0, 100), ("slice step", "slice.Tensor", 1, 10, 500, 3), ("select", "select.int", 1, 0),
            ("transpose", "transpose.int", 0, 1), ("permute", "permute", [2, 0, 1]), ("view", "view", [8, -1]),
            ("flatten", "flatten.using_ints", 1), ("unflatten", "unflatten.int", 1, [2, 256]), ("unsqueeze", "unsqueeze", 1),
            ("narrow", "narrow", 1, 3, 20), ("movedim", "movedim.int", 0, 2), ("diagonal", "diagonal", 0, 0, 1),
            ("unfold", "unfold", 1, 10, 5), ("as_strided", "as_strided", [8, 100], [15360, 1]), ("swapaxes", "swapaxes", 0, 1),
            ("repeat", "repeat", [2, 1, 3]), ("tile", "tile", [2, 1, 3]), ("flip", "flip", [1]), ("roll", "roll", [3], [1]),
            ("roll two", "roll", [-3, 2], [0, 1]), ("roll flat", "roll", [3]), ("tril", "tril"), ("triu", "triu"),
            ("repeat_interleave", "repeat_interleave.self_int", 3, 1), ("rot90", "rot90", 1, [0, 1]),
            ("expand_as", "expand_as", T(dt, 8, 512, 30, grad=False)), ("clone", "clone"), ("contiguous", "contiguous"),
            ("diag_embed", "diag_embed"), ("fliplr", "fliplr"), ("flipud", "flipud"), ("squeeze", "squeeze.dim", 0), ("mT", "mT"),
        ):
            c.simple(f"{name} {dt}", op, x, *args, then="relu")
        c.simple(f"reshape transposed {dt}", "reshape", T(dt, 8, 512, 30, strides=[15360, 1, 512]), [8, -1], then="relu")
        c.simple(f"contiguous transposed {dt}", "contiguous", T(dt, 8, 512, 30, strides=[15360, 1, 512]), then="relu")
        c.simple(f"flatten transposed {dt}", "flatten.using_ints", T(dt, 8, 512, 30, strides=[15360, 1, 512]), then="relu")
        c.simple(f"diag {dt}", "diag", T(dt, 100, 100), then="relu")
        c.simple(f"diag vector {dt}", "diag", T(dt, 100), then="relu")
        c.simple(f"tril square {dt}", "tril", T(dt, 56, 56))
        c.simple(f"expand {dt}", "expand", T(dt, 1, 512, 30), [8, 512, 30], then="relu")
        c.simple(f"expand lead {dt}", "expand", T(dt, 512, 30), [8, 512, 30], then="relu")
        c.simple(f"broadcast_to {dt}", "broadcast_to", T(dt, 512, 30), [8, 512, 30], then="relu")
        for op, args, n in (("split.Tensor", (10, 2), 3), ("chunk", (3, 2), 3), ("split_with_sizes", ([5, 15, 10], 2), 3),
                            ("unbind.int", (0,), 8), ("tensor_split.sections", (3, 2), 3)):
            for used in ("all", "one"):
                p = Program(f"{op} {used} {dt}")
                parts = p(op, p.new(dt, [8, 512, 30]), *args, outputs=n)
                if used == "one":
                    p.back(p("relu", parts[0]))
                elif op == "split_with_sizes":
                    p.back(p("cat", [parts[1], parts[0], parts[2]], 2))
                else:
                    p.back(p("mul.Tensor", parts[0], parts[1]))
                c.add(p)
        c.simple(f"cat {dt}", "cat", [T(dt, 4, 30, 16), T(dt, 4, 10, 16)], 1)
        c.simple(f"cat one wants {dt}", "cat", [T(dt, 4, 30, 16), T(dt, 4, 10, 16, grad=False)], 1)
        c.simple(f"cat channels_last {dt}", "cat", [T(dt, 4, 8, 6, 6, strides="cl"), T(dt, 4, 16, 6, 6, strides="cl")], 1)
        c.simple(f"stack {dt}", "stack", [T(dt, 4, 30, 16), T(dt, 4, 30, 16)], 1)
        if dt == "float32":  # joined and padded parts of channels_last tensors, whose strides are in its order and not dense
            volume = T(dt, 2, 8, 4, 6, 6, strides=[3456, 1, 864, 144, 24])
            c.simple("stack laid float32 (a cut from channels_last)", "stack", [volume, volume], 2)
            c.simple("stack last laid float32 (a cut from channels_last)", "stack", [volume, volume], 5)
            c.simple("cat laid float32 (a cut from channels_last)", "cat", [T(dt, 4, 8, 6, 6, strides=[864, 1, 144, 24])] * 2, 1)
            c.simple("pad laid float32 (a cut from channels_last)", "constant_pad_nd", volume, [1, 1, 1, 1, 2, 0])
        c.simple(f"hstack {dt}", "hstack", [T(dt, 4, 30, 16), T(dt, 4, 30, 16)])
        c.simple(f"vstack {dt}", "vstack", [T(dt, 4, 30, 16), T(dt, 4, 30, 16)])
        c.simple(f"meshgrid {dt}", "meshgrid.indexing", [T(dt, 30), T(dt, 20)], indexing="ij", outputs=2, then="relu")
        for mode, pads in (("constant", [1, 2, 3, 4]), ("reflect", [1, 2, 3, 4]), ("replicate", [1, 2, 3, 4]), ("circular", [1, 2, 3, 4])):
            c.simple(f"pad {mode} {dt}", "pad", T(dt, 4, 3, 20, 30), pads, mode)
        c.simple(f"pad constant two {dt}", "pad", T(dt, 4, 56, 56, 9), [0, 0, 0, 7, 0, 7])
        c.simple(f"pad negative {dt}", "constant_pad_nd", T(dt, 4, 56, 56), [-1, -1, 2, 0])
        c.simple(f"pad nothing {dt}", "pad", T(dt, 8, 32, 512, 16, strides=[262144, 16, 512, 1]), [0, 0, 0, 0], then="relu")
        c.simple(f"pad nothing once {dt}", "constant_pad_nd", T(dt, 8, 512, 30), [0, 0], then="relu")
        c.simple(f"pad 1d reflect {dt}", "pad", T(dt, 4, 3, 30), [1, 2], "reflect")
        c.simple(f"zeros_like {dt}", "zeros_like", T(dt, 4, 30, grad=False))
        for op in ("rand_like", "randn_like", "ones_like", "empty_like"):
            c.simple(f"{op} {dt}", op, T(dt, 4, 30, strides=[1, 4], grad=False))
        c.simple(f"bernoulli {dt}", "bernoulli.p", T(dt, 4, 30, grad=False), 0.5)
        for dim, keep in (([-1], True), ([0], False), ([0, 1], False), ([1], False), ([0, 2], True)):
            tag = f"{'_'.join(map(str, dim))}{' keep' if keep else ''} {dt}"
            x = T(dt, 8, 512, 300)
            for op in ("sum.dim_IntList", "mean.dim", "amax", "amin", "logsumexp"):
                c.simple(f"{op} {tag}", op, x, dim, keep)
            c.simple(f"var {tag}", "var.correction", x, dim, keepdim=keep)
            c.simple(f"std {tag}", "std.correction", x, dim, keepdim=keep)
            c.simple(f"var_mean {tag}", "var_mean.correction", x, dim, keepdim=keep, outputs=2)
            c.simple(f"std_mean {tag}", "std_mean.correction", x, dim, keepdim=keep, outputs=2, which=1)
            for order in (2, 1, 3, 4):
                c.simple(f"vector_norm {order} {tag}", "linalg_vector_norm", x, order, dim, keep)
            if len(dim) == 1:
                for op in ("max.dim", "min.dim", "median.dim"):
                    c.simple(f"{op} {tag}", op, x, dim[0], keep, outputs=2)
                c.simple(f"prod {tag}", "prod.dim_int", x, dim[0], keep)
                for op in ("argmax", "argmin"):
                    c.simple(f"{op} {tag}", op, x, dim[0], keep, back=False)
        x = T(dt, 8, 512, 300)
        for op in ("sum", "mean", "max", "min", "prod", "var", "std", "norm.Scalar", "linalg_vector_norm"):
            c.simple(f"{op} all {dt}", op, x)
        c.simple(f"norm dim {dt}", "norm.ScalarOpt_dim", x, 2, [1])
        c.simple(f"norm dim keep {dt}", "norm.ScalarOpt_dim", x, 2, [1], True)
        for op in ("cumsum", "cumprod", "logcumsumexp"):
            c.simple(f"{op} {dt}", op, x, 1)
        for op in ("cummax", "cummin"):
            c.simple(f"{op} {dt}", op, x, 1, outputs=2)
        c.simple(f"sum big {dt}", "sum", T(dt, 400, 512, 300))
        c.simple(f"mean transposed {dt}", "mean.dim", T(dt, 8, 512, 300, strides=[1, 2400, 8]), [1])
        c.simple(f"aminmax {dt}", "aminmax", T(dt, 8, 512, 300, grad=False), dim=1, outputs=2)
        c.simple(f"nansum {dt}", "nansum", x, [1])
        c.simple(f"count_nonzero {dt}", "count_nonzero.dim_IntList", T(dt, 8, 512, grad=False), [1])
        c.simple(f"std dim {dt}", "std.dim", x, [1], True)
        c.simple(f"var dim {dt}", "var.dim", x, [1], True)
        c.simple(f"var_mean all {dt}", "var_mean", x, outputs=2)
        c.simple(f"fill {dt}", "fill.Scalar", x, 1.0)
    for name, op in (("rfft", "fft_rfft"), ("rfft2", "fft_rfft2"), ("fft", "fft_fft"), ("fft2", "fft_fft2")):
        c.simple(name, op, T("float32", 8, 64, 100))
    for name, op, last in (("irfft", "fft_irfft", 51), ("irfft2", "fft_irfft2", 51), ("ifft", "fft_ifft", 100), ("ifft2", "fft_ifft2", 100)):
        c.simple(name, op, T("complex64", 8, 64, last))
    for name, op in (("rfft2", "fft_rfft2"), ("fft2", "fft_fft2")):
        c.simple(f"{name} channels last", op, T("float32", 8, 3, 64, 100, strides="cl"))
    c.simple("rfft padded", "fft_rfft", T("float32", 8, 64, 100), 128, -1, "ortho")
    c.simple("rfft cut", "fft_rfft", T("float32", 8, 64, 100), 64, 1)
    c.simple("fftn", "fft_fftn", T("float32", 8, 64, 100), None, [1, 2])
    c.simple("ifft real", "fft_ifft", T("float32", 8, 64, 100))
    c.simple("irfft sized", "fft_irfft", T("complex64", 8, 64, 51), 101, -1)
    c.simple("irfftn sized", "fft_irfftn", T("complex64", 8, 64, 51), [64, 100], [1, 2])
    c.simple("real", "real", T("complex64", 8, 64), then="relu")
    c.simple("imag", "imag", T("complex64", 8, 64), then="relu")
    c.simple("abs complex", "abs", T("complex64", 8, 64))
    p = Program("rfft of what nobody else holds")
    c.add(p.back(p("fft_rfft", p("sin", p.new("float32", [8, 64, 100])))))
    p = Program("rfft2 and back")
    c.add(p.back(p("fft_irfft2", p("fft_rfft2", p.new("float32", [8, 64, 100])))))
    c.simple("view_as_real", "view_as_real", T("complex64", 8, 64), then="relu")
    c.simple("any dims", "any.dims", T("bool", 64, 1000), [1])
    for op in ("any", "all"):
        c.simple(f"{op} bool", op, T("bool", 64, 1000))
        c.simple(f"{op} dim bool", f"{op}.dim", T("bool", 64, 1000), 1)
    c.simple("sum bool", "sum", T("bool", 64, 1000))
    c.simple("sum int", "sum.dim_IntList", T("int64", 64, 1000), [1])
    c.simple("cumsum bool", "cumsum", T("bool", 64, 1000), 1)
    c.simple("cumsum int", "cumsum", T("int64", 64, 1000), 1)
    c.simple("mean autocast", "mean.dim", T("bfloat16", 8, 512, 30), [1], autocast="bfloat16")
    c.simple("sum autocast", "sum.dim_IntList", T("bfloat16", 8, 512, 30), [1], autocast="bfloat16")
    c.simple("cumsum autocast", "cumsum", T("bfloat16", 8, 512, 30), 1, autocast="bfloat16")
    for a, b, tag in (((8, 32, 64, 64), (8, 32, 64, 128), "many"), ((2, 2, 96, 96), (2, 2, 96, 40), "few large"), ((100, 32, 32), (100, 32, 8), "small")):
        for upper in (False, True):
            c.simple(f"solve_triangular {tag} {'upper' if upper else 'lower'}", "linalg_solve_triangular", T("float32", *a), T("float32", *b), upper=upper, unitriangular=not upper)
    c.simple("solve_triangular right", "linalg_solve_triangular", T("float32", 100, 32, 32), T("float32", 100, 8, 32), upper=False, left=False)
    c.simple("solve_triangular of a transposed system", "linalg_solve_triangular", T("float32", 100, 32, 32, strides=[1024, 1, 32]), T("float32", 100, 32, 8), upper=False)
    c.simple("solve_triangular, one wants", "linalg_solve_triangular", T("float32", 100, 32, 32, grad=False), T("float32", 100, 32, 8), upper=False)
