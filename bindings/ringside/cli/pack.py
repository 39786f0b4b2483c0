"""The documents that a command works on: a trace, a file, standard input, or numbers."""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ringside import _core, lengths
from ringside._words import count
from ringside.testing import _sizes
from ringside.testing._problems import padded_layout

DEFAULT_LENGTHS = "long_tail_pack"
DEFAULT_TOKENS = 3072  # of a shipped trace, at most, unless more are asked for
DEFAULT_PADDING = 8  # of a shipped trace
NUMBERS = re.compile(r"[\[\s]*\d+([\s,]+\d+)*[\s,\]]*")  # 512,1024,96


@dataclass(frozen=True)
class Pack:
    """Which documents, and how their rows are padded.

    What is the user's is taken whole and as it is, unless he says otherwise. A shipped trace is
    there to try things with: its first tokens are, and padding between its documents.

    Attributes:
        lengths: the name of a trace, a file, "-" for standard input, or the lengths themselves.
        tokens: the first ones, all if there are fewer; None is all that is the user's, and of a
            trace at most `most`.
        pad_to: None is DEFAULT_PADDING for a trace and 0, no padding, for what is the user's.
        most: the tokens of a trace that are taken if nobody says how many.
        cu_seqlens: the numbers are offsets, not lengths.
    """

    lengths: str = DEFAULT_LENGTHS
    tokens: int | None = None
    pad_to: int | None = None
    most: int = DEFAULT_TOKENS
    cu_seqlens: bool = False

    def __post_init__(self) -> None:
        """Refuses what no pack can have."""
        _sizes.require_between("--tokens", self.tokens, 1, "a number of tokens")
        _sizes.require_between("--pad-to", self.pad_to, 0, "a number of rows, 0 for no padding")

    @functools.cached_property
    def is_trace(self) -> bool:
        """Whether the documents came with the package."""
        return self.lengths in lengths.names()

    @functools.cached_property
    def documents(self) -> npt.NDArray[np.int32]:
        """[documents] all of them, read once."""
        if self.lengths == "-":
            text = sys.stdin.read()
            return lengths.parse(text, source="standard input", cu_seqlens=self.cu_seqlens)
        if not self.is_trace and NUMBERS.fullmatch(self.lengths):
            return lengths.parse(self.lengths, source="--lengths", cu_seqlens=self.cu_seqlens)
        return lengths.load(self.lengths, cu_seqlens=self.cu_seqlens)

    @property
    def padding(self) -> int:
        """What rows of a document are a multiple of."""
        default = DEFAULT_PADDING if self.is_trace else 0
        return default if self.pad_to is None else self.pad_to

    def taken(self) -> tuple[_core.PackedLayout, str]:
        """The documents, packed, and what was taken, in words."""
        total = int(self.documents.sum(dtype=np.int64))
        if total == 0:
            raise ValueError(f"{self.lengths} holds no tokens; expected a document of at least one")
        tokens = self.most if self.tokens is None and self.is_trace else self.tokens or total
        whole = tokens >= total
        packed = self.documents if whole else lengths.pack(self.documents, tokens)
        layout = self._padded(packed)
        return layout, self._words(layout, total)

    def layout(self) -> _core.PackedLayout:
        """The documents, packed."""
        return self.taken()[0]

    def _padded(self, documents: npt.NDArray[np.int32]) -> _core.PackedLayout:
        if self.pad_to is None:
            return padded_layout(documents, self.padding)
        return _core.PackedLayout.from_lengths(documents, pad_to_multiple_of=max(1, self.pad_to))

    def _words(self, layout: _core.PackedLayout, total: int) -> str:
        tokens = layout.num_tokens
        words = (
            f"{self.lengths}: {count(layout.num_sequences, 'document')}, {count(tokens, 'token')}, "
            f"{count(layout.num_rows, 'row')}"
        )
        if tokens < total:
            first = count(len(self.documents), "document")
            words += f" (the first of {first}, {count(total, 'token')})"
        elif self.tokens is not None and self.tokens > total:
            words += f" (all there are; --tokens {self.tokens:,} asked for more)"
        return words


def rows_to_pad_to(text: str | None, cp_size: int) -> int | None:
    """What --pad-to says: a number of rows, or a multiple of the ranks such as cp or 2cp.

    >>> rows_to_pad_to("64", 4), rows_to_pad_to("2cp", 4), rows_to_pad_to(None, 4)
    (64, 8, None)
    """
    if text is None:
        return None
    times = re.fullmatch(r"(\d*)\s*cp", text.strip())
    if times:
        return int(times[1] or 1) * cp_size
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f"--pad-to {text}; expected a number of rows, or a multiple of the ranks such as 2cp"
        ) from None
