"""Rows moved or summed by a table of segments, as arrays on the host have them moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._arguments.gradients import without_gradients
from ringside._arguments.kinds import writes_in_place
from ringside._arrays.layout import on_device
from ringside._core import arguments
from ringside.thd import _on_device as _thd_cuda
from ringside.thd._device import to_host

Indices = npt.NDArray[np.int64]
_LISTED = 2**24  # rows, more than there can be, before one that is written twice is looked for


@without_gradients("out.index_copy(0, to_rows, x[from_rows])")
@writes_in_place()
def copy_rows(out: Any, x: Any, segments: Any) -> None:
    """Copies rows of x to rows of out, in place, by a table of segments.

    Segment (from_row, from_step, to_row, to_step, rows) copies x[from_row + i*from_step] to
    out[to_row + i*to_step] for i below rows. All other rows of out stay as they are.

    Args:
        out: [rows, ...], written to; no row twice.
        x: [rows, ...] of out's dtype and row shape, in memory of its own.
        segments: [segments, 5] integers.

    On a device (torch, CuPy; all three arrays there) it is one asynchronous pass, which may be
    captured in a graph. The table's values are not checked there: rows outside the arrays are left
    out, and rows written twice hold one of the two; see check_segments.

    Raises:
        ValueError: rows outside the arrays, written twice; shapes that differ.
        TypeError: dtypes that differ, a table that is not of integers.

    >>> import numpy as np, ringside as rs
    >>> out = np.zeros(6, int)
    >>> rs.thd.copy_rows(out, np.arange(10), [(8, -1, 0, 2, 3), (0, 1, 5, 1, 1)])
    >>> out.tolist()
    [8, 0, 7, 0, 6, 0]
    """
    if on_device(out):
        return _thd_cuda.copy_rows(out, x, segments)
    _require_written(out, "out")
    x = arguments.array(x, "x")
    if x.dtype != out.dtype:
        raise TypeError(f"x has dtype {x.dtype} and out {out.dtype}; expected the same. Convert x")
    from_rows, to_rows = _rows(out, "out", x, segments)
    out[to_rows] = x[from_rows]
    return None


@without_gradients("accumulator.index_add(0, to_rows, x[from_rows])")
@writes_in_place(sums=True)
def add_rows(accumulator: Any, x: Any, segments: Any) -> None:
    """Adds rows of x to rows of a float32 accumulator, in place, by a table of segments.

    Args:
        accumulator: [rows, ...] float32, accumulator[to] += x[from]; no row twice in a call, so
            the order of sums is the order of calls, and results repeat bit by bit.
        x: [rows, ...] float32, float16 or bfloat16, in memory of its own.
        segments: [segments, 5] integers, as for copy_rows.

    On a device, Raises: as copy_rows.

    >>> import numpy as np, ringside as rs
    >>> gradients = np.ones(4, np.float32)
    >>> rs.thd.add_rows(gradients, np.full(2, 0.5, np.float16), [(0, 1, 2, 1, 2)])
    >>> gradients.tolist()
    [1.0, 1.0, 1.5, 1.5]
    """
    if on_device(accumulator):
        return _thd_cuda.add_rows(accumulator, x, segments)
    _require_written(accumulator, "accumulator")
    x = arguments.array(x, "x")
    if accumulator.dtype != np.float32:
        raise TypeError(
            f"accumulator has dtype {accumulator.dtype}; expected float32, in which sums are kept. "
            f"Convert it"
        )
    if x.dtype.name not in ("float32", "float16", "bfloat16"):
        raise TypeError(f"x has dtype {x.dtype}; expected float32, float16 or bfloat16. Convert it")
    from_rows, to_rows = _rows(accumulator, "accumulator", x, segments)
    accumulator[to_rows] += x[from_rows].astype(np.float32)
    return None


def check_segments(segments: Any, out_rows: int, x_rows: int) -> None:
    """Refuses a table of segments that copy_rows or add_rows cannot follow.

    On a device they cannot look at the values. This function can: it waits for the device.

    Args:
        segments: [segments, 5] integers, on the host or a device.
        out_rows, x_rows: rows of the arrays that are written and read.

    Raises:
        ValueError: naming the first segment that reads or writes outside, or a row written twice.

    >>> import ringside as rs
    >>> try:
    ...     rs.thd.check_segments([(0, 1, 4, 1, 3)], out_rows=6, x_rows=8)
    ... except ValueError as error:
    ...     print(str(error)[:51])
    segment 0 writes rows 4 to 6 of an array of 6 rows;
    """
    sizes = arguments.integer(out_rows, "out_rows"), arguments.integer(x_rows, "x_rows")
    _rows_of(_table(segments), *sizes)


def _require_written(out: Any, name: str) -> None:
    if not isinstance(out, np.ndarray):
        raise TypeError(
            f"{name} is a {type(out).__module__}.{type(out).__qualname__}; expected an array, "
            f"which is written in place. Pass a NumPy array, a torch tensor or a CuPy array"
        )
    arguments.array(out, name)


def _table(segments: Any) -> Indices:
    table = arguments.array(to_host(segments), "segments")
    if table.size == 0:
        table = np.zeros((0, 5), np.int64)
    if not np.issubdtype(table.dtype, np.integer):
        raise TypeError(f"segments has dtype {table.dtype}; expected integers. Convert it")
    if table.ndim != 2 or table.shape[1] != 5:
        raise _core.InvalidArgument(
            f"segments has shape {table.shape}; expected [segments, 5]: from_row, from_step, "
            f"to_row, to_step, rows"
        )
    if table.max(initial=0) > np.iinfo(np.int64).max:
        raise _core.InvalidArgument(f"segments holds {table.max()}; expected numbers in int64")
    return table.astype(np.int64)


def _rows(out: Any, name: str, x: Any, segments: Any) -> tuple[Indices, Indices]:
    if out.ndim == 0 or x.ndim == 0 or out.shape[1:] != x.shape[1:]:
        raise _core.InvalidArgument(
            f"x has shape {x.shape} and {name} has shape {out.shape}; expected rows of the same "
            f"shape"
        )
    if np.may_share_memory(out, x):
        raise _core.InvalidArgument(f"{name} and x share memory; expected two arrays. Pass a copy")
    return _rows_of(_table(segments), len(out), len(x))


def _rows_of(table: Indices, out_rows: int, x_rows: int) -> tuple[Indices, Indices]:
    """The row read and the row written of every move."""
    rows = table[:, 4]
    _refuse(
        (rows < 0) | (rows > out_rows),
        lambda s: f"segment {s} has {rows[s]} rows; expected 0 to the {out_rows} of the array",
    )
    if (total := sum(rows.tolist())) > out_rows + _LISTED:
        raise _core.InvalidArgument(
            f"segments write {total} rows of an array of {out_rows}; expected each once at most. "
            f"Pass the segments in several calls"
        )
    for verb, begin, step, size in (
        ("reads", table[:, 0], table[:, 1], x_rows),
        ("writes", table[:, 2], table[:, 3], out_rows),
    ):
        outside = (begin < 0) | (begin >= size) | ((rows > 1) & ((step > size) | (step < -size)))
        last = begin + (rows - 1) * np.where(outside, 0, step)  # which int64 holds
        outside |= (last < 0) | (last >= size)
        _refuse(
            (rows > 0) & outside,
            lambda s, verb=verb, begin=begin, step=step, size=size: (
                f"segment {s} {verb} rows {begin[s]} to "
                f"{int(begin[s]) + (int(rows[s]) - 1) * int(step[s])} of an array of {size} rows; "
                f"expected rows inside it"
            ),
        )
    move = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
    segment = np.repeat(np.arange(len(rows)), rows)
    from_rows = table[segment, 0] + move * table[segment, 1]
    to_rows = table[segment, 2] + move * table[segment, 3]
    times = np.bincount(to_rows, minlength=1)
    if times.max() > 1:
        raise _core.InvalidArgument(
            f"row {int(times.argmax())} is written {times.max()} times; expected once at most. "
            f"Pass the segments in several calls"
        )
    return from_rows, to_rows


def _refuse(wrong: npt.NDArray[np.bool_], message: Any) -> None:
    if wrong.any():
        raise _core.InvalidArgument(message(int(wrong.argmax())))
