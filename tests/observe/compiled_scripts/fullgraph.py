"""One graph or an error, and a loss function that is compiled by itself."""
import common
import torch

model = common.GPT().cuda()
compiled = torch.compile(model, fullgraph=True)


@torch.compile(fullgraph=True)
def loss_of(scores, targets):
    return torch.nn.functional.cross_entropy(scores.float().flatten(0, 1), targets.flatten(), label_smoothing=0.1)


optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    ids, targets = common.tokens()
    loss = loss_of(compiled(ids), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
