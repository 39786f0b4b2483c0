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
from ringside.lengths import _text

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["load", "names", "pack", "parse"]

Lengths = npt.NDArray[np.int32]

HEADER = "tokens"  # the line before the numbers of a trace; shipped files with another one are none


def names() -> list[str]:
    """The traces that travel with the package, sorted.

    >>> import ringside as rs
    >>> "long_tail_pack" in rs.lengths.names()
    True
    """
    return sorted(_traces())


def load(name_or_path: str | os.PathLike[str], *, cu_seqlens: bool = False) -> Lengths:
    """[documents] int32: the length of each document of a trace.

    Args:
        name_or_path: one of names(), or a file of a form that parse() takes.
        cu_seqlens: the numbers are offsets, as an attention call takes them, not lengths.

    Raises:
        ValueError: neither a known name nor a file, or what parse() refuses.

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
        text = traces[str(name_or_path)].read_text(encoding="utf-8")
        return parse(text, source=str(name_or_path), cu_seqlens=cu_seqlens)
    path = Path(name_or_path)
    if not path.is_file():
        raise ValueError(
            f'lengths "{name_or_path}" is neither a file nor a known trace; '
            f"expected a path or one of {', '.join(names())}"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}; expected a text file of integers") from None
    return parse(text, source=str(path), cu_seqlens=cu_seqlens)


def parse(text: str, *, source: str = "text", cu_seqlens: bool = False) -> Lengths:
    """[documents] int32: the lengths that a text holds, in the form in which it holds them.

    Args:
        text: integers in one line, between commas or spaces, or one a line; a CSV whose first line
            names its columns, of which the only one, or that called tokens, length, lengths,
            num_tokens or cu_seqlens is read; JSON, a list or an object with one under such a name.
            # begins a comment.
        source: what errors call the text.
        cu_seqlens: the numbers are offsets; so are those under that name.

    Raises:
        ValueError: anything else; source, line and the text that stands there are named.

    >>> import ringside as rs
    >>> rs.lengths.parse("512, 1024, 96").tolist()
    [512, 1024, 96]
    >>> rs.lengths.parse("id,tokens\\n7,512\\n9,96").tolist()
    [512, 96]
    >>> rs.lengths.parse('{"cu_seqlens": [0, 512, 608]}').tolist()
    [512, 96]
    """
    offsets = arguments.boolean(cu_seqlens, "cu_seqlens")
    named = arguments.text(source, "source")
    return _text.lengths_from(arguments.text(text, "text"), named, offsets=offsets)


def pack(lengths: npt.ArrayLike, tokens: int) -> Lengths:
    """The first documents that fill exactly so many tokens; the last one is cropped to fit.

    Raises:
        ValueError: tokens below 1, or more than the documents hold together; a negative length.

    >>> import ringside as rs
    >>> rs.lengths.pack([5, 7, 3], 10).tolist()
    [5, 5]
    """
    documents = arguments.integers(lengths, "lengths").astype(np.int64)
    if documents.min(initial=0) < 0:
        at = int(documents.argmin())
        raise ValueError(f"lengths[{at}]={documents[at]}; expected numbers of tokens, from 0")
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
    checkout = Path(__file__).resolve().parents[3] / "data" / "lengths"
    folder = shipped if shipped.is_dir() else checkout
    if not folder.is_dir():
        return {}
    files = [file for file in folder.iterdir() if file.name.endswith(".csv")]
    return {file.name.removesuffix(".csv"): file for file in files if _header(file) == HEADER}


def _header(file: Traversable) -> str:
    with file.open(encoding="utf-8") as lines:
        return next((line.strip() for line in lines if not line.startswith("#")), "")
