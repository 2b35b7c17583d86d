"""Models of programs by the paths of their files, for processes that make them again."""
import importlib.util
import os
import sys


def program_of(path):
    spec = importlib.util.spec_from_file_location(os.path.basename(path).removesuffix(".py"), path)
    program = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = program
    spec.loader.exec_module(program)
    return program


def parts_of(stem, batch):
    """The module, and what it is called with."""
    import torch

    program = program_of(stem + ".py")
    torch.manual_seed(0)
    return program.Model(), program.inputs(batch) if hasattr(program, "inputs") else (torch.randn(batch, 64, 128),)


def model_of(stem):
    return parts_of(stem, 1)[0]
