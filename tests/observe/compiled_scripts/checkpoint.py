"""torch.utils.checkpoint inside of what is compiled."""
import common
import torch
from torch.utils.checkpoint import checkpoint


class Checkpointed(common.GPT):
    def forward(self, ids, targets):
        x = self.words(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return torch.nn.functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


model = Checkpointed(layers=3).cuda()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    loss = compiled(*common.tokens())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
