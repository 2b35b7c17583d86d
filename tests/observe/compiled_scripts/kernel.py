"""A Triton kernel of the script's own inside of what is compiled."""
import common
import torch
import triton
import triton.language as tl


@triton.jit
def doubled_kernel(source, target, count, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(target + at, 2 * tl.load(source + at, mask=at < count), mask=at < count)


def doubled(x):
    y = torch.empty_like(x)
    doubled_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), SIZE=256)
    return y


class Doubled(common.GPT):
    def forward(self, ids):
        return doubled(super().forward(ids).contiguous())


model = Doubled().cuda().eval()
compiled = torch.compile(model)
with torch.no_grad():
    for _ in range(3):
        scores = compiled(common.tokens()[0])
