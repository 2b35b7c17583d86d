"""Products, normalization, pooling, upsampling, recurrent layers."""
from program import FLOATS, HALF, MIXED, Program, T, dtype


def products(c, dt):
    for b, s, i, o in ((4, 256, 768, 3072), (1, 7, 64, 64), (2, 300, 30, 17)):
        tag = f"{b}x{s}x{i}x{o} {dt}"
        c.simple(f"linear {tag}", "linear", T(dt, b, s, i), T(dt, o, i), T(dt, o))
        c.simple(f"linear no bias {tag}", "linear", T(dt, b, s, i), T(dt, o, i))
        c.simple(f"linear matrix {tag}", "linear", T(dt, b * s, i), T(dt, o, i), T(dt, o), then="relu")
        c.simple(f"addmm {tag}", "addmm", T(dt, o), T(dt, b * s, i), T(dt, i, o), then="gelu")
    c.simple(f"linear transposed {dt}", "linear", T(dt, 4, 64, 256, strides=[64 * 256, 1, 64]), T(dt, 128, 256), T(dt, 128))
    c.simple(f"linear frozen input {dt}", "linear", T(dt, 4, 64, 256, grad=False), T(dt, 128, 256), T(dt, 128))
    c.simple(f"linear frozen weight {dt}", "linear", T(dt, 4, 64, 256), T(dt, 128, 256, grad=False), T(dt, 128, grad=False))
    c.simple(f"linear vector {dt}", "linear", T(dt, 256), T(dt, 128, 256), T(dt, 128))
    for name, sizes in (("matrix", (128, 256)), ("kernel", (64, 32, 3, 3))):
        for dim in (0, len(sizes) - 1):
            kept = [n if i == dim else 1 for i, n in enumerate(sizes)]
            c.simple(f"weight_norm {name} {dim} {dt}", "_weight_norm", T(dt, *sizes), T(dt, *kept), dim)
    c.simple(f"grouped_mm {dt}", "_grouped_mm", T(dt, 1000, 64), T(dt, 8, 64, 96), T("int32", 8, grad=False))
    c.simple(f"grouped_mm 5 {dt}", "_grouped_mm", T(dt, 1000, 64), T(dt, 5, 64, 96, strides=[64 * 96, 1, 64]), T("int32", 5, grad=False))
    c.simple(f"mm {dt}", "mm", T(dt, 64, 256), T(dt, 256, 30))
    c.simple(f"mm transposed {dt}", "mm", T(dt, 64, 256, strides=[1, 64]), T(dt, 256, 30, strides=[1, 256]))
    c.simple(f"bmm {dt}", "bmm", T(dt, 8, 64, 256), T(dt, 8, 256, 30))
    c.simple(f"baddbmm {dt}", "baddbmm", T(dt, 8, 64, 30), T(dt, 8, 64, 256), T(dt, 8, 256, 30))
    c.simple(f"baddbmm row {dt}", "baddbmm", T(dt, 1, 1, 30), T(dt, 8, 64, 256), T(dt, 8, 256, 30))
    c.simple(f"addbmm {dt}", "addbmm", T(dt, 64, 30), T(dt, 8, 64, 256), T(dt, 8, 256, 30))
    c.simple(f"addmv {dt}", "addmv", T(dt, 64), T(dt, 64, 256), T(dt, 256))
    c.simple(f"mv {dt}", "mv", T(dt, 64, 256), T(dt, 256))
    c.simple(f"dot {dt}", "dot", T(dt, 256), T(dt, 256))
    c.simple(f"outer {dt}", "outer", T(dt, 64), T(dt, 256))
    for name, a, b in (("4d", (2, 12, 128, 64), (2, 12, 64, 128)), ("3d by matrix", (2, 128, 64), (64, 30)), ("matrix by 3d", (30, 64), (2, 64, 128)),
                       ("broadcast", (2, 12, 128, 64), (64, 30)), ("batch broadcast", (2, 1, 128, 64), (12, 64, 30)), ("vector", (2, 128, 64), (64,)),
                       ("from vector", (64,), (2, 64, 30)), ("vectors", (64,), (64,)), ("vector matrix", (64,), (64, 30))):
        c.simple(f"matmul {name} {dt}", "matmul", T(dt, *a), T(dt, *b))
    for equation, *sizes in (("bhqd,bhkd->bhqk", (2, 4, 20, 16), (2, 4, 30, 16)), ("bsi,oi->bso", (2, 20, 16), (30, 16)), ("bi,bj->bij", (8, 20), (8, 30)),
                             ("bqhd,bkhd->bhqk", (2, 20, 4, 16), (2, 30, 4, 16)), ("ij,jk->ik", (20, 16), (16, 30)), ("bhwc,hkc->bhwk", (2, 6, 6, 16), (6, 5, 16))):
        c.simple(f"einsum {equation} {dt}", "einsum", equation, [T(dt, *s) for s in sizes])
    p = Program(f"attention by hand {dt}")
    q, k = (p("permute", p.new(dt, [2, 128, 12, 64]), o) for o in ([0, 2, 1, 3], [0, 2, 3, 1]))
    scores = p("softmax.int", p("div.Tensor", p("matmul", q, k), 8.0), -1)
    v = p("transpose.int", p.new(dt, [2, 128, 12, 64]), 1, 2)
    y = p("transpose.int", p("matmul", scores, v), 1, 2)
    c.add(p.back(p("reshape", y, [2, 128, 768])))
    c.simple(f"tensordot {dt}", "tensordot", T(dt, 8, 3, 5), T(dt, 3, 5, 7), [1, 2], [0, 1])
    if dt == "float32":
        c.simple("cdist", "cdist", T(dt, 4, 50, 16), T(dt, 4, 30, 16))
    c.simple(f"cosine_similarity {dt}", "cosine_similarity", T(dt, 64, 100), T(dt, 64, 100), 1)
    c.simple(f"pairwise_distance {dt}", "pairwise_distance", T(dt, 64, 100), T(dt, 64, 100))


