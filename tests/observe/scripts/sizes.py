"""Ops whose results are as large as values on the device say, and the same ones told how large."""
import torch
from torch.nn import functional as F

x = torch.arange(8, device="cuda")
OPS = {
    "nonzero": lambda: torch.nonzero(x),
    "where": lambda: torch.where(x > 2)[0],
    "mask": lambda: x[x > 2],
    "masked_select": lambda: torch.masked_select(x, x > 2),
    "argwhere": lambda: torch.argwhere(x),
    "unique": lambda: torch.unique(x),
    "unique_consecutive": lambda: torch.unique_consecutive(x),
    "unique_dim": lambda: torch.unique(x.view(4, 2), dim=0),
    "bincount": lambda: torch.bincount(x),
    "one_hot": lambda: F.one_hot(x),
    "repeat_interleave": lambda: torch.repeat_interleave(x, x),
    "told_one_hot": lambda: F.one_hot(x, num_classes=5),
    "told_repeat_interleave": lambda: torch.repeat_interleave(x, x, output_size=20),
    "largest": lambda: torch.tensor(x.max().item()),
}
for name, op in OPS.items():
    try:
        print(f"{name}: {list(op().shape)}")
    except RuntimeError as e:
        words = str(e).splitlines()[0]
        print(f"{name}: {words[words.find('emulated GPU') :]}")
