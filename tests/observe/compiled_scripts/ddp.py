"""DistributedDataParallel of a compiled module; PyTorch cuts the graph at its buckets."""
import os

import common
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
dist.init_process_group("nccl")
model = torch.compile(DistributedDataParallel(common.GPT(layers=3).cuda(), bucket_cap_mb=1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(*common.tokens())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
