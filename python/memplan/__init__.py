"""memplan: how many bytes a PyTorch step needs on a GPU, without a GPU.

    import memplan
    report = memplan.estimate("model.pt2", gpu="80GB", batch=8, precision="amp-bf16")
    print(report.verdict, report.peak)

docs/python.md says what the functions take.
"""
from ._api import assert_fits, check, estimate, size, suggest, sweep
from ._errors import DoesNotFit, Error, InputError, UsageError
from ._export import ExportWarning, export
from ._observe import Observation, Rank, observe
from ._planner import Advice, Candidate, Card, Check, Largest, Row, Size, Suggestion, Sweep, Target
from ._record import record
from ._report import Alternative, Counters, Part, Report, Step, Tensor, Unmodelled, Warning

__all__ = ["Advice", "Alternative", "Candidate", "Card", "Check", "Counters", "DoesNotFit", "Error", "ExportWarning", "InputError", "Largest", "Observation",
           "Part", "Rank", "Report", "Row", "Size", "Step", "Suggestion", "Sweep", "Target", "Tensor", "Unmodelled", "UsageError", "Warning", "assert_fits",
           "check", "estimate", "export", "observe", "record", "size", "suggest", "sweep"]
