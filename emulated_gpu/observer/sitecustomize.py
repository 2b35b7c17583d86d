"""Python runs this at its start because `memplan observe` puts its folder on PYTHONPATH: it hands over to the sitecustomize
that would have run otherwise, and waits for PyTorch to be imported. A script that never imports it notices nothing."""
import importlib.machinery
import importlib.util
import os
import sys


def _the_other():
    """Runs the sitecustomize that this one stands in front of, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = [p for p in sys.path if os.path.abspath(p or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec and spec.loader:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _start():
    if os.environ.get("MEMPLAN_OBSERVE_TO"):
        from memplan_observer import hooks

        hooks.install()


_start()
_the_other()
