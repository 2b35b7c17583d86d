"""Layers with a state, whose nodes an ONNX exporter's optimizer joins with what stands around them. Each function gives a module and what it is called with."""
import torch
from torch import nn
from torch.nn import functional as F


class Listener(nn.Module):
    """Convolutions over time, turned for a recurrent layer of which both the output and the last state are used."""

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(1, width, 20, stride=10, padding=5)
        self.norm = nn.BatchNorm1d(width)
        self.rnn = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.first = nn.Linear(width, width)

    def forward(self, sound):
        x = F.relu(self.norm(self.conv(sound)))
        start = self.first(x.mean(2)).unsqueeze(0).expand(2, -1, -1).contiguous()
        x = x.permute(0, 2, 1)
        return self.rnn(x, start)


class Speller(nn.Module):
    """One word after the other: each step calls the same layers again. Both results of a step come from one matrix. `once`: what it heard is turned for all steps, not for each."""

    def __init__(self, words, width, once):
        super().__init__()
        self.once = once
        self.table = nn.Embedding(words, width)
        self.rnn = nn.GRU(2 * width, width, batch_first=True)
        self.out = nn.Linear(width, words)
        self.forth = self.back = nn.Linear(width, 16, bias=False)

    def forward(self, heard, state, target):
        words, losses, turned = [], 0, heard.transpose(1, 2)
        for i in range(4):
            weights = torch.softmax(torch.bmm(state.permute(1, 0, 2), turned if self.once else heard.transpose(1, 2)), dim=-1)
            seen = torch.cat((self.table(target[:, i : i + 1]), torch.bmm(weights, heard)), dim=2)
            output, state = self.rnn(seen, state)
            words.append(self.out(output))
            losses = losses + (self.forth(output) * 2 - self.back(output)).pow(2).mean()
        return torch.cat(words, dim=1), losses


class Dictation(nn.Module):
    def __init__(self, words=500, width=96, once=False):
        super().__init__()
        self.listener = Listener(width)
        self.speller = Speller(words, width, once)

    def forward(self, sound, target):
        heard, state = self.listener(sound)
        words, extra = self.speller(heard, state[-1:], target)
        return F.cross_entropy(words.flatten(0, 1), target.flatten()) + extra, words


def dictation(batch):
    return Dictation(), (torch.randn(batch, 1, 1600), torch.randint(0, 500, (batch, 4)))


def dictation_once(batch):
    return Dictation(once=True), (torch.randn(batch, 1, 1600), torch.randint(0, 500, (batch, 4)))
