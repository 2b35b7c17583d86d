"""Losses."""
from program import FLOATS, HALF, T


def programs(c):
    for dt in FLOATS:
        x, labels = T(dt, 800, 1000), T("int64", 800)
        c.simple(f"cross_entropy {dt}", "cross_entropy_loss", x, labels)
        c.simple(f"cross_entropy none {dt}", "cross_entropy_loss", x, labels, None, 0)
        c.simple(f"cross_entropy sum {dt}", "cross_entropy_loss", x, labels, None, 2)
        c.simple(f"cross_entropy weight {dt}", "cross_entropy_loss", x, labels, T(dt, 1000, grad=False))
        c.simple(f"cross_entropy smoothing {dt}", "cross_entropy_loss", x, labels, None, 1, -100, 0.1)
        c.simple(f"cross_entropy smoothing weight {dt}", "cross_entropy_loss", x, labels, T(dt, 1000, grad=False), 1, -100, 0.1)
        c.simple(f"cross_entropy probabilities {dt}", "cross_entropy_loss", x, T(dt, 800, 1000, grad=False))
        c.simple(f"cross_entropy image {dt}", "cross_entropy_loss", T(dt, 4, 21, 64, 64), T("int64", 4, 64, 64))
        c.simple(f"cross_entropy image smoothing {dt}", "cross_entropy_loss", T(dt, 4, 21, 64, 64), T("int64", 4, 64, 64), None, 1, -100, 0.1)
        c.simple(f"cross_entropy 3d {dt}", "cross_entropy_loss", T(dt, 4, 21, 64), T("int64", 4, 64))
        c.simple(f"nll_loss {dt}", "nll_loss_nd", x, labels)
        c.simple(f"nll_loss2d {dt}", "nll_loss2d", T(dt, 4, 21, 64, 64), T("int64", 4, 64, 64))
        target = T(dt, 800, 1000, grad=False)
        for op in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "soft_margin_loss", "kl_div"):
            for name, reduction in (("", 1), (" none", 0), (" sum", 2)):
                more = (None, None, reduction) if op.startswith("binary") else (reduction,)
                c.simple(f"{op}{name} {dt}", op, x, target, *more)
            if op != "soft_margin_loss":
                c.simple(f"{op} both want {dt}", op, x, T(dt, 800, 1000))
        c.simple(f"bce_with_logits weights {dt}", "binary_cross_entropy_with_logits", x, target, T(dt, 800, 1000, grad=False), T(dt, 1000, grad=False))
        c.simple(f"binary_cross_entropy {dt}", "binary_cross_entropy", x, target)
        c.simple(f"poisson_nll_loss {dt}", "poisson_nll_loss", x, target, True, False, 1e-8, 1)
        c.simple(f"hinge_embedding_loss {dt}", "hinge_embedding_loss", x, target)
        c.simple(f"cosine_embedding_loss {dt}", "cosine_embedding_loss", x, T(dt, 800, 1000), T(dt, 800, grad=False))
        c.simple(f"margin_ranking_loss {dt}", "margin_ranking_loss", T(dt, 800), T(dt, 800), T(dt, 800, grad=False))
        c.simple(f"triplet_margin_loss {dt}", "triplet_margin_loss", x, T(dt, 800, 1000), T(dt, 800, 1000))
    for half in HALF:
        c.simple(f"cross_entropy autocast {half}", "cross_entropy_loss", T(half, 800, 1000), T("int64", 800), autocast=half)
        c.simple(f"cross_entropy smoothing autocast {half}", "cross_entropy_loss", T(half, 800, 1000), T("int64", 800), None, 1, -100, 0.1, autocast=half)
        for op in ("mse_loss", "l1_loss", "smooth_l1_loss"):
            c.simple(f"{op} autocast {half}", op, T(half, 800, 1000), T("float32", 800, 1000, grad=False), autocast=half)
        c.simple(f"bce_with_logits autocast {half}", "binary_cross_entropy_with_logits", T(half, 800, 1000), T("float32", 800, 1000, grad=False), autocast=half)
