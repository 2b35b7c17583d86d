#!/usr/bin/env python3
"""Do the settings that `memplan suggest --for FRAMEWORK` prints fit, when that framework runs them?

    python tests/first_contact/pasted.py --build build/release --torch PYTHON [--library FILE] [--only TEXT]

Each case asks for a setup that does not fit, pastes the settings into a script of the framework as they are printed, and runs the script with
`memplan observe` on the card that was asked for, with its memory. A case passes when the verdict is "fits" or "tight"; how far the estimate was off is
printed. Needs the packages of requirements-frameworks.txt beside those of requirements-torch.txt (the Python of --torch). The last line is "N passed, N failed".
"""
import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))
import build_tree
import run

STEPS = 3
QWEN = ("checkpoint", "--seq", "1024", "--no-labels")
RESNET = ("torchvision:resnet50",)
VIT = ("timm:vit_base_patch16_224",)
ONLY = lambda *knobs: ("--keep", "all", *(w for k in knobs for w in ("--allow", k)))

# framework: (what is asked); the card and the batch are such that it does not fit as it is.
CASES = {
    "hf": [
        ("checkpoint", "--seq", "2048", "--gpu", "24GB", "--batch", "8", "--amp", "bf16"),
        ("checkpoint", "--seq", "1024", "--gpu", "a10", "--batch", "8", *ONLY("checkpoint", "precision")),
        ("checkpoint", "--seq", "2048", "--gpu", "t4", "--batch", "4", "--amp", "fp16", "--clip", *ONLY("batch", "checkpoint")),
        ("checkpoint", "--seq", "2048", "--gpu", "24GB", "--batch", "4", "--accumulate", "2", "--amp", "bf16", "--lora", "r=16,targets=q_proj|k_proj|v_proj|o_proj",
         "--clip"),
        ("checkpoint", "--seq", "1024", "--gpu", "rtx3060-12gb", "--batch", "8", "--amp", "bf16", *ONLY("optimizer", "batch")),
        ("checkpoint", "--seq", "1024", "--gpu", "rtx4090", "--batch", "16", "--gpus", "8", "--fsdp", "--amp", "bf16", *ONLY("batch", "checkpoint")),
    ],
    "accelerate": [
        (*QWEN, "--gpu", "24GB", "--batch", "16", "--amp", "bf16"),
        (*QWEN, "--gpu", "a10", "--batch", "8", *ONLY("checkpoint", "precision")),
        (*RESNET, "--gpu", "rtx3060-12gb", "--batch", "384", "--amp", "fp16", "--optimizer", "sgd-momentum", *ONLY("batch", "checkpoint")),
        (*VIT, "--gpu", "t4", "--batch", "256", "--amp", "fp16", "--clip", *ONLY("batch", "checkpoint")),
        (*QWEN, "--gpu", "rtx4090", "--batch", "16", "--gpus", "8", "--fsdp", "--fsdp-dtype", "bf16", *ONLY("batch", "checkpoint")),
        (*QWEN, "--gpu", "rtx3060-12gb", "--batch", "4", *ONLY("offload", "batch")),
    ],
    "deepspeed": [
        (*QWEN, "--gpu", "24GB", "--batch", "16", "--amp", "bf16"),
        (*QWEN, "--gpu", "24GB", "--batch", "8", *ONLY("batch")),
        (*VIT, "--gpu", "t4", "--batch", "256", "--clip", *ONLY("batch")),
        (*QWEN, "--gpu", "24GB", "--batch", "8", "--gpus", "8", "--zero", "1", "--precision", "bf16", *ONLY("checkpoint")),
        (*QWEN, "--gpu", "24GB", "--batch", "8", "--gpus", "8", "--zero", "2", "--precision", "bf16", *ONLY("checkpoint")),
        (*QWEN, "--gpu", "24GB", "--batch", "7", "--gpus", "8", "--zero", "3", "--precision", "bf16", *ONLY("checkpoint")),
    ],
    "lightning": [
        (*QWEN, "--gpu", "24GB", "--batch", "16", "--amp", "bf16"),
        (*QWEN, "--gpu", "a10", "--batch", "6", *ONLY("checkpoint", "precision")),
        (*RESNET, "--gpu", "rtx3060-12gb", "--batch", "384", "--amp", "fp16", "--optimizer", "sgd-momentum", *ONLY("batch", "checkpoint")),
        (*VIT, "--gpu", "t4", "--batch", "256", "--clip", *ONLY("batch", "precision")),
        (*QWEN, "--gpu", "24GB", "--batch", "16", "--gpus", "8", *ONLY("batch", "checkpoint")),
        (*QWEN, "--gpu", "24GB", "--batch", "32", *ONLY("weights", "batch")),
    ],
}

