"""Cases that failed in earlier runs, kept in a file and tried first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import ringside as rs
from ringside.testing.cases import Case

__all__ = ["Failures"]

NAMES = {"Case": Case, "Mask": rs.Mask, "PackedLayout": rs.PackedLayout}


class Failures:
    """Of one feature.

    >>> list(Failures(None, "peer", "feature"))
    []

    Args:
        folder: of all of them; None to keep none.
        peer, feature: whose.
    """

    def __init__(self, folder: str | None, peer: str, feature: str) -> None:
        name = re.sub(r"\W+", "_", feature).strip("_").lower()
        self._file = None if folder is None else Path(folder, peer, f"{name}.json")

    def __iter__(self) -> Iterator[Case]:
        """The cases; a line that is none, of another version of Ringside say, is passed over."""
        if self._file is None or not self._file.is_file():
            return
        for text in json.loads(self._file.read_text(encoding="utf-8")):
            try:
                case = eval(text, dict(NAMES))  # what keep() wrote, by repr
            except (NameError, SyntaxError, TypeError, ValueError):
                continue
            if isinstance(case, Case):
                yield case

    def keep(self, cases: Sequence[Case]) -> None:
        """Writes these in place of those before; none where all agreed."""
        if self._file is not None and (cases or self._file.is_file()):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps([repr(case) for case in cases]), encoding="utf-8")
