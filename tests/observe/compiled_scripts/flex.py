"""FlexAttention with a mask of its own, which is a template of Triton."""
import common
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


class Flexible(common.Block):
    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(flex_attention(q, k, v, block_mask=mask).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(x)


block = Flexible(128, 4).cuda()
compiled = torch.compile(block)
mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device="cuda")
optimizer = torch.optim.AdamW(block.parameters(), lr=1e-3)
for _ in range(3):
    loss = compiled(torch.randn(2, 256, 128).cuda(), mask).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
