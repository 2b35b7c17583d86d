"""One rank of a pipeline by torch.distributed.pipelining, for parallel_program.py: stages cut by hand, PyTorch's own schedules.

The other ranks do not exist: the process group is PyTorch's fake one, whose send and receive do nothing. Buffers to
receive, what each stage keeps and the order of micro-batches are those of torch/distributed/pipelining.
"""
import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules

import models

SCHEDULES = {"gpipe": schedules.ScheduleGPipe, "1f1b": schedules.Schedule1F1B, "interleaved": schedules.ScheduleInterleaved1F1B,
             "zero-bubble": schedules.ScheduleInterleavedZeroBubble, "zbv": schedules.ScheduleZBVZeroBubble}


def schedule_of(text):
    """"interleaved:2" -> the class and the number of stages per rank."""
    name, _, chunks = text.partition(":")
    return SCHEDULES[name], int(chunks) if chunks else 2 if name in ("interleaved", "zbv") else 1


def stages_of_rank(c, chunks):
    """Numbers of this rank's stages: every pp-th; in a V there and back."""
    if c["pp_schedule"] == "zbv":
        return [c["rank"], 2 * c["pp"] - 1 - c["rank"]]
    return [c["rank"] + i * c["pp"] for i in range(chunks)]


class Gpt2Middle(nn.Module):
    """GPT2Model.forward between its embeddings and its last norm; without padding there is no mask."""

    def __init__(self, blocks):
        super().__init__()
        self.h = blocks

    def forward(self, hidden_states):
        for block in self.h:
            hidden_states = block(hidden_states, None, None, None, encoder_attention_mask=None, use_cache=False)
        return hidden_states


class Gpt2Last(Gpt2Middle):
    def __init__(self, blocks, ln_f, lm_head):
        super().__init__(blocks)
        self.ln_f, self.lm_head = ln_f, lm_head

    def forward(self, hidden_states):
        hidden_states = self.ln_f(super().forward(hidden_states))
        return self.lm_head(hidden_states)


class Gpt2First(nn.Module):
    def __init__(self, transformer, blocks):
        super().__init__()
        self.transformer = transformer
        transformer.h, transformer.ln_f = blocks, nn.Identity()

    def forward(self, input_ids):
        return self.transformer(input_ids, use_cache=False).last_hidden_state


class LlamaPart(nn.Module):
    """LlamaModel with some of its layers: every stage makes positions, mask and rotary embeddings itself."""

    def __init__(self, model, blocks, first, last):
        super().__init__()
        self.first, self.last = first, last
        model.model.layers = blocks
        model.config.num_hidden_layers = len(blocks)
        if not last:
            model.model.norm = nn.Identity()
            model.lm_head = None
        if not first:
            model.model.embed_tokens = None
        self.model = model if last else model.model

    def forward(self, x):
        out = self.model(**{"input_ids" if self.first else "inputs_embeds": x}, use_cache=False)
        return out.logits if self.last else out.last_hidden_state


def blocks_per_stage(blocks, stages, split):
    if split:
        return [int(n) for n in split.split(",")]
    return [blocks // stages + (i < blocks % stages) for i in range(stages)]


def stage_module(name, stage, counts):
    """The part of a model of the zoo that is stage `stage`, and its width."""
    model = models.build(name, fill=False).model
    model.train()
    begin, end = sum(counts[:stage]), sum(counts[: stage + 1])
    first, last = stage == 0, stage == len(counts) - 1
    if name.startswith("gpt2"):
        t = model.transformer
        blocks = nn.ModuleList(t.h[begin:end])
        width = model.config.n_embd
        return (Gpt2First(t, blocks) if first else Gpt2Last(blocks, t.ln_f, model.lm_head) if last else Gpt2Middle(blocks)), width
    return LlamaPart(model, nn.ModuleList(model.model.layers[begin:end]), first, last), model.config.hidden_size


def number_of_blocks(name):
    config = models.build(name, fill=False).model.config
    return config.num_hidden_layers, config.vocab_size


class Pipeline:
    """Stages on the device and a schedule over them."""

    def __init__(self, c, loss_fn, wrap=lambda module: module, group=None, convert=lambda module: module, dtype=torch.float32):
        cls, chunks = schedule_of(c["pp_schedule"])
        blocks, vocabulary = number_of_blocks(c["model"])
        counts = blocks_per_stage(blocks, c["pp"] * chunks, c["pp_split"])
        numbers = stages_of_rank(c, chunks)
        self.first, self.last = 0 in numbers, len(counts) - 1 in numbers
        self.modules, stages = [], []
        for i in numbers:
            module, width = stage_module(c["model"], i, counts)
            self.modules.append(convert(module))
        for i, module in enumerate(self.modules):
            self.modules[i] = wrap(module)
        for i, module in zip(numbers, self.modules):
            hidden = torch.empty(c["batch"], c["seq"], width, dtype=dtype, device="meta")
            ids = torch.empty(c["batch"], c["seq"], dtype=torch.long, device="meta")
            logits = torch.empty(c["batch"], c["seq"], vocabulary, dtype=dtype, device="meta")
            # Shapes are given, so that no stage has to ask the one before.
            stages.append(PipelineStage(module, i, len(counts), torch.device("cuda", 0), input_args=ids if i == 0 else hidden,
                                        output_args=logits if i == len(counts) - 1 else hidden, group=group))
        one = issubclass(cls, schedules.PipelineScheduleSingle)
        self.schedule = cls(stages[0] if one else stages, c["micro_batches"], loss_fn=loss_fn)

    def parameters(self):
        return [p for m in self.modules for p in m.parameters()]

    def step(self, x, y, losses):
        args = (x,) if self.first else ()
        kwargs = dict(target=y, losses=losses) if self.last else {}
        self.schedule.step(*args, **kwargs, return_outputs=False)
