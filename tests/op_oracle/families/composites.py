"""Ops that PyTorch makes of others, random factories, and other names of ops."""
from program import T, dtype

FLOAT, LONG = dict(dtype=dtype("float32"), device="cuda"), dict(dtype=dtype("int64"), device="cuda")


def random_numbers(c):
    c.simple("randint", "randint", 10, [64, 100], **LONG)
    c.simple("randint from", "randint.low", 3, 10, [64, 100], **LONG)
    c.simple("randint_like", "randint_like.low_dtype", T("float32", 64, 100), 3, 10)
    c.simple("randint_like of numbers", "randint_like.low_dtype", T("int64", 64, 100), 3, 10)
    c.simple("permutation", "randperm", 1000, **LONG)
    c.simple("permutation of many", "randperm", 100000, **LONG)
    c.simple("normal of numbers", "normal.float_float", 0.0, 1.0, [64, 100], **FLOAT)
    c.simple("normal of means", "normal.Tensor_float", T("float32", 64, 100), 1.0)
    c.simple("normal of deviations", "normal.float_Tensor", 0.0, T("float32", 64, 100))
    c.simple("normal of both", "normal.Tensor_Tensor", T("float32", 64, 100), T("float32", 64, 100))
    c.simple("poisson", "poisson", T("float32", 64, 100))
    c.simple("random_ from", "random_.from", T("float32", 64, 100, grad=False), 0, 10)
    c.simple("random_ to", "random_.to", T("float32", 64, 100, grad=False), 10)


def names(c):
    for name in ("absolute", "negative", "arccos", "arcsin", "arctan", "arccosh", "arcsinh", "arctanh", "fix"):
        c.simple(name, name, T("float32", 64, 100))
        if not name.endswith("h"):
            c.simple(f"{name}_", f"{name}_", T("float32", 64, 100), before="mul.Tensor")
    for name in ("multiply", "divide", "subtract", "true_divide"):
        for kind, other in (("Tensor", T("float32", 64, 1)), ("Scalar", 2.0)):
            c.simple(f"{name} {kind}", f"{name}.{kind}", T("float32", 64, 100), other)
            c.simple(f"{name}_ {kind}", f"{name}_.{kind}", T("float32", 64, 100), other, before="mul.Tensor")
    c.simple("arctan2", "arctan2", T("float32", 64, 100), T("float32", 64, 100))
    c.simple("divide mode", "divide.Tensor_mode", T("float32", 64, 100), T("float32", 64, 1), rounding_mode="floor")
    for name in ("greater", "greater_equal", "less", "less_equal", "not_equal"):
        c.simple(f"{name} Tensor", f"{name}.Tensor", T("float32", 64, 100, grad=False), T("float32", 64, 1, grad=False))
        c.simple(f"{name} Scalar", f"{name}.Scalar", T("float32", 64, 100, grad=False), 0.5)
    c.simple("clip Tensor", "clip.Tensor", T("float32", 64, 100), T("float32", 64, 1, grad=False), T("float32", 100, grad=False))
    c.simple("clamp_ Tensor", "clamp_.Tensor", T("float32", 64, 100), T("float32", 64, 100, grad=False), before="mul.Tensor")
    c.simple("div_ mode", "div_.Tensor_mode", T("float32", 64, 100), T("float32", 64, 1, grad=False), rounding_mode="floor", before="mul.Tensor")
    c.simple("argsort.stable", "argsort.stable", T("float32", 16, 1000, grad=False), stable=True, dim=-1)
    c.simple("count_nonzero of all", "count_nonzero", T("float32", 64, 100, grad=False))
    c.simple("moveaxis", "moveaxis.int", T("float32", 4, 64, 100), 1, 2, then="relu")
    c.simple("movedim of several", "movedim.intlist", T("float32", 4, 64, 100), [1, 2], [2, 1], then="relu")
    c.simple("moveaxis of several", "moveaxis.intlist", T("float32", 4, 64, 100), [0, 2], [2, 0], then="relu")
    c.simple("ravel", "ravel", T("float32", 64, 100), then="relu")
    c.simple("ravel of a transposed tensor", "ravel", T("float32", 64, 100, strides=[1, 64]), then="relu")
    c.simple("adjoint", "adjoint", T("float32", 4, 64, 100), then="relu")
    c.simple("mH", "mH", T("float32", 4, 64, 100), then="relu")
    for n in (1, 2, 3):
        c.simple(f"atleast_{n}d", f"atleast_{n}d", T("float32", 64), then="relu")
        c.simple(f"atleast_{n}d of a matrix", f"atleast_{n}d", T("float32", 64, 100), then="relu")
    for name in ("bitwise_and_", "bitwise_or_", "bitwise_xor_"):
        c.simple(name, f"{name}.Tensor", T("bool", 64, 100), T("bool", 64, 100))
    for name in ("logical_and_", "logical_or_", "logical_xor_"):
        c.simple(name, name, T("bool", 64, 100), T("bool", 64, 100))
    c.simple("logical_not_", "logical_not_", T("bool", 64, 100))
    for name in ("eq_", "ne_", "lt_", "le_", "gt_", "ge_"):
        c.simple(name, f"{name}.Scalar", T("float32", 64, 100, grad=False), 0.5)
    for name in ("unsqueeze_", "squeeze_.dim"):
        c.simple(name, name, T("float32", 1, 64, 100), 0, before="mul.Tensor", then="relu")
    c.simple("transpose_", "transpose_", T("float32", 64, 100), 0, 1, before="mul.Tensor", then="relu")
    c.simple("t_", "t_", T("float32", 64, 100), before="mul.Tensor", then="relu")
    for name in ("tril_", "triu_"):
        c.simple(name, name, T("float32", 64, 100), before="mul.Tensor")


