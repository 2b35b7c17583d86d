import sys

import torch

if "--gpu" in sys.argv:
    torch.zeros(10, device="cuda")
sys.exit(7 if "--fail" in sys.argv else 0)
