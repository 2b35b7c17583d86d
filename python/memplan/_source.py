"""What was asked, kept so that another form of the same answer can be asked for."""
from __future__ import annotations

from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import List, Optional


@dataclass(frozen=True)
class Source:
    words: List[str]  # of the command line
    folder: Optional[str] = None  # in which they hold; None: the working directory
    scratch: Optional["TemporaryDirectory[str]"] = None  # holds an exported module for as long as the answer lives
    name: str = ""  # of the module that the file in `scratch` stands for