def composites(c):
    for shape, other in (((8, 64, 100), (50, 100)), ((64, 100), (64, 100)), ((100,), (64, 100))):
        c.simple(f"inner {len(shape)}", "inner", T("float32", *shape), T("float32", *other))
    c.simple("dist", "dist", T("float32", 64, 100), T("float32", 64, 100))
    c.simple("dist 1", "dist", T("float32", 64, 100), T("float32", 64, 100), 1)
    for name in ("linalg_cross", "cross"):
        c.simple(name, name, T("float32", 64, 3), T("float32", 64, 3), dim=1)
    c.simple("linalg_vecdot", "linalg_vecdot", T("float32", 8, 64, 100), T("float32", 8, 64, 100))
    c.simple("linalg_diagonal", "linalg_diagonal", T("float32", 8, 64, 64), then="relu")
    c.simple("trace", "trace", T("float32", 64, 64))
    c.simple("kron", "kron", T("float32", 8, 16), T("float32", 4, 32))
    c.simple("block_diag", "block_diag", [T("float32", 64, 64), T("float32", 16, 32)])
    c.simple("bilinear", "bilinear", T("float32", 8, 64, 10), T("float32", 8, 64, 20), T("float32", 30, 10, 20), T("float32", 30))
    c.simple("bilinear without bias", "bilinear", T("float32", 64, 10), T("float32", 64, 20), T("float32", 30, 10, 20))
    c.simple("tensor_split", "tensor_split.sections", T("float32", 64, 100), 3, 1, outputs=3, then="relu")
    c.simple("tensor_split at indices", "tensor_split.indices", T("float32", 64, 100), [10, 40], 1, outputs=3, then="relu")
    c.simple("hsplit", "hsplit.int", T("float32", 64, 100), 2, outputs=2, then="relu")
    c.simple("column_stack", "column_stack", [T("float32", 64, 100), T("float32", 64)])
    c.simple("polar", "polar", T("float32", 64, 100), T("float32", 64, 100), then="abs")
    c.simple("angle", "angle", T("complex64", 64, 100))
    c.simple("angle of numbers", "angle", T("float32", 64, 100))
    c.simple("renorm", "renorm", T("float32", 64, 100), 2.0, 0, 1.0)
    for p, args in (("Tensor_Scalar", (T("float32", 64, 100), 0.5)), ("Tensor_Tensor", (T("float32", 64, 100), T("float32", 64, 100)))):
        c.simple(f"float_power {p}", f"float_power.{p}", *args)
    c.simple("round to decimals", "round.decimals", T("float32", 64, 100), decimals=2)
    c.simple("fft_fftshift", "fft_fftshift", T("float32", 64, 100), [1])
    c.simple("fft_fftshift of all", "fft_fftshift", T("float32", 64, 100))
    c.simple("fft_ifftshift", "fft_ifftshift", T("float32", 64, 100), [1])
    c.simple("fft_fftfreq", "fft_fftfreq", 100, 1.0, **FLOAT)
    c.simple("fft_rfftfreq", "fft_rfftfreq", 100, 1.0, **FLOAT)
    for name in ("hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"):
        c.simple(name, name, 400, **FLOAT)
        c.simple(f"{name} of a filter", f"{name}.periodic", 400, False, **FLOAT)
    c.simple("pdist", "pdist", T("float32", 64, 100))
    c.simple("nanmean", "nanmean", T("float32", 64, 100), [1], True)
    c.simple("nanmean of all", "nanmean", T("float32", 64, 100))
    c.simple("nanmedian", "nanmedian.dim", T("float32", 64, 100), 1, True, outputs=2)
    for op in ("quantile", "nanquantile"):
        c.simple(op, f"{op}.scalar", T("float32", 64, 100), 0.5, 1, True)
        c.simple(f"{op} of all", f"{op}.scalar", T("float32", 64, 100), 0.5)
        c.simple(f"{op} of several", op, T("float32", 64, 100), T("float32", 3, grad=False), 1)
    c.simple("count_nonzero", "count_nonzero.dim_IntList", T("float32", 64, 100, grad=False), [1])
    c.simple("sum_to_size", "sum_to_size", T("float32", 8, 64, 100), [64, 1])
    c.simple("linspace", "linspace", 0.0, 1.0, 100, **FLOAT)
    c.simple("logspace", "logspace", 0.0, 1.0, 100, **FLOAT)
    c.simple("scatter with a sum", "scatter.reduce", T("float32", 64, 30, grad=False), 1, T("int64", 64, 4), T("float32", 64, 4, grad=False), reduce="add")
    for how in ("amax", "mean", "prod"):
        c.simple(f"index_reduce {how}", "index_reduce", T("float32", 64, 100), 0, T("int64", 40), T("float32", 40, 100), how)
    
    c.simple("addr", "addr", T("float32", 64, 100), T("float32", 64), T("float32", 100))
    c.simple("vdot", "vdot", T("float32", 100), T("float32", 100))
    c.simple("ldexp", "ldexp.Tensor", T("float32", 64, 100), T("int32", 64, 100))
    c.simple("polygamma", "polygamma", 1, T("float32", 64, 100))
    c.simple("igamma", "igamma", T("float32", 64, 100, grad=False), T("float32", 64, 100))
    c.simple("xlogy of a number", "xlogy.Scalar_Other", T("float32", 64, 100), 2.0)
    c.simple("copysign of a number", "copysign.Scalar", T("float32", 64, 100), 2.0)
    c.simple("isin of a number", "isin.Tensor_Scalar", T("int64", 64, 100), 3)
    c.simple("repeat_interleave of counts", "repeat_interleave.self_Tensor", T("float32", 64, 100), T("int64", 64), 0, output_size=128)
    c.simple("fill_diagonal_", "fill_diagonal_", T("float32", 64, 64), 0.0, before="mul.Tensor")
    c.simple("square_", "square_", T("float32", 64, 64), before="mul.Tensor")


