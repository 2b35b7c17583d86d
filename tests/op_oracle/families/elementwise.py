"""Element-wise ops, with and without broadcasting, promotion and in place."""
from program import FLOATS, HALF, MIXED, T

UNARY = ("abs acos acosh asin asinh atan atanh ceil celu cos cosh deg2rad digamma elu erf erfc erfinv exp exp2 expm1 floor gelu "
         "hardshrink hardsigmoid hardswish hardtanh leaky_relu lgamma log log10 log1p log2 log_sigmoid logit mish nan_to_num neg "
         "rad2deg reciprocal relu relu6 round rsqrt selu sgn sigmoid sign silu sin sinc sinh softplus softshrink sqrt "
         "square tan tanh trunc i0 frac").split()
IN_PLACE = ("relu_ silu_ hardswish_ sigmoid_ tanh_ leaky_relu_ hardtanh_ elu_ exp_ celu_ selu_ mish_ hardsigmoid_ relu6_ neg_ sqrt_ "
            "rsqrt_ sin_ cos_ abs_ log_ reciprocal_ floor_ round_ square_ gelu_ erf_ log1p_ tan_").split()
BINARY = "add.Tensor sub.Tensor mul.Tensor div.Tensor maximum minimum atan2 fmax fmin logaddexp hypot xlogy.Tensor pow.Tensor_Tensor".split()
PREDICATE = "isnan isinf isfinite logical_not signbit isposinf isneginf".split()
COMPARE = "eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor logical_and logical_or logical_xor".split()


