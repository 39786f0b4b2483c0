"""Lengths of real documents, in tokens, and packs made of them.

The traces travel with the package; data/README.md says what each one is and how it was made.

>>> import ringside as rs
>>> documents = rs.lengths.load("long_tail_pack")
>>> len(documents), int(documents.sum())
(30, 6099)
>>> rs.PackedLayout.from_lengths(rs.lengths.pack(documents, 512)).lengths.tolist()
[50, 175, 142, 68, 77]
"""

from __future__ import annotations

import importlib.resources
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ringside._core import arguments

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

HEADER = "tokens"  # the line before the numbers; files with another one hold no trace


def names() -> list[str]:
    """The traces that travel with the package, sorted.

    >>> import ringside as rs
    >>> "long_tail_pack" in rs.lengths.names()
    True
    """
    return sorted(_traces())


def load(name_or_path: str | os.PathLike[str]) -> npt.NDArray[np.int32]:
    """[documents] int32: the length of each document of a trace.

    Args:
        name_or_path: one of names(), or a file: lines that begin with #, then the line "tokens",
            then one integer a line.

    Raises:
        ValueError: neither a known name nor a file, or a file of another form.

    >>> import ringside as rs
    >>> rs.lengths.load("long_tail_pack")[:4].tolist()
    [50, 175, 142, 68]
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise TypeError(
            f"name_or_path is a {type(name_or_path).__name__}; expected a path or one of "
            f"{', '.join(names())}"
        )
    traces = _traces()
    if str(name_or_path) in traces:
        return _parse(traces[str(name_or_path)].read_text(encoding="utf-8"), str(name_or_path))
    path = Path(name_or_path)
    if not path.is_file():
        raise ValueError(
            f'lengths "{name_or_path}" is neither a file nor a known trace; '
            f"expected a path or one of {', '.join(names())}"
        )
    try:
        return _parse(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}; expected a text file of integers, one a line") from None


def pack(lengths: npt.ArrayLike, tokens: int) -> npt.NDArray[np.int32]:
    """The first documents that fill exactly so many tokens; the last one is cropped to fit.

    Raises:
        ValueError: tokens below 1, or more than the documents hold together.

    >>> import ringside as rs
    >>> rs.lengths.pack([5, 7, 3], 10).tolist()
    [5, 5]
    """
    documents = arguments.integers(lengths, "lengths").astype(np.int64)
    total = int(documents.sum())
    if not 1 <= arguments.integer(tokens, "tokens") <= total:
        raise ValueError(f"tokens={tokens}; expected 1 to {total}, what the documents hold")
    ends = np.cumsum(documents)
    count = int(np.searchsorted(ends, tokens)) + 1
    packed = documents[:count].copy()
    packed[-1] -= ends[count - 1] - tokens
    return packed.astype(np.int32)


def _traces() -> dict[str, Traversable]:
    """The traces of the installed package, or else of the checkout around it."""
    shipped = importlib.resources.files("ringside") / "data" / "lengths"
    checkout = Path(__file__).resolve().parents[2] / "data" / "lengths"
    folder = shipped if shipped.is_dir() else checkout
    if not folder.is_dir():
        return {}
    files = [file for file in folder.iterdir() if file.name.endswith(".csv")]
    return {file.name.removesuffix(".csv"): file for file in files if _header(file) == HEADER}


def _header(file: Traversable) -> str:
    with file.open(encoding="utf-8") as lines:
        return next((line.strip() for line in lines if not line.startswith("#")), "")


def _parse(text: str, source: str) -> npt.NDArray[np.int32]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if lines[:1] != [HEADER]:
        got = repr(lines[0]) if lines else "nothing"
        raise ValueError(
            f'{source}: got {got}; expected the line "{HEADER}", then one integer a line'
        )
    try:
        return np.array([int(line) for line in lines[1:]], dtype=np.int32)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{source}: {error}; expected one int32 a line") from None
