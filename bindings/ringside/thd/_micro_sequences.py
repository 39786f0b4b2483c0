"""Offsets of micro-sequences of a packed stream; see ringside.thd."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ringside import _core


class MicroSequence(NamedTuple):
    """What canonical_cu_seqlens_k returns.

    Attributes:
        cu_seqlens_q: [documents+1] int32, over the micro-sequence's own rows.
        cu_seqlens_k: [documents+1] int32, over the keys [first_document_begin, end) of the stream.
        first_document_begin: the token of the stream at which the first document begins.
    """

    cu_seqlens_q: npt.NDArray[np.int32]
    cu_seqlens_k: npt.NDArray[np.int32]
    first_document_begin: int


def canonical_cu_seqlens_k(lengths: npt.ArrayLike, begin: int, end: int) -> MicroSequence:
    """The varlen offsets of tokens [begin, end) of a packed stream whose earlier keys are kept.

    Documents without a token in the window are left out. The first one may have begun before: it
    has more keys than queries, so its causal mask must be aligned "bottom_right". Keys and values
    are rows [first_document_begin, end) of the stream, and cu_seqlens_k starts at 0 there.

    Args:
        lengths: [documents] integers, of the whole stream.
        begin, end: the window, in tokens of the stream.

    Raises:
        ValueError: a window outside the stream, a negative length.

    Source: Fast-LLM's pull request 514, which made cu_seqlens_k canonical: kernels were found to
    write corrupt key gradients where it started elsewhere.

    >>> import ringside as rs
    >>> q, k, first = rs.thd.canonical_cu_seqlens_k([5, 6, 9], 8, 14)
    >>> q.tolist(), k.tolist(), first
    ([0, 3, 6], [0, 6, 9], 5)
    """
    return MicroSequence(*_core.thd.canonical_cu_seqlens_k(lengths, begin, end))


def check_canonical_cu_seqlens_k(cu_seqlens_k: npt.ArrayLike) -> None:
    """Refuses offsets of keys that do not start at 0.

    Raises:
        ValueError: with the offsets and the slice of k and v to pass instead.

    >>> import ringside as rs
    >>> try:
    ...     rs.thd.check_canonical_cu_seqlens_k([5, 11, 14])
    ... except ValueError as error:
    ...     print(str(error)[:64])
    cu_seqlens_k[0]=5; expected canonical offsets, which start at 0.
    """
    _core.thd.check_canonical_cu_seqlens_k(cu_seqlens_k)
