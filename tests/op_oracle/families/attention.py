"""Softmax, dropout, scaled dot product attention."""
from program import FLOATS, HALF, Program, T, dtype


def sdpa(c, name, dt, b=2, h=4, q=128, k=None, d=64, hk=None, dv=None, mask=None, mask_sizes=None, mask_grad=False, drop=0.0, causal=False,
         grad=True, strided=False, mask_strides=None, mask_view=(), **kw):
    k, hk, dv = k or q, hk or h, dv or d
    p = Program(f"sdpa {name} {dt}")
    new = lambda heads, length, dim: p.new(dt, [b, heads, length, dim], grad=grad, strides=[length * heads * dim, dim, heads * dim, 1] if strided else None)
    args = [new(h, q, d), new(hk, k, d), new(hk, k, dv)]
    args.append(p.new(mask, mask_sizes or [b, 1, q, k], grad=mask_grad, strides=mask_strides) if mask else None)
    for op, *rest in mask_view:
        args[3] = p(op, args[3], *rest)
    y = p("scaled_dot_product_attention", *args, drop, causal, **kw)
    if strided:
        y = p("reshape", p("transpose.int", y, 1, 2), [b, q, h * dv])
    if grad:
        p.back(y)
    c.add(p)


def programs(c):
    for dt in FLOATS:
        x = T(dt, 4, 64, 128)
        c.simple(f"softmax {dt}", "softmax.int", x, -1)
        c.simple(f"_softmax {dt}", "_softmax", x, -1, False)
        c.simple(f"softmax to fp32 {dt}", "softmax.int", x, -1, dtype("float32"))
        c.simple(f"softmax dim 1 transposed {dt}", "softmax.int", T(dt, 4, 64, 128, strides=[8192, 1, 64]), 1)
        c.simple(f"log_softmax {dt}", "log_softmax.int", x, -1)
        c.simple(f"log_softmax to fp32 {dt}", "log_softmax.int", x, -1, dtype("float32"))
        c.simple(f"_safe_softmax {dt}", "_safe_softmax", x, -1)
        for op, args in (("dropout", (0.1, True)), ("native_dropout", (0.1, True)), ("alpha_dropout", (0.1, True)), ("feature_alpha_dropout", (0.1, True))):
            c.simple(f"{op} {dt}", op, x, *args, outputs=2 if op == "native_dropout" else 1)
        c.simple(f"feature_dropout {dt}", "feature_dropout", T(dt, 4, 8, 16, 16), 0.1, True)
        c.simple(f"dropout off {dt}", "dropout", x, 0.1, False, before="mul.Tensor")
        c.simple(f"dropout 0 {dt}", "dropout", x, 0.0, True, before="mul.Tensor")
        c.simple(f"dropout 1 {dt}", "dropout", x, 1.0, True)
        for op in ("dropout_", "alpha_dropout_", "feature_alpha_dropout_"):
            c.simple(f"{op} {dt}", op, x, 0.1, True, before="mul.Tensor")
        c.simple(f"feature_dropout_ {dt}", "feature_dropout_", T(dt, 4, 8, 16, 16), 0.1, True, before="mul.Tensor")
        c.simple(f"dropout without grad {dt}", "dropout", T(dt, 4, 64, 128, grad=False), 0.1, True)
        c.simple(f"dropout transposed {dt}", "dropout", T(dt, 4, 64, 128, strides=[8192, 1, 64]), 0.1, True)
        sdpa(c, "plain", dt)
        sdpa(c, "transposed heads", dt, strided=True)
        sdpa(c, "causal", dt, causal=True)
        sdpa(c, "dropout", dt, drop=0.1)
        sdpa(c, "bool mask", dt, mask="bool")
        sdpa(c, "float mask", dt, mask=dt)
        sdpa(c, "mask of rows", dt, mask=dt, mask_sizes=[2, 1, 1, 128])
        sdpa(c, "mask for all", dt, mask="bool", mask_sizes=[1, 1, 128, 128])
        sdpa(c, "mask odd", dt, mask="bool", q=197)
        sdpa(c, "mask wants gradient", dt, mask=dt, mask_grad=True)
        # The efficient kernel's rows begin at multiples of 8 elements: what does not is padded, and differentiated through.
        sdpa(c, "odd mask of heads wants gradient", dt, q=49, mask=dt, mask_sizes=[1, 4, 49, 49], mask_grad=True)
        sdpa(c, "odd mask of all wants gradient", dt, q=197, mask=dt, mask_sizes=[197, 197], mask_grad=True)
        sdpa(c, "odd mask, expanded", dt, q=197, mask=dt, mask_sizes=[2, 1, 1, 197], mask_view=[("expand", [2, 4, 197, 197])])
        sdpa(c, "mask of heads, last", dt, mask=dt, mask_sizes=[1, 128, 128, 4], mask_grad=True, mask_view=[("permute", [0, 3, 1, 2])])
        sdpa(c, "mask, transposed", dt, mask=dt, mask_sizes=[1, 1, 128, 128], mask_view=[("transpose.int", 2, 3)])
        sdpa(c, "mask cut from an odd one", dt, mask=dt, mask_sizes=[1, 1, 128, 129], mask_view=[("slice.Tensor", 3, 0, 128)])
        sdpa(c, "bool mask cut from an odd one", dt, mask="bool", mask_sizes=[1, 1, 128, 129], mask_view=[("slice.Tensor", 3, 0, 128)])
        sdpa(c, "one head", dt, h=1)
        sdpa(c, "odd", dt, q=197)
        sdpa(c, "cross", dt, q=64, k=100)
        sdpa(c, "cross causal", dt, q=64, k=96, causal=True)
        sdpa(c, "gqa", dt, h=8, hk=2, enable_gqa=True)
        sdpa(c, "gqa causal mask", dt, h=8, hk=2, mask=dt, enable_gqa=True)
        for d in (16, 20, 60, 72, 80, 96, 128, 160, 256):
            sdpa(c, f"head dim {d}", dt, d=d)
            sdpa(c, f"head dim {d} mask", dt, d=d, q=200, k=136, mask=dt)
        sdpa(c, "value dim 128", dt, dv=128)
        sdpa(c, "no gradient", dt, grad=False)
        sdpa(c, "one query", dt, q=1, k=128, grad=False)
        sdpa(c, "one key", dt, q=128, k=1)
        sdpa(c, "long", dt, q=1024, h=16)
        sdpa(c, "long cross", dt, q=200, k=1000, d=128)
        sdpa(c, "causal dropout", dt, causal=True, drop=0.1)
    for half in HALF:
        c.simple(f"softmax autocast {half}", "softmax.int", T(half, 4, 64, 128), -1, autocast=half)
        c.simple(f"log_softmax autocast {half}", "log_softmax.int", T(half, 4, 64, 128), -1, autocast=half)
        p = Program(f"sdpa autocast {half}", half)
        q = [p.new("float32", [2, 4, 128, 64]) for _ in range(3)]
        c.add(p.back(p("scaled_dot_product_attention", *q)))
