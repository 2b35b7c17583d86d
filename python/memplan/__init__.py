"""memplan: how many bytes a PyTorch step needs on a GPU, without a GPU.

    import memplan
    report = memplan.estimate("model.pt2", gpu="80GB", batch=8, precision="amp-bf16")
    print(report.verdict, report.peak)

docs/python.md says what estimate() takes.
"""
from ._api import assert_fits, estimate
from ._errors import DoesNotFit, Error, InputError, UsageError
from ._record import export
from ._report import Alternative, Counters, Part, Report, Step, Tensor, Unmodelled, Warning

__all__ = ["Alternative", "Counters", "DoesNotFit", "Error", "InputError", "Part", "Report", "Step", "Tensor", "Unmodelled", "UsageError",
           "Warning", "assert_fits", "estimate", "export"]
