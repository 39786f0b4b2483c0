"""The primitives that users of Transformer Engine, FlashAttention and Fast-LLM hold in their hands.

Everything is about packed arrays (THD: tokens first) in dual chunks: each sequence is cut into
2*cp_size chunks, of which rank r holds number r, then number 2*cp_size-1-r. It is the partition
"zigzag" of ringside.plan; unlike the peers', it takes any length, chunk c beginning at row
floor(c * rows / (2*cp_size)) of its sequence. Names say from -> to. cu_seqlens* are global unless a
docstring says local.

**On a device.** Where all arrays of a call lie on one (torch, CuPy), so does the result, of the
same kind. The work is put on the current stream and nothing is read back, so calls may be captured
in a CUDA graph and replayed with other lengths in the same memory. cu_seqlens* are then int32 or
int64 on the device, and their values cannot be checked: whatever they hold, no memory outside the
arrays is touched, but results are only right for valid ones. check_offsets and check_segments look
at them, wait for the device, and raise what the functions on the host would.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ringside import _core, _thd_cuda
from ringside._thd_chunks import (
    PiecePairs,
    Pieces,
    chunkify,
    chunkify_p2p,
    chunkify_p2p_above_diagonal,
    chunkify_p2p_below_diagonal,
)
from ringside._thd_cuda import DeviceIndices, DevicePieces
from ringside._thd_device import DeviceLayout, on_device, refuse_on_host, to_host
from ringside._thd_segments import add_rows, check_segments, copy_rows
from ringside._thd_steps import StepMetadata, all_gather_step_metadata, p2p_step_metadata

__all__ = [
    "DeviceIndices",
    "DeviceLayout",
    "DevicePieces",
    "MicroSequence",
    "PaddedBatch",
    "PiecePairs",
    "Pieces",
    "StepMetadata",
    "add_rows",
    "all_gather_step_metadata",
    "canonical_cu_seqlens_k",
    "check_canonical_cu_seqlens_k",
    "check_offsets",
    "check_segments",
    "chunkify",
    "chunkify_p2p",
    "chunkify_p2p_above_diagonal",
    "chunkify_p2p_below_diagonal",
    "copy_rows",
    "copy_valid_tokens",
    "cp_rank_order_to_sequence_order",
    "p2p_step_metadata",
    "pad_to_multiple",
    "partition_indices",
    "sequence_order_to_cp_rank_order",
]


def sequence_order_to_cp_rank_order(x: Any, cu_seqlens_padded: Any, cp_size: int) -> Any:
    """The rows of x rank after rank: rank 0's local rows, then rank 1's, and so on.

    Args:
        x: [rows, ...] of any dtype without Python objects: tokens, q, gradients, anything. On a
            device also a list or tuple of such arrays, of any dtypes and row shapes, for example
            k and v: they move in one launch.
        cu_seqlens_padded: [batch+1] integers, where each sequence's rows start; ends at x's rows.
        cp_size: number of ranks.

    Returns:
        A new array like x, or as many as were passed. Padding rows move like any other. (On a
        device, rows that offsets leave out are not written.)

    Raises:
        ValueError: rows of x behind the last sequence (they have no rank), falling offsets.
        TypeError: Python objects in x, offsets that are not integers.

    Source: Transformer Engine's thd_cp_reorder_sequences, pull request 2829.

    >>> import numpy as np, ringside as rs
    >>> rs.thd.sequence_order_to_cp_rank_order(np.arange(10), [0, 8, 10], 2).tolist()
    [0, 1, 6, 7, 9, 2, 3, 4, 5, 8]
    """
    if on_device(x):
        return _thd_cuda.reorder(x, cu_seqlens_padded, cp_size, to_ranks=True)
    return _core.thd.sequence_order_to_cp_rank_order(x, cu_seqlens_padded, cp_size)


def cp_rank_order_to_sequence_order(x: Any, cu_seqlens_padded: Any, cp_size: int) -> Any:
    """The inverse of sequence_order_to_cp_rank_order, for what an all-gather over the ranks left.

    Args, Raises: as there.

    >>> import numpy as np, ringside as rs
    >>> gathered = np.array([0, 1, 6, 7, 9, 2, 3, 4, 5, 8])
    >>> rs.thd.cp_rank_order_to_sequence_order(gathered, [0, 8, 10], 2).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    if on_device(x):
        return _thd_cuda.reorder(x, cu_seqlens_padded, cp_size, to_ranks=False)
    return _core.thd.cp_rank_order_to_sequence_order(x, cu_seqlens_padded, cp_size)