def short_time(c):
    c.simple("stft", "stft", T("float32", 8, 4000), 400, 160, 400, T("float32", 400, grad=False), False, True, True, then="abs")
    c.simple("stft of a short window", "stft", T("float32", 8, 4000), 512, 160, 400, T("float32", 400, grad=False), False, True, True, then="abs")
    c.simple("stft without window", "stft", T("float32", 4000), 400, 100, 400, None, False, True, True, then="abs")
    c.simple("triu_indices", "triu_indices", 20, 30, 2, **LONG)
    c.simple("tril_indices", "tril_indices", 20, 30, -1, **LONG)


def losses(c):
    c.simple("multi_margin_loss", "multi_margin_loss", T("float32", 64, 100), T("int64", 64))
    c.simple("multilabel_margin_loss", "multilabel_margin_loss", T("float32", 64, 100), T("int64", 64, 100))


def special(c):
    for name in ("special_entr", "special_erfcx", "special_i0e", "special_bessel_j0"):
        c.simple(name, name, T("float32", 64, 100, grad=name != "special_bessel_j0"))
    c.simple("special_xlogy", "special_xlogy", T("float32", 64, 100), T("float32", 64, 100))
    c.simple("special_zeta", "special_zeta", T("float32", 64, 100, grad=False), T("float32", 64, 100, grad=False))


def programs(c):
    for family in (random_numbers, names, composites, short_time, losses, special):
        family(c)
