"""Graph breaks: a print, a call that Dynamo does not follow, a value that is read."""
import common
import torch


class Watched(common.GPT):
    def forward(self, ids, targets):
        x = self.words(ids)
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i == 0:
                print("after the first block:", tuple(x.shape))
                torch._dynamo.graph_break()
        if x.abs().mean().item() > 1e6:
            x = x.clamp(-1e6, 1e6)
        return torch.nn.functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


model = Watched().cuda()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    loss = compiled(*common.tokens())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
