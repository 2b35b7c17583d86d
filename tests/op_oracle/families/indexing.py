"""Embedding, gathering, scattering, sorting."""
from program import MIXED, Program, T


def programs(c):
    index = lambda *sizes: T("int64", *sizes)
    for dt in MIXED:
        for n in (100, 3073, 4096, 16384, 100000):
            c.simple(f"embedding {n} {dt}", "embedding", T(dt, 5000, 64), index(n))
        c.simple(f"embedding batch {dt}", "embedding", T(dt, 5000, 64), index(4, 128), 0)
        for mode in (0, 1):
            c.simple(f"embedding_bag {mode} {dt}", "embedding_bag", T(dt, 5000, 64), index(400), index(50), False, mode, outputs=4)
        c.simple(f"index_select {dt}", "index_select", T(dt, 169, 30), 0, index(40))
        c.simple(f"index_select dim 1 {dt}", "index_select", T(dt, 169, 30), 1, index(40))
        c.simple(f"gather {dt}", "gather", T(dt, 169, 30), 1, index(169, 4))
        c.simple(f"take_along_dim {dt}", "take_along_dim", T(dt, 169, 30), index(169, 4), 1)
        c.simple(f"take {dt}", "take", T(dt, 169, 30), index(40))
        for n in (100, 2401, 10000):
            c.simple(f"index {n} {dt}", "index.Tensor", T(dt, 169, 3), [index(n)])
        c.simple(f"index two {dt}", "index.Tensor", T(dt, 169, 30), [index(40), index(40)])
        c.simple(f"index second {dt}", "index.Tensor", T(dt, 169, 30, 8), [None, index(40)])
        c.simple(f"index grid {dt}", "index.Tensor", T(dt, 4, 30, 8), [index(4, 1), index(1, 30)])
        c.simple(f"scatter src {dt}", "scatter.src", T(dt, 169, 30), 1, index(169, 4), T(dt, 169, 4))
        c.simple(f"scatter value {dt}", "scatter.value", T(dt, 169, 30), 1, index(169, 4), 1.0)
        c.simple(f"scatter_add {dt}", "scatter_add", T(dt, 169, 30), 1, index(169, 4), T(dt, 169, 4))
        c.simple(f"scatter_add_ {dt}", "scatter_add_", T(dt, 169, 30), 1, index(169, 4), T(dt, 169, 4), before="mul.Tensor")
        c.simple(f"scatter_ value {dt}", "scatter_.value", T(dt, 169, 30), 1, index(169, 4), 1.0, before="mul.Tensor")
        c.simple(f"scatter_reduce sum {dt}", "scatter_reduce.two", T(dt, 169, 30), 1, index(169, 4), T(dt, 169, 4), "sum")
        c.simple(f"index_add {dt}", "index_add", T(dt, 169, 30), 0, index(40), T(dt, 40, 30))
        c.simple(f"index_add_ {dt}", "index_add_", T(dt, 169, 30), 0, index(40), T(dt, 40, 30), before="mul.Tensor")
        c.simple(f"index_copy {dt}", "index_copy", T(dt, 169, 30), 0, index(40), T(dt, 40, 30))
        c.simple(f"index_fill {dt}", "index_fill.int_Scalar", T(dt, 169, 30), 0, index(40), 0.0)
        c.simple(f"index_put {dt}", "index_put", T(dt, 169, 30), [index(40)], T(dt, 40, 30))
        c.simple(f"index_put accumulate {dt}", "index_put", T(dt, 169, 30), [index(40)], T(dt, 40, 30), True)
        c.simple(f"index_put_ {dt}", "index_put_", T(dt, 169, 30), [index(40)], T(dt, 40, 30), before="mul.Tensor")
        c.simple(f"masked_scatter {dt}", "masked_scatter", T(dt, 169, 30), T("bool", 169, 30), T(dt, 169, 30))
        c.simple(f"slice_scatter {dt}", "slice_scatter", T(dt, 169, 30), T(dt, 20, 30), 0, 10, 30)
        c.simple(f"select_scatter {dt}", "select_scatter", T(dt, 169, 30), T(dt, 30), 0, 3)
        c.simple(f"diagonal_scatter {dt}", "diagonal_scatter", T(dt, 40, 30), T(dt, 30))
        p = Program(f"copy_ into slice {dt}")
        x = p("mul.Tensor", p.new(dt, [64, 100]), 2.0)
        p("copy_", p("slice.Tensor", x, 0, 0, 10), p.new(dt, [10, 100]))
        c.add(p.back(p("relu", x)))
        for rows, width, k in ((1024, 8, 2), (16, 1000, 10), (2, 50000, 50), (1, 300000, 5)):
            c.simple(f"topk {rows}x{width} {dt}", "topk", T(dt, rows, width), k, -1, outputs=2)
        for rows, width in ((1024, 8), (16, 1000), (4, 3000), (2, 50000), (1, 300000)):
            c.simple(f"sort {rows}x{width} {dt}", "sort", T(dt, rows, width), -1, outputs=2)
        c.simple(f"sort dim 0 {dt}", "sort", T(dt, 100, 64), 0, outputs=2)
        c.simple(f"sort stable {dt}", "sort.stable", T(dt, 16, 1000), stable=True, dim=-1, descending=True, outputs=2)
        c.simple(f"argsort {dt}", "argsort", T(dt, 16, 1000, grad=False), -1)
        c.simple(f"kthvalue {dt}", "kthvalue", T(dt, 16, 1000), 3, outputs=2)
        c.simple(f"multinomial {dt}", "multinomial", T(dt, 16, 1000, grad=False), 1)
        c.simple(f"multinomial 5 {dt}", "multinomial", T(dt, 16, 1000, grad=False), 5, False)
    for n in (100, 5000, 100000):
        c.simple(f"sort int64 {n}", "sort", index(n), 0, outputs=2)
    c.simple("one_hot", "one_hot", index(8, 40), 100)
    c.simple("bucketize", "bucketize.Tensor", T("float32", 8, 40, grad=False), T("float32", 11, grad=False))
    c.simple("searchsorted", "searchsorted.Tensor", T("float32", 8, 40, grad=False), T("float32", 8, 11, grad=False))
    c.simple("arange", "add.Tensor", index(8, 40), 1)
    c.simple("where indices", "isin.Tensor_Tensor", index(400), index(10))
    c.simple("randperm", "randint_like", index(400), 10)
