"""A vision engineer: the usual loop around a model of torchvision, in mixed precision."""
import torch
import torchvision

BATCH = 64


def main():
    model = torchvision.models.resnet50().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler()
    criterion = torch.nn.CrossEntropyLoss()
    for step in range(4):
        images = torch.randn(BATCH, 3, 224, 224).cuda()
        labels = torch.randint(0, 1000, (BATCH,)).cuda()
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = criterion(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    main()
