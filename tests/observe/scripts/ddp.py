"""DistributedDataParallel, one process per GPU, as torchrun starts it."""
import os

import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
model = DistributedDataParallel(torchvision.models.resnet18().cuda(), device_ids=[local])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
x, y = torch.randn(8, 3, 224, 224), torch.randint(0, 1000, (8,))
for step in range(3):
    loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if rank == 0:
        print(f"step {step} of {dist.get_world_size()} ranks: {mean.item() / dist.get_world_size():.3f}")
dist.barrier()
stats = torch.cuda.memory_stats()
print(f"rank {rank} own counters:", *(stats[f"{c}_bytes.all.peak"] for c in ("requested", "allocated", "reserved")))
dist.destroy_process_group()
