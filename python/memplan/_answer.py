"""Common to everything that the command line answers with a JSON document."""
from __future__ import annotations

import json
from typing import Any, Dict, Optional

from . import _binary
from ._source import Source


class Answer:
    """to_dict() is the whole of it; str() is the text of the command line."""

    def __init__(self, data: Dict[str, Any], source: Source) -> None:
        self._data, self._source = data, source

    def to_dict(self) -> Dict[str, Any]:
        """A copy of the JSON document."""
        copied: Dict[str, Any] = json.loads(json.dumps(self._data))
        return copied

    def to_json(self, indent: Optional[int] = 2) -> str:
        return json.dumps(self._data, indent=indent)

    def to_text(self, width: int = 100) -> str:
        """What the command line prints; it is computed again."""
        return _binary.call([*self._source.words, "--format=text", "--color=never", f"--width={width}"], self._source.folder, None)[1]

    def __str__(self) -> str:
        return self.to_text()