def partition_indices(
    cu_seqlens_padded: Any,
    cp_size: int,
    rank: int,
    *,
    num_rows: int | None = None,
    capacity: int | None = None,
) -> Any:
    """[local rows] int32: the global row of each of a rank's local rows; x[indices] is its shard.

    Args:
        cu_seqlens_padded: [batch+1] integers from 0, where each sequence's rows start.
        cp_size: number of ranks.
        rank: 0 to cp_size-1.
        num_rows: on a device only, and needed there: rows of the packed array.
        capacity: on a device only: rows of the result; default as many as a rank can have. Where
            every sequence is padded to a multiple of 2*cp_size it is num_rows // cp_size.

    Returns:
        The rows; on a device DeviceIndices(rows, count), as their number is only known there.

    Raises:
        ValueError: a rank outside the group, falling offsets.

    Source: Transformer Engine's thd_get_partitioned_indices.

    >>> import ringside as rs
    >>> rs.thd.partition_indices([0, 8, 10], 2, 1).tolist()
    [2, 3, 4, 5, 8]
    """
    if on_device(cu_seqlens_padded):
        return _thd_cuda.partition_indices(cu_seqlens_padded, cp_size, rank, num_rows, capacity)
    refuse_on_host(num_rows=num_rows, capacity=capacity)
    return _core.thd.partition_indices(cu_seqlens_padded, cp_size, rank)


def copy_valid_tokens(out: Any, step_out: Any, cu_seqlens_padded: Any, cu_seqlens: Any) -> None:
    """Copies each sequence's valid rows from step_out into the same rows of out, in place.

    The valid rows of sequence s are the cu_seqlens[s+1]-cu_seqlens[s] rows from row
    cu_seqlens_padded[s] on. All other rows of out stay as they are, whatever step_out holds there.

    Args:
        out: [rows, ...], written to: a C-contiguous NumPy array, or one on a device.
        step_out: an array like out.
        cu_seqlens_padded: [batch+1] integers, rows of out; they need not start at 0, nor end at its
            last row. Those of StepMetadata fit, so do [2, 6, 12].
        cu_seqlens: [batch+1] integers; only the differences matter.

    Raises:
        ValueError: offsets that fall or leave out, more tokens than rows, arrays that share memory
            or differ in shape or dtype, out not contiguous or read-only.
        TypeError: out is no NumPy array, offsets are no integers.

    Source: Transformer Engine's thd_cp_copy_valid_tokens, pull request 2829.

    >>> import numpy as np, ringside as rs
    >>> out = np.zeros(12, int)
    >>> rs.thd.copy_valid_tokens(out, np.arange(12), [2, 6, 12], [0, 3, 5])
    >>> out.tolist()
    [0, 0, 2, 3, 4, 0, 6, 7, 0, 0, 0, 0]
    """
    if on_device(out):
        return _thd_cuda.copy_valid_tokens(out, step_out, cu_seqlens_padded, cu_seqlens)
    return _core.thd.copy_valid_tokens(out, step_out, cu_seqlens_padded, cu_seqlens)


def check_offsets(
    cu_seqlens_padded: Any,
    cu_seqlens: Any = None,
    *,
    num_rows: int | None = None,
    covers: bool = True,
) -> None:
    """Refuses offsets that the functions of this module would.

    On a device they cannot: this function waits for it and reads the offsets back. It is meant for
    debugging, or for once a batch.

    Args:
        cu_seqlens_padded: [batch+1] integers on the host or a device, where each sequence's rows
            start.
        cu_seqlens: [batch+1] integers, of which only the differences matter; None: no padding.
        num_rows: rows of the packed array, where known.
        covers: whether the sequences must begin at row 0 and end at num_rows; False for
            copy_valid_tokens.

    Raises:
        ValueError: offsets that fall, lie outside the array or do not cover it; more tokens than
            rows.
        TypeError: offsets that are not integers.

    >>> import ringside as rs
    >>> try:
    ...     rs.thd.check_offsets([0, 8, 4])
    ... except ValueError as error:
    ...     print(str(error)[:57])
    cu_seqlens_padded[2]=4 is less than cu_seqlens_padded[1]=
    """
    _core.thd.check_offsets(to_host(cu_seqlens_padded), to_host(cu_seqlens), num_rows, covers)


