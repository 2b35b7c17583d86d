import torch

side = torch.cuda.Stream()
for _ in range(4):
    x = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x + 1
    x.record_stream(side)
    del x, y
