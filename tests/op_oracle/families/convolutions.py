"""Convolutions: layouts, gradients wanted or not, depthwise kernels, transposed ones. Workspaces are cuDNN's own."""
from program import MIXED, Program, T


def programs(c):
    for dt in MIXED:
        x = T(dt, 32, 64, 56, 56)
        c.simple(f"conv2d 3x3 {dt}", "conv2d", x, T(dt, 64, 64, 3, 3), None, [1, 1], [1, 1])
        c.simple(f"conv2d 3x3 stride {dt}", "conv2d", x, T(dt, 128, 64, 3, 3), None, [2, 2], [1, 1])
        c.simple(f"conv2d 1x1 {dt}", "conv2d", x, T(dt, 256, 64, 1, 1), None)
        c.simple(f"conv2d 7x7 {dt}", "conv2d", T(dt, 32, 3, 224, 224, grad=False), T(dt, 64, 3, 7, 7), None, [2, 2], [3, 3], then="relu_")
        c.simple(f"conv2d frozen {dt}", "conv2d", x, T(dt, 64, 64, 3, 3, grad=False), None, [1, 1], [1, 1])
        c.simple(f"conv2d channels_last {dt}", "conv2d", T(dt, 32, 64, 56, 56, strides="cl"), T(dt, 64, 64, 3, 3, strides="cl"), None, [1, 1], [1, 1])
        c.simple(f"conv2d patch bias {dt}", "conv2d", T(dt, 32, 3, 224, 224, grad=False), T(dt, 768, 3, 16, 16), T(dt, 768), [16, 16])
        for size, width in ((3, 64), (7, 96), (5, 40)):
            c.simple(f"conv2d depthwise {size} {dt}", "conv2d", T(dt, 8, width, 28, 28), T(dt, width, 1, size, size), T(dt, width), [1, 1], [size // 2] * 2, [1, 1], width)
        c.simple(f"conv2d depthwise stride {dt}", "conv2d", T(dt, 8, 96, 56, 56), T(dt, 96, 1, 3, 3), None, [2, 2], [1, 1], [1, 1], 96)