def programs(c):
    for dt in MIXED:
        for op in UNARY:
            c.simple(f"{op} {dt}", op, T(dt, 64, 1000))
        for op in IN_PLACE:
            c.simple(f"{op} {dt}", op, T(dt, 64, 1000), before="mul.Tensor")
        for n in (2, 3, 0.5, -0.5, 1, -1, 0):
            c.simple(f"pow number {n} {dt}", "pow.Tensor_Scalar", T(dt, 64, 1000), n)
        c.simple(f"pow base number {dt}", "pow.Scalar", 2.0, T(dt, 64, 1000))
        for op in BINARY:
            a = T(dt, 64, 1000)
            c.simple(f"{op} {dt}", op, a, T(dt, 64, 1000))
            c.simple(f"{op} row {dt}", op, a, T(dt, 1000))
            c.simple(f"{op} column {dt}", op, T(dt, 4, 64, 1000), T(dt, 64, 1))
            c.simple(f"{op} second only {dt}", op, T(dt, 64, 1000, grad=False), T(dt, 64, 1000))
            if dt != "float32":
                c.simple(f"{op} promoted {dt}", op, a, T("float32", 64, 1000))
        for op in ("add.Tensor", "mul.Tensor", "div.Tensor", "sub.Tensor", "maximum"):
            if op != "maximum":
                c.simple(f"{op} number {dt}", op, T(dt, 64, 1000), 2.0)
            c.simple(f"{op} transposed {dt}", op, T(dt, 64, 1000, strides=[1, 64]), T(dt, 64, 1000))
            c.simple(f"{op} channels_last {dt}", op, T(dt, 2, 8, 6, 6, strides="cl"), T(dt, 1, 8, 1, 1))
        c.simple(f"positive {dt}", "positive", T(dt, 64, 1000), then="relu")
        c.simple(f"rsub {dt}", "rsub.Scalar", T(dt, 64, 1000), 1.0)
        for op in ("add_.Tensor", "sub_.Tensor", "mul_.Tensor", "div_.Tensor"):
            c.simple(f"{op} {dt}", op, T(dt, 64, 1000), T(dt, 64, 1000), before="mul.Tensor")
        for op in ("add_.Scalar", "mul_.Scalar", "div_.Scalar"):
            c.simple(f"{op} {dt}", op, T(dt, 64, 1000), 2.0, before="mul.Tensor")
        c.simple(f"clamp {dt}", "clamp", T(dt, 64, 1000), 0.0, 1.0)
        c.simple(f"clamp min {dt}", "clamp", T(dt, 64, 1000), 0.0)
        c.simple(f"clamp_min {dt}", "clamp_min", T(dt, 64, 1000), 0.0)
        c.simple(f"clamp_max {dt}", "clamp_max", T(dt, 64, 1000), 0.0)
        c.simple(f"clamp tensors {dt}", "clamp.Tensor", T(dt, 64, 1000), T(dt, 64, 1000, grad=False), T(dt, 1000, grad=False))
        c.simple(f"clamp_min tensor {dt}", "clamp_min.Tensor", T(dt, 64, 1000), T(dt, 64, 1000))
        c.simple(f"clamp_ {dt}", "clamp_", T(dt, 64, 1000), 0.0, 1.0, before="mul.Tensor")
        c.simple(f"where {dt}", "where.self", T("bool", 64, 1000), T(dt, 64, 1000), T(dt, 64, 1000))
        c.simple(f"where row {dt}", "where.self", T("bool", 1000), T(dt, 64, 1000), T(dt, 1))
        c.simple(f"where scalar other {dt}", "where.ScalarOther", T("bool", 64, 1000), T(dt, 64, 1000), 0.0)
        c.simple(f"where scalar self {dt}", "where.ScalarSelf", T("bool", 64, 1000), 0.0, T(dt, 64, 1000))
        c.simple(f"masked_fill {dt}", "masked_fill.Scalar", T(dt, 64, 1000), T("bool", 64, 1000), 0.0)
        c.simple(f"masked_fill row {dt}", "masked_fill.Scalar", T(dt, 64, 1000), T("bool", 1000), 0.0)
        c.simple(f"masked_fill tensor {dt}", "masked_fill.Tensor", T(dt, 64, 1000), T("bool", 64, 1000), T(dt, host=True))
        c.simple(f"masked_fill_ {dt}", "masked_fill_.Scalar", T(dt, 64, 1000), T("bool", 64, 1000), 0.0, before="mul.Tensor")
        for op in ("addcmul", "addcdiv"):
            c.simple(f"{op} {dt}", op, T(dt, 64, 1000), T(dt, 64, 1000), T(dt, 64, 1000))
            c.simple(f"{op} row {dt}", op, T(dt, 64, 1000), T(dt, 1000), T(dt, 64, 1))
        c.simple(f"lerp number {dt}", "lerp.Scalar", T(dt, 64, 1000), T(dt, 64, 1000), 0.3)
        c.simple(f"lerp tensor {dt}", "lerp.Tensor", T(dt, 64, 1000), T(dt, 64, 1000), T(dt, 64, 1000))
        c.simple(f"threshold {dt}", "threshold", T(dt, 64, 1000), 0.1, 0.0)
        c.simple(f"prelu one {dt}", "prelu", T(dt, 8, 64, 100), T(dt, 1))
        c.simple(f"prelu channels {dt}", "prelu", T(dt, 8, 64, 100), T(dt, 64))
        c.simple(f"glu {dt}", "glu", T(dt, 64, 1000))
        c.simple(f"gelu tanh {dt}", "gelu", T(dt, 64, 1000), approximate="tanh")
        c.simple(f"rrelu {dt}", "rrelu", T(dt, 64, 1000), 0.1, 0.3, True)
        c.simple(f"remainder {dt}", "remainder.Scalar", T(dt, 64, 1000), 2.0)
        c.simple(f"fmod {dt}", "fmod.Scalar", T(dt, 64, 1000), 2.0)
        c.simple(f"copysign {dt}", "copysign.Tensor", T(dt, 64, 1000), T(dt, 64, 1000))
        for op in PREDICATE:
            c.simple(f"{op} {dt}", op, T(dt, 64, 1000, grad=False))
        for op in COMPARE:
            c.simple(f"{op} {dt}", op, T(dt, 64, 1000, grad=False), T(dt, 1000, grad=False))
        for op in ("gelu_", "erf_"):
            c.simple(f"{op} first {dt}", op, T(dt, 64, 1000, grad=False), back=False)
        for op in ("addcmul_", "addcdiv_"):
            c.simple(f"{op} {dt}", op, T(dt, 64, 1000), T(dt, 64, 1000), T(dt, 64, 1000), before="mul.Tensor")
        c.simple(f"lerp_ {dt}", "lerp_.Scalar", T(dt, 64, 1000), T(dt, 64, 1000), 0.3, before="mul.Tensor")
        c.simple(f"pow_ {dt}", "pow_.Scalar", T(dt, 64, 1000), 2, before="mul.Tensor")
        c.simple(f"clamp_min_ {dt}", "clamp_min_", T(dt, 64, 1000), 0.0, before="mul.Tensor")
        for op in ("add.Tensor", "sub.Tensor"):
            c.simple(f"{op} alpha {dt}", op, T(dt, 64, 1000), T(dt, 1000), alpha=2.0)
        for op in ("fmod.Tensor", "remainder.Tensor", "logaddexp2"):
            c.simple(f"{op} {dt}", op, T(dt, 64, 1000), T(dt, 1000))
        c.simple(f"clamp_max tensor {dt}", "clamp_max.Tensor", T(dt, 64, 1000), T(dt, 1000))
        c.simple(f"div number floor {dt}", "div.Scalar_mode", T(dt, 64, 1000), 2.0, rounding_mode="floor")
        c.simple(f"isclose {dt}", "isclose", T(dt, 64, 1000, grad=False), T(dt, 64, 1000, grad=False))
        c.simple(f"floor_divide {dt}", "floor_divide", T(dt, 64, 1000, grad=False), T(dt, 1000, grad=False))
        c.simple(f"div floor {dt}", "div.Tensor_mode", T(dt, 64, 1000), T(dt, 1000), rounding_mode="floor")
    for a, b in (("float32", "float64"), ("bfloat16", "float32"), ("float32", "int64"), ("int64", "float32")):
        c.simple(f"to {a} {b}", "to.dtype", T(a, 64, 1000), {"dtype": b}, then="relu" if b[0] == "f" else None, back=b[0] == "f")
    for op in ("bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor"):
        c.simple(f"{op} bool", op, T("bool", 64, 1000), T("bool", 1000))
    c.simple("bitwise_not", "bitwise_not", T("bool", 64, 1000))
    c.simple("add int float", "add.Tensor", T("int64", 64, 1000), T("float32", 1000))
    c.simple("div ints", "div.Tensor", T("int64", 64, 1000), T("int64", 1000))
    c.simple("exp int", "exp", T("int64", 64, 1000))
    for dt in HALF:
        for op in ("exp", "softplus", "log", "reciprocal", "rsqrt"):
            c.simple(f"{op} autocast {dt}", op, T(dt, 64, 1000), autocast=dt)
        c.simple(f"addcmul autocast {dt}", "addcmul", T(dt, 64, 1000), T("float32", 64, 1000), T(dt, 64, 1000), autocast=dt)
    for dt in FLOATS:
        c.simple(f"residual {dt}", "add.Tensor", T(dt, 8, 512, 30), T(dt, 30), then="tanh")