def norms(c, dt):
    f32 = "float32"
    stats = lambda kind: (T(kind, 64, grad=False), T(kind, 64, grad=False))
    for training in (True, False):
        for name, sizes, strides in (("", (32, 64, 14, 14), None), (" channels_last", (32, 64, 14, 14), "cl"), (" 1d", (32, 64, 50), None), (" matrix", (320, 64), None), (" 3d", (4, 64, 4, 8, 8), None)):
            c.simple(f"batch_norm{name} {training} {dt}", "batch_norm", T(dt, *sizes, strides=strides), T(dt, 64), T(dt, 64), *stats(dt), training, 0.1, 1e-5, True)
        if dt != f32:
            c.simple(f"batch_norm mixed {training} {dt}", "batch_norm", T(dt, 32, 64, 14, 14), T(f32, 64), T(f32, 64), *stats(f32), training, 0.1, 1e-5, True)
    c.simple(f"batch_norm frozen {dt}", "batch_norm", T(dt, 32, 64, 14, 14), T(dt, 64, grad=False), T(dt, 64, grad=False), *stats(dt), False, 0.1, 1e-5, True)
    for rows, width in ((4096, 768), (100, 1600), (70000, 96)):
        c.simple(f"layer_norm {rows}x{width} {dt}", "layer_norm", T(dt, rows, width), [width], T(dt, width), T(dt, width), 1e-5)
    c.simple(f"layer_norm two dims {dt}", "layer_norm", T(dt, 8, 30, 40), [30, 40], T(dt, 30, 40), T(dt, 30, 40), 1e-5)
    c.simple(f"layer_norm plain {dt}", "layer_norm", T(dt, 4, 128, 768), [768])
    c.simple(f"layer_norm no bias {dt}", "layer_norm", T(dt, 4, 128, 768), [768], T(dt, 768))
    c.simple(f"layer_norm transposed {dt}", "layer_norm", T(dt, 4, 128, 768, strides=[128 * 768, 1, 128]), [768], T(dt, 768), T(dt, 768), 1e-5)
    c.simple(f"group_norm {dt}", "group_norm", T(dt, 4, 64, 32, 32), 32, T(dt, 64), T(dt, 64))
    c.simple(f"group_norm plain {dt}", "group_norm", T(dt, 4, 64, 32, 32), 32)
    c.simple(f"group_norm channels_last {dt}", "group_norm", T(dt, 4, 64, 32, 32, strides="cl"), 32, T(dt, 64), T(dt, 64))
    c.simple(f"rms_norm {dt}", "rms_norm", T(dt, 4, 128, 768), [768], T(dt, 768), 1e-6)
    c.simple(f"rms_norm plain {dt}", "rms_norm", T(dt, 4, 128, 768), [768])
    if dt != f32:
        c.simple(f"rms_norm mixed {dt}", "rms_norm", T(dt, 4, 128, 768), [768], T(f32, 768), 1e-6)
        c.simple(f"group_norm autocast {dt}", "group_norm", T(dt, 4, 64, 32, 32), 32, T(f32, 64), T(f32, 64), autocast=dt)
        c.simple(f"layer_norm autocast {dt}", "layer_norm", T(dt, 4, 128, 768), [768], T(f32, 768), T(f32, 768), autocast=dt)
        c.simple(f"linear autocast {dt}", "linear", T(f32, 4, 128, 96), T(f32, 30, 96), T(f32, 30), autocast=dt)
        c.simple(f"matmul autocast {dt}", "matmul", T(f32, 4, 128, 96), T(f32, 4, 96, 20), autocast=dt)
    c.simple(f"instance_norm {dt}", "instance_norm", T(dt, 8, 64, 20, 20), T(dt, 64), T(dt, 64), None, None, True, 0.1, 1e-5, True)
    c.simple(f"instance_norm plain {dt}", "instance_norm", T(dt, 8, 64, 20, 20), None, None, None, None, True, 0.1, 1e-5, True)


