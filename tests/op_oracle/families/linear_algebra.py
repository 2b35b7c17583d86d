"""Decompositions, solvers, determinants and norms of matrices (torch.linalg)."""
from program import T


def programs(c):
    for batch in ((), (8,)):
        of = f" {len(batch)}"
        square, tall, right = T("float32", *batch, 16, 16), T("float32", *batch, 32, 16), T("float32", *batch, 16, 4)
        for name in ("linalg_inv", "inverse", "linalg_det", "det", "logdet", "matrix_exp", "linalg_matrix_exp", "linalg_cholesky", "pinverse"):
            c.simple(name + of, name, square)
        c.simple("linalg_slogdet" + of, "linalg_slogdet", square, outputs=2, which=1)
        c.simple("linalg_inv_ex" + of, "linalg_inv_ex", square, outputs=2)
        c.simple("linalg_cholesky_ex" + of, "linalg_cholesky_ex", square, outputs=2)
        c.simple("linalg_solve" + of, "linalg_solve", square, right)
        c.simple("linalg_solve_ex" + of, "linalg_solve_ex", square, right, outputs=2)
        c.simple("linalg_solve_triangular" + of, "linalg_solve_triangular", square, right, upper=False)
        c.simple("linalg_qr" + of, "linalg_qr", tall, outputs=2)
        c.simple("linalg_eigh" + of, "linalg_eigh", square, outputs=2)
        c.simple("linalg_eigvalsh" + of, "linalg_eigvalsh", square)
        c.simple("linalg_svd" + of, "linalg_svd", tall, False, outputs=3, which=1)
        c.simple("linalg_svdvals" + of, "linalg_svdvals", tall)
        for n in (0, 1, 2, 3, 5):
            c.simple(f"matrix_power {n}" + of, "matrix_power", square, n)
        c.simple("linalg_matrix_power" + of, "linalg_matrix_power", square, 3)
        for order in ("fro", "nuc"):
            c.simple(f"linalg_matrix_norm {order}" + of, "linalg_matrix_norm.str_ord", tall, order)
        for order in (1, 2):
            c.simple(f"linalg_matrix_norm {order}" + of, "linalg_matrix_norm", tall, order)
        c.simple("linalg_norm fro" + of, "linalg_norm.ord_str", tall, "fro", [-2, -1], True)
    c.simple("linalg_multi_dot", "linalg_multi_dot", [T("float32", 64, 16), T("float32", 16, 100), T("float32", 100, 8)])
    c.simple("chain_matmul", "chain_matmul", [T("float32", 64, 16), T("float32", 16, 100)])
    c.simple("linalg_matmul", "linalg_matmul", T("float32", 8, 64, 16), T("float32", 16, 100))