MODELS = {
    "checkpoint": """
import transformers
import transformers.initialization

config = transformers.AutoConfig.from_pretrained("checkpoint")
with transformers.initialization.no_init_weights():  # from_pretrained, had it weights
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
model.tie_weights()


def sample():
    ids = torch.zeros({seq}, dtype=torch.long)
    return ids, ids


def loss_fn(output, target):
    return model_loss(logits=output.logits, labels=target, vocab_size=config.vocab_size)


model_loss = transformers.loss.loss_utils.ForCausalLMLoss
""",
    "torchvision:resnet50": """
import torchvision

model = torchvision.models.resnet50()
sample = lambda: (torch.zeros(3, 224, 224), torch.zeros((), dtype=torch.long))
loss_fn = torch.nn.functional.cross_entropy
""",
    "timm:vit_base_patch16_224": """
import timm

model = timm.create_model("vit_base_patch16_224")
sample = lambda: (torch.zeros(3, 224, 224), torch.zeros((), dtype=torch.long))
loss_fn = torch.nn.functional.cross_entropy
""",
}

BEGIN = """import torch
{model}
model.train()
lr, steps, samples = 1e-4, {steps}, {samples}


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return steps * samples * {ranks}

    def __getitem__(self, i):
        return sample()


dataset = Samples()
"""

# The Trainer's own arguments stand beside those that are pasted.
HF = """
from transformers import Trainer, TrainingArguments


class AutoModelForCausalLM:
    @staticmethod
    def from_pretrained(name, dtype):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)


class Texts(Samples):
    def __getitem__(self, i):
        ids, labels = sample()
        return dict(input_ids=ids, labels=labels)


name = "checkpoint"
{settings}
arguments.learning_rate = lr
Trainer(model, arguments, train_dataset=Texts()).train()
"""

ACCELERATE = """
from accelerate import Accelerator, DeepSpeedPlugin, FullyShardedDataParallelPlugin
from accelerate.utils import GradientAccumulationPlugin
from torch.utils.data import DataLoader

if hasattr(model, "config"):
    model.config.use_cache = False
{settings}
"""

DEEPSPEED = """
import os

for key, value in dict(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="29511").items():
    os.environ.setdefault(key, value)  # the launcher sets them
import deepspeed

if hasattr(model, "config"):
    model.config.use_cache = False
# Stage 3 formats its arguments for a log that nobody sees, and with them every weight.
torch.nn.Parameter.__repr__ = lambda self: f"Parameter{{tuple(self.shape)}}"
{settings}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch, target in torch.utils.data.DataLoader(dataset, batch_size=engine.train_micro_batch_size_per_gpu()):
    loss = loss_fn(engine(batch.to(engine.device)), target.to(engine.device))
    engine.backward(loss)
    engine.step()
"""

LIGHTNING = """
import lightning

if hasattr(model, "config"):
    model.config.use_cache = False
{settings}


class Training(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model

    def training_step(self, batch, index):
        x, y = batch
        return loss_fn(self.model(x), y)

    def configure_optimizers(self):
        return optimizer


trainer.fit(Training(), torch.utils.data.DataLoader(dataset, batch_size={batch}))
"""


def hf(text):
    own = 'arguments = TrainingArguments(\n    "out", max_steps=steps, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,\n'
    return text.replace("TrainingArguments(\n", own)


def lightning(text):
    own = "trainer = lightning.Trainer(\n    max_steps=steps, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,\n"
    return text.replace("trainer = lightning.Trainer(\n", own)


def deepspeed(text):
    """The file goes where the user puts it, and the lines after it into the script."""
    file, _, lines = text.partition("# in train.py, before deepspeed.initialize:\n")
    with open("ds_config.json", "w") as f:
        f.write("\n".join(line for line in file.splitlines() if not line.startswith("#")))
    return lines