class PaddedBatch(NamedTuple):
    """What pad_to_multiple returns.

    Attributes:
        tokens: [rows, ...], pad_token in padding.
        labels: [rows, ...], pad_label in padding; None if none were given.
        position_ids: [rows] int32, from 0 in each sequence, counting on through its padding.
        cu_seqlens_padded: [batch+1] int32, where each sequence's rows start.
    """

    tokens: npt.NDArray[Any]
    labels: npt.NDArray[Any] | None
    position_ids: npt.NDArray[np.int32]
    cu_seqlens_padded: npt.NDArray[np.int32]


def pad_to_multiple(
    tokens: npt.ArrayLike,
    labels: npt.ArrayLike | None,
    cu_seqlens: npt.ArrayLike,
    multiple: int,
    *,
    pad_token: Any = 0,
    pad_label: Any = -100,
) -> PaddedBatch:
    """Pads each sequence of a packed batch to a multiple of rows, as the peers need: 2*cp_size.

    Args:
        tokens: [tokens, ...], no padding yet.
        labels: [tokens, ...] or None.
        cu_seqlens: [batch+1] integers, cumulative numbers of tokens.
        multiple: of rows, at least 1.
        pad_token, pad_label: what padding holds; -100 is what cross-entropy losses ignore.

    Raises:
        ValueError: tokens or labels that are not as long as cu_seqlens says, a pad value that their
            dtype cannot hold.

    Source: Transformer Engine's pad_thd_sequences_for_cp and generate_positional_ids_for_cp.

    >>> import ringside as rs
    >>> batch = rs.thd.pad_to_multiple([7, 8, 9, 5], [8, 9, 1, 2], [0, 3, 4], 4)
    >>> batch.tokens.tolist(), batch.labels.tolist()
    ([7, 8, 9, 0, 5, 0, 0, 0], [8, 9, 1, -100, 2, -100, -100, -100])
    >>> batch.position_ids.tolist(), batch.cu_seqlens_padded.tolist()
    ([0, 1, 2, 3, 0, 1, 2, 3], [0, 4, 8])
    """
    packed = _core.PackedLayout(cu_seqlens)
    layout = _core.PackedLayout.from_lengths(packed.lengths, pad_to_multiple_of=multiple)
    starts = np.repeat(layout.cu_seqlens_padded[:-1], layout.padded_lengths)
    position_ids = np.arange(layout.num_rows, dtype=np.int32) - starts
    valid = position_ids < np.repeat(layout.lengths, layout.padded_lengths)
    return PaddedBatch(
        _spread(tokens, valid, pad_token, "token"),
        None if labels is None else _spread(labels, valid, pad_label, "label"),
        position_ids,
        layout.cu_seqlens_padded,
    )


def _spread(
    x: npt.ArrayLike, valid: npt.NDArray[np.bool_], pad: Any, name: str
) -> npt.NDArray[Any]:
    """The rows of x in the valid rows of a new array, pad in the others."""
    x = np.asarray(x)
    count = np.count_nonzero(valid)
    if x.ndim == 0 or x.shape[0] != count:
        raise _core.InvalidArgument(
            f"{name}s has shape {x.shape}; expected {count} rows, as cu_seqlens says. "
            "Pass them without padding, one row a token"
        )
    held = np.array(pad).astype(x.dtype)
    if not (held == pad or (held != held and pad != pad)):
        raise _core.InvalidArgument(
            f"pad_{name}={pad} does not fit {name}s of dtype {x.dtype}; it would become {held}. "
            f"Pass {name}s.astype(np.int64), or a pad_{name} that fits"
        )
    rows = np.full((len(valid), *x.shape[1:]), held, dtype=x.dtype)
    rows[valid] = x
    return rows


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
