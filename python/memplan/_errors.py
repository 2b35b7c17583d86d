"""What goes wrong, as the command line says it."""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._report import Report


class Error(Exception):
    """memplan could not answer. `code` is the exit code of the command line (docs/cli.md), `hint` what to do next."""

    def __init__(self, message: str, where: str = "", hint: str = "", code: int = 70) -> None:
        self.message, self.where, self.hint, self.code = message, where, hint, code
        text = f"{message} ({where})" if where else message
        super().__init__(f"{text}. {hint}" if hint else text)


class UsageError(Error, ValueError):
    """A keyword or its value is not one that memplan knows."""


class InputError(Error, ValueError):
    """The model cannot be read, exported or estimated as it is."""


class DoesNotFit(Error, AssertionError):
    """Raised by assert_fits(). `report` says everything."""

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message, code=1)
        self.report = report
