"""Chunked attention as ordinary varlen attention: every attention chunk becomes a sequence."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._arguments.kinds import answers_in_kind
from ringside._arrays.layout import on_device
from ringside.thd import _on_device as _thd_cuda
from ringside.thd._device import refuse_on_host

Int32Array = npt.NDArray[np.int32]
_MOST_ROWS = 2**31 - 1


class Pieces(NamedTuple):
    """Varlen sequences, each an attention chunk or part of one.

    Attributes:
        cu_seqlens: [pieces+1] int32, cumulative numbers of valid tokens.
        cu_seqlens_padded: [pieces+1] int32, the row where each piece starts; last, the rows.
    """

    cu_seqlens: Int32Array
    cu_seqlens_padded: Int32Array


class PiecePairs(NamedTuple):
    """Pairs of varlen sequences; every query of a pair sees every key of it.

    Attributes:
        cu_seqlens_q, cu_seqlens_kv: [batch+1] int32, cumulative numbers of valid tokens.
        cu_seqlens_q_padded, cu_seqlens_kv_padded: [batch+1] int32, the row where each piece starts
            in the whole local buffer of this rank, and of kv_rank; last, the rows of that buffer.
    """

    cu_seqlens_q: Int32Array
    cu_seqlens_q_padded: Int32Array
    cu_seqlens_kv: Int32Array
    cu_seqlens_kv_padded: Int32Array


@answers_in_kind("cu_seqlens")
def chunkify(
    cu_seqlens: Any,
    cu_seqlens_padded: Any,
    chunk_size: int,
    *,
    num_rows: int | None = None,
    capacity: int | None = None,
) -> Any:
    """Cuts packed sequences into their attention chunks.

    Causal attention over the pieces is Mask.chunked(chunk_size) over the sequences. Only pieces
    that hold a token are emitted; a sequence without tokens stays one empty piece, and padding
    stays behind the last piece of its sequence. (Transformer Engine's pull request 1887 fills up
    with empty pieces to a fixed capacity.)

    Args:
        cu_seqlens: [batch+1] integers, cumulative numbers of valid tokens.
        cu_seqlens_padded: [batch+1] integers, where each sequence's rows start; None: no padding.
        chunk_size: tokens of an attention chunk; chunks restart at each sequence.
        num_rows: on a device only, and needed there: rows of the packed array.
        capacity: on a device only: pieces that the result has room for; default as many as there
            can be.

    Returns:
        Pieces; on a device DevicePieces, with empty pieces behind the last one and its count.

    Raises:
        ValueError, TypeError: chunk_size below 1; offsets as for PackedLayout.

    >>> import ringside as rs
    >>> valid, padded = rs.thd.chunkify([0, 10, 30], [0, 10, 33], 8)
    >>> valid.tolist(), padded.tolist()
    ([0, 8, 10, 18, 26, 30], [0, 8, 10, 18, 26, 33])
    """
    if on_device(cu_seqlens):
        on = _thd_cuda.layout_of(cu_seqlens, cu_seqlens_padded, num_rows)
        return _thd_cuda.pieces(on, chunk_size, None, capacity)
    refuse_on_host(num_rows=num_rows, capacity=capacity)
    layout = _core.PackedLayout(cu_seqlens, cu_seqlens_padded)
    return Pieces(*_core.thd.chunkify(layout, chunk_size))


@answers_in_kind("cu_seqlens")
def chunkify_p2p(
    cu_seqlens: Any,
    cu_seqlens_padded: Any,
    chunk_size: int,
    cp_size: int,
    rank: int,
    *,
    num_rows: int | None = None,
    capacity: int | None = None,
) -> Any:
    """Cuts a rank's local rows (dual chunks) into attention chunks: the diagonal step of a ring.

    Each piece is causal in local order. A chunk of which the rank's first half holds the beginning
    and its second half the end is one piece. Chunks are cut at every multiple of chunk_size, also
    where a half holds several whole ones, which the kernel of Transformer Engine's pull request
    1887 merges.

    Args:
        cu_seqlens, cu_seqlens_padded, chunk_size: as for chunkify, global.
        cp_size: number of ranks.
        rank: whose rows, 0 to cp_size-1.
        num_rows, capacity: on a device, as for chunkify; num_rows is global, too.

    Returns:
        Pieces in the rank's local rows; on a device DevicePieces.

    Raises:
        ValueError, TypeError: as chunkify; a rank outside the group.

    >>> import ringside as rs
    >>> [rs.thd.chunkify_p2p([0, 24], None, 8, 2, rank).cu_seqlens.tolist() for rank in (0, 1)]
    [[0, 6, 12], [0, 2, 10, 12]]
    >>> rs.thd.chunkify_p2p([0, 24], None, 2, 2, 0).cu_seqlens.tolist()
    [0, 2, 4, 6, 8, 10, 12]
    """
    if on_device(cu_seqlens):
        on = _thd_cuda.layout_of(cu_seqlens, cu_seqlens_padded, num_rows)
        return _thd_cuda.pieces(on, chunk_size, (cp_size, rank), capacity)
    refuse_on_host(num_rows=num_rows, capacity=capacity)
    layout = _core.PackedLayout(cu_seqlens, cu_seqlens_padded)
    return Pieces(*_core.thd.chunkify_p2p(layout, chunk_size, cp_size, rank))


@answers_in_kind("cu_seqlens")
def chunkify_p2p_below_diagonal(
    cu_seqlens: Any,
    cu_seqlens_padded: Any,
    chunk_size: int,
    cp_size: int,
    rank: int,
    kv_rank: int,
) -> PiecePairs:
    """A rank's queries over the keys of an earlier rank, chunk by chunk: the lower step of a ring.

    At most one attention chunk of a sequence has keys there and queries here: it reaches from the
    end of kv_rank's first half to the start of this rank's rows. So a pair a sequence, empty where
    there is none. Rows are those of the whole local buffers; where a buffer of gathered first
    halves is used instead, the peer's offsets are these less the rows skipped.

    Args:
        cu_seqlens, cu_seqlens_padded, chunk_size: as for chunkify, global.
        cp_size: number of ranks.
        rank: whose queries.
        kv_rank: whose keys, 0 to rank-1.

    Raises:
        ValueError, TypeError: as chunkify; kv_rank not below rank.

    >>> import ringside as rs
    >>> for offsets in rs.thd.chunkify_p2p_below_diagonal([0, 24], None, 8, 2, 1, 0):
    ...     print(offsets.tolist())
    [0, 2]
    [0, 12]
    [0, 6]
    [0, 12]
    """
    if on_device(cu_seqlens):
        on = _thd_cuda.layout_of(cu_seqlens, cu_seqlens_padded, _MOST_ROWS)
        return PiecePairs(*_thd_cuda.pairs("below", on, chunk_size, (cp_size, rank), kv_rank))
    layout = _core.PackedLayout(cu_seqlens, cu_seqlens_padded)
    return PiecePairs(
        *_core.thd.chunkify_p2p_below_diagonal(layout, chunk_size, cp_size, rank, kv_rank)
    )


@answers_in_kind("cu_seqlens")
def chunkify_p2p_above_diagonal(
    cu_seqlens: Any,
    cu_seqlens_padded: Any,
    chunk_size: int,
    cp_size: int,
    rank: int,
    kv_rank: int,
) -> PiecePairs:
    """A rank's queries over the keys of a later rank, chunk by chunk: the upper step of a ring.

    Only queries of the rank's second half lie behind those keys, and only the chunk of the first of
    them reaches back to any. So a pair a sequence, empty where there is none, in rows of the whole
    local buffers.

    Args:
        cu_seqlens, cu_seqlens_padded, chunk_size: as for chunkify, global.
        cp_size: number of ranks.
        rank: whose queries.
        kv_rank: whose keys, rank+1 to cp_size-1.

    Raises:
        ValueError, TypeError: as chunkify; kv_rank not above rank.

    >>> import ringside as rs
    >>> for offsets in rs.thd.chunkify_p2p_above_diagonal([0, 24], None, 8, 2, 0, 1):
    ...     print(offsets.tolist())
    [0, 6]
    [6, 12]
    [0, 2]
    [10, 12]
    """
    if on_device(cu_seqlens):
        on = _thd_cuda.layout_of(cu_seqlens, cu_seqlens_padded, _MOST_ROWS)
        return PiecePairs(*_thd_cuda.pairs("above", on, chunk_size, (cp_size, rank), kv_rank))
    layout = _core.PackedLayout(cu_seqlens, cu_seqlens_padded)
    return PiecePairs(
        *_core.thd.chunkify_p2p_above_diagonal(layout, chunk_size, cp_size, rank, kv_rank)
    )