def pools(c, dt):
    x1, x2, x3 = T(dt, 8, 16, 112), T(dt, 8, 16, 56, 56), T(dt, 2, 8, 16, 28, 28)
    last = T(dt, 8, 16, 56, 56, strides="cl")
    for n, x in ((1, x1), (2, x2), (3, x3)):
        c.simple(f"max_pool{n}d {dt}", f"max_pool{n}d", x, [3] * n, [2] * n, [1] * n)
        c.simple(f"avg_pool{n}d {dt}", f"avg_pool{n}d", x, [2] * n, [2] * n)
        c.simple(f"adaptive_avg_pool{n}d 1 {dt}", f"adaptive_avg_pool{n}d", x, [1] * n, then="relu")
        c.simple(f"adaptive_avg_pool{n}d 7 {dt}", f"adaptive_avg_pool{n}d", x, [7] * n)
        c.simple(f"adaptive_max_pool{n}d {dt}", f"adaptive_max_pool{n}d", x, [7] * n, outputs=2)
    for name, op, *args in (("max_pool2d", "max_pool2d", [3, 3], [2, 2], [1, 1]), ("avg_pool2d", "avg_pool2d", [2, 2]), ("adaptive_avg_pool2d", "adaptive_avg_pool2d", [7, 7]),
                            ("adaptive_avg_pool2d 1", "adaptive_avg_pool2d", [1, 1]), ("upsample_nearest2d", "upsample_nearest2d.vec", None, [2.0, 2.0])):
        c.simple(f"{name} channels_last {dt}", op, last, *args)
    # Not dense, or dense in another order: what is read is copied, as soon as the output is there.
    for layout, strides in (("cut from channels_last", [150528, 1, 2688, 48]), ("cut", [53760, 3360, 60, 1]), ("turned", [50176, 3136, 1, 56])):
        x = T(dt, 8, 16, 56, 56, strides=strides)
        for name, op, *args in (("max_pool2d", "max_pool2d", [3, 3], [2, 2], [1, 1]), ("avg_pool2d", "avg_pool2d", [2, 2]), ("adaptive_avg_pool2d", "adaptive_avg_pool2d", [7, 7]),
                                ("adaptive_max_pool2d", "adaptive_max_pool2d", [7, 7]), ("upsample_nearest2d", "upsample_nearest2d.vec", None, [2.0, 2.0]),
                                *((f"upsample_{kind}", f"{kind[0] if kind[0] == '_' else ''}upsample_{kind.lstrip('_')}.vec", [33, 33], False, None) for kind in ("bilinear2d", "bicubic2d", "_bilinear2d_aa"))):
            c.simple(f"{name} {layout} {dt}", op, x, *args, outputs=1 + (name == "adaptive_max_pool2d"))
            if layout == "cut":
                p = Program(f"{name} gradient turned {dt}")
                y = p(op, p.new(dt, [8, 16, 56, 56]), *args, outputs=1 + (name == "adaptive_max_pool2d"))
                c.add(p.back(p("transpose.int", y[0] if isinstance(y, list) else y, 2, 3)))
    c.simple(f"max_pool2d ceil {dt}", "max_pool2d", x2, [3, 3], [2, 2], [0, 0], [1, 1], True)
    c.simple(f"max_pool2d indices {dt}", "max_pool2d_with_indices", x2, [3, 3], [2, 2], [1, 1], outputs=2)
    c.simple(f"adaptive_avg_pool2d one dim {dt}", "adaptive_avg_pool2d", x2, [1, 7])
    small = T(dt, 4, 16, 20, 20)
    for mode in ("bilinear2d", "bicubic2d", "_bilinear2d_aa", "_bicubic2d_aa"):
        op = f"_upsample{mode}" if mode[0] == "_" else f"upsample_{mode}"
        c.simple(f"{op} {dt}", f"{op}.vec", small, [33, 33], False, None)
    c.simple(f"upsample_bilinear2d scale {dt}", "upsample_bilinear2d.vec", small, None, True, [2.0, 2.0])
    for n, x in ((1, T(dt, 4, 16, 20)), (2, small), (3, T(dt, 2, 4, 8, 8, 8))):
        c.simple(f"upsample_nearest{n}d {dt}", f"upsample_nearest{n}d.vec", x, None, [2.0] * n)
        c.simple(f"_upsample_nearest_exact{n}d {dt}", f"_upsample_nearest_exact{n}d.vec", x, None, [2.0] * n)
    c.simple(f"upsample_linear1d {dt}", "upsample_linear1d.vec", T(dt, 4, 16, 20), [33], False, None)
    c.simple(f"upsample_trilinear3d {dt}", "upsample_trilinear3d.vec", T(dt, 2, 4, 8, 8, 8), [11, 11, 11], False, None)
    c.simple(f"pixel_shuffle {dt}", "pixel_shuffle", T(dt, 4, 16, 20, 20), 2)
    c.simple(f"pixel_unshuffle {dt}", "pixel_unshuffle", T(dt, 4, 16, 20, 20), 2)
    c.simple(f"max_unpool2d {dt}", "max_unpool2d", T(dt, 2, 4, 8, 8), T("int64", 2, 4, 8, 8), [16, 16])
    c.simple(f"native_channel_shuffle {dt}", "native_channel_shuffle", T(dt, 4, 16, 20, 20), 4)
    c.simple(f"channel_shuffle {dt}", "channel_shuffle", T(dt, 4, 16, 20, 20), 4)
    c.simple(f"im2col {dt}", "im2col", small, [3, 3], [1, 1], [1, 1], [1, 1])
    c.simple(f"col2im {dt}", "col2im", T(dt, 4, 144, 400), [20, 20], [3, 3], [1, 1], [1, 1], [1, 1])
    c.simple(f"grid_sampler_2d {dt}", "grid_sampler", small, T(dt, 4, 11, 12, 2), 0, 0, False)
    c.simple(f"grid_sampler_2d fixed grid {dt}", "grid_sampler", small, T(dt, 4, 11, 12, 2, grad=False), 0, 0, False)
    c.simple(f"grid_sampler_3d {dt}", "grid_sampler", T(dt, 2, 4, 8, 8, 8), T(dt, 2, 5, 6, 7, 3), 0, 0, False)
    c.simple(f"affine_grid {dt}", "affine_grid_generator", T(dt, 4, 2, 3), [4, 16, 20, 20], False)


