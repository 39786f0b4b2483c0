"""Rows in rank order and back, one rank's rows, and the valid ones; see ringside.thd."""

from __future__ import annotations

from typing import Any

from ringside import _core
from ringside._arguments.gradients import rows_in_kind, without_gradients
from ringside._arguments.kinds import answers_in_kind, writes_in_place
from ringside._arrays.layout import on_device
from ringside.thd import _on_device as _thd_cuda
from ringside.thd._device import refuse_on_host, to_host


@rows_in_kind("x")
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


@rows_in_kind("x")
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


@answers_in_kind("cu_seqlens_padded")
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


@without_gradients("out.index_copy(0, rows, step_out[rows])")
@writes_in_place()
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
