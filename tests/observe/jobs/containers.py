"""Results travel in dataclasses, dictionaries and lists; auxiliary heads have losses of their own."""
import argparse
from dataclasses import dataclass, field

import torch
from torch import nn

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=16)
p.add_argument("--amp", action="store_true")
a = p.parse_args()


@dataclass
class Output:
    logits: torch.Tensor
    features: list = field(default_factory=list)
    extra: dict = field(default_factory=dict)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 7, 2, 3)
        self.stages = nn.ModuleDict({f"s{i}": nn.Sequential(nn.Conv2d(32 * 2**i, 64 * 2**i, 3, 2, 1), nn.GroupNorm(8, 64 * 2**i), nn.SiLU()) for i in range(3)})
        self.aux = nn.ModuleList(nn.Linear(64 * 2**i, 20) for i in range(3))
        self.head = nn.Linear(256, 20)

    def forward(self, batch):
        x, out = self.stem(batch["image"]), Output(None)
        for name, stage in self.stages.items():
            x = stage(x)
            out.features.append(x)
            out.extra[name] = x.mean((2, 3))
        out.logits = self.head(out.extra["s2"])
        return out


model = Net().cuda()
optimizer = torch.optim.AdamW([dict(params=model.stages.parameters(), lr=1e-3), dict(params=[*model.stem.parameters(), *model.aux.parameters(), *model.head.parameters()],
                                                                                     weight_decay=0.0)])
history = []
for step in range(4):
    batch = {"image": torch.randn(a.batch, 3, 96, 96), "label": torch.randint(0, 20, (a.batch,))}
    batch = {k: v.cuda() for k, v in batch.items()}
    with torch.autocast("cuda", torch.bfloat16, enabled=a.amp):
        out = model(batch)
        losses = {"main": nn.functional.cross_entropy(out.logits, batch["label"])}
        for i, (head, feature) in enumerate(zip(model.aux, out.extra.values())):
            losses[f"aux{i}"] = 0.3 * nn.functional.cross_entropy(head(feature), batch["label"])
        loss = sum(losses.values())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    history.append({k: v.item() for k, v in losses.items()})
