"""Runs in processes of their own that need not import PyTorch again."""
import json
import os


def row_of(make):
    """What make() returns in a fork of this process: a row, or {"failed": why}. Fork before anything has touched CUDA, so that
    no run sees another's cache, workspaces or cuDNN plans, and with one thread (a child has no thread pool)."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.dup2(2, 1)
        try:
            row = make()
        except Exception as e:
            row = dict(failed=f"{type(e).__name__}: {e}"[:500])
        with os.fdopen(write, "w") as f:
            json.dump(row, f)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        text = f.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else dict(failed="the process died")


def import_models(*more):
    """transformers imports its models lazily: bring in now what every child would import again."""
    import torch
    import torchvision  # noqa: F401
    import transformers

    for name in ("GPT2LMHeadModel", "LlamaForCausalLM", *more):
        getattr(transformers, name)
    torch.set_num_threads(1)