FRAMEWORKS = {"hf": (HF, hf), "accelerate": (ACCELERATE, str), "deepspeed": (DEEPSPEED, deepspeed), "lightning": (LIGHTNING, lightning)}


def memplan(settings, *words):
    done = subprocess.run([settings.program, *map(str, words)], capture_output=True, text=True, errors="replace", timeout=900)
    assert done.returncode in (0, 1) and done.stdout, f"memplan {shlex.join(map(str, words))} ended with {done.returncode}:\n{done.stderr[-3000:]}{done.stdout[-500:]}"
    return json.loads(done.stdout)


def value(words, flag, default=None):
    return words[words.index(flag) + 1] if flag in words else default


def paste(framework, question, answer):
    """Writes train.py; the variables that stand before the process."""
    first = answer["fitting"][0]
    samples = first["micro_batch"] * first["accumulate"]
    template, adapt = FRAMEWORKS[framework]
    lines = answer["settings"]["text"].splitlines(keepends=True)
    variables = dict(re.match(r"export (\w+)=(\S+)", line).groups() for line in lines if line.startswith("export "))
    text = adapt("".join(line for line in lines if not line.startswith("export ")))
    model = MODELS[question[0]].format(seq=value(question, "--seq"))
    with open("train.py", "w") as f:
        f.write(BEGIN.format(model=model, steps=STEPS, samples=samples, ranks=value(question, "--gpus", 1)) + template.format(settings=text, batch=first["micro_batch"]))
    return variables


def case(settings, framework, question):
    """What is wrong, or None."""
    answer = memplan(settings, "suggest", *question, "--for", framework, "--format", "json")
    assert answer["present"]["verdict"] == "no-fit", "it fits as it is, so that no setting is tried"
    assert answer["fitting"], "nothing fits"
    first = answer["fitting"][0]
    for variable, text in paste(framework, question, answer).items():
        os.environ[variable] = text
    gpus = int(value(question, "--gpus", 1))
    ranks = ("--world", gpus, "--ranks", "0") if gpus > 1 else ()
    observed = memplan(settings, "observe", "--gpu", value(question, "--gpu"), *ranks, "--format", "json", "--", settings.python, "train.py")
    flags = shlex.join(first["flags"]) if isinstance(first["flags"], list) else first["flags"]
    off = first["peak_bytes"] / observed["peak_bytes"] - 1
    print(f"{framework:10} {' '.join(question)}: {flags}: {observed['verdict']}, observed {observed['peak_bytes']:,}, estimated {first['peak_bytes']:,} ({off:+.2%})", flush=True)
    return None if observed["verdict"] in ("fits", "tight") else f"verdict {observed['verdict']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "release"))
    parser.add_argument("--torch", metavar="PYTHON", help="default: the build's")
    parser.add_argument("--library", help="the emulated GPU (default: the build's)")
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", metavar="FOLDER", help="leave the scripts there")
    a = parser.parse_args()
    python, library = build_tree.emulated(a.build) or (None, None)
    a.python, a.program = os.path.abspath(a.torch or python), os.path.abspath(os.path.join(a.build, "memplan"))
    library, keep = os.path.abspath(a.library or library), a.keep and os.path.abspath(a.keep)
    os.environ.update(MEMPLAN_TORCH_PYTHON=a.python, MEMPLAN_EMULATED_GPU=library)
    clean = dict(os.environ)
    passed = failed = 0
    for framework, questions in CASES.items():
        for number, question in enumerate(questions):
            if not all(word in f"{framework} {' '.join(question)} #{number}" for word in a.only.split("+")):
                continue
            with tempfile.TemporaryDirectory() as scratch:
                folder = os.path.join(keep, f"{framework}-{number}") if keep else scratch
                os.makedirs(os.path.join(folder, "checkpoint"), exist_ok=True)
                os.chdir(folder)
                with open("checkpoint/config.json", "w") as f:
                    json.dump(run.CHECKPOINT, f)
                try:
                    wrong = case(a, framework, question)
                except Exception:
                    wrong = traceback.format_exc()
                os.chdir("/")
                os.environ.clear()
                os.environ.update(clean)
            if wrong:
                print(f"FAILED {framework} {' '.join(question)}: {wrong}", flush=True)
            failed += wrong is not None
            passed += wrong is None
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
