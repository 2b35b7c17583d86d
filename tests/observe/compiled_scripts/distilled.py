"""Two compiled models: one is trained to say what the other says."""
import common
import torch
import torch.nn.functional as F

teacher, student = common.GPT(layers=3).cuda().eval().requires_grad_(False), common.GPT(layers=1).cuda()
ask, answer = torch.compile(teacher), torch.compile(student)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
for _ in range(3):
    ids, _ = common.tokens()
    with torch.no_grad():
        wanted = ask(ids).softmax(-1)
    loss = F.kl_div(answer(ids).log_softmax(-1), wanted, reduction="batchmean")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