def recurrent(c, kind, dt, layers=2, both=False, first=True, bias=True, train=True, proj=0, drop=0.0, name="", autocast=None, frozen=False):
    """A recurrent layer of [4, 50, 96] to 128 units."""
    gates = {"lstm": 4, "gru": 3}.get(kind, 1)
    p = Program(f"{kind}{name} {dt}", autocast)
    b, t, i, h = 4, 50, 96, 128
    d, out = 2 if both else 1, proj or h
    x = p.new(dt, [b, t, i] if first else [t, b, i], grad=train and not frozen)
    state = [p.new(dt, [layers * d, b, out], grad=False)] + ([p.new(dt, [layers * d, b, h], grad=False)] if kind == "lstm" else [])
    weights = []
    for layer in range(layers):
        for _ in range(d):
            width = i if layer == 0 else out * d
            sizes = [[gates * h, width], [gates * h, out]] + ([[gates * h]] * 2 if bias else []) + ([[proj, h]] if proj else [])
            weights += [p.new(dt, s, grad=train) for s in sizes]
    result = p(f"{kind}.input", x, state if kind == "lstm" else state[0], weights, bias, layers, drop, train, both, first, outputs=3 if kind == "lstm" else 2)
    if train:
        p.back(result[0])
    c.add(p)


def programs(c):
    for dt in MIXED:
        products(c, dt)
        norms(c, dt)
        pools(c, dt)
    for dt in FLOATS:
        recurrent(c, "lstm", dt)
        recurrent(c, "gru", dt)
        recurrent(c, "rnn_tanh", dt)
        recurrent(c, "rnn_relu", dt)
        recurrent(c, "lstm", dt, layers=1, first=False, name=" time first")
        recurrent(c, "lstm", dt, both=True, bias=False, name=" both directions no bias")
        recurrent(c, "gru", dt, both=True, first=False, name=" both directions")
        recurrent(c, "lstm", dt, train=False, name=" inference")
    recurrent(c, "lstm", "float32", proj=32, name=" projected")
    recurrent(c, "lstm", "float32", drop=0.1, name=" dropout")
    recurrent(c, "lstm", "float32", frozen=True, name=" input without gradient")
    for half in HALF:
        recurrent(c, "lstm", "float32", autocast=half, name=f" autocast {half}")
        recurrent(c, "gru", "float32", autocast=half, name=f" autocast {half}")
    for kind, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
        p = Program(f"{kind}_cell")
        x, h = p.new("float32", [32, 96]), p.new("float32", [32, 128])
        state = [h, p.new("float32", [32, 128])] if kind == "lstm" else h
        w = [p.new("float32", s) for s in ([gates * 128, 96], [gates * 128, 128], [gates * 128], [gates * 128])]
        out = p(f"{kind}_cell", x, state, *w, outputs=2 if kind == "lstm" else 1)
        c.add(p.back(out[0] if kind == "lstm" else out))
