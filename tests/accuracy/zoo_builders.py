"""Every model of the zoo as a function of this module, for programs that `memplan explain --program` prints:

    python program.py zoo_builders:gpt2
"""
import models


def __getattr__(name):
    if name.startswith("__") or name not in models.REGISTRY:
        raise AttributeError(name)
    return lambda: models.build(name, fill=False)
