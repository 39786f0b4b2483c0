"""Layouts of packed arrays that only the device knows."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ringside import _core
from ringside._arrays import cuda as _cuda
from ringside._core import arguments


def on_device(x: Any) -> bool:
    """Whether x is an array in device memory, or a list or tuple that begins with one."""
    if isinstance(x, list | tuple):
        return len(x) > 0 and not isinstance(x[0], list | tuple) and on_device(x[0])
    if isinstance(x, np.ndarray | np.generic | int | float | bool) or x is None:
        return False
    try:
        _cuda.library_of(x)
    except TypeError:
        return False
    return True


@dataclasses.dataclass(frozen=True, eq=False)
class DeviceLayout:
    """Where the sequences of a packed array lie, known to the device only.

    What PackedLayout is to arrays on the host; functions of ringside.thd and DevicePlan.set_lengths
    take it. Nothing is read back, so values are not checked: see ringside.thd.check_offsets.

    Attributes:
        cu_seqlens: [batch+1] int32 or int64 on the device, cumulative numbers of valid tokens.
        cu_seqlens_padded: [batch+1] like it, where each sequence's rows start.
        num_rows: rows of the packed array, padding included: x.shape[0].
        max_rows: rows of the longest sequence, where the caller knows them; default num_rows.

    >>> import numpy as np, ringside as rs
    >>> try:
    ...     rs.thd.DeviceLayout(np.array([0, 8]), None, 8)
    ... except TypeError as error:
    ...     print(str(error)[:52])
    cu_seqlens is a numpy.ndarray; expected an array on
    """

    cu_seqlens: Any
    cu_seqlens_padded: Any
    num_rows: int
    max_rows: int | None = None

    def __post_init__(self) -> None:
        if not on_device(self.cu_seqlens):
            name = f"{type(self.cu_seqlens).__module__}.{type(self.cu_seqlens).__qualname__}"
            raise TypeError(
                f"cu_seqlens is a {name}; expected an array on a device. For arrays on the host "
                f"use ringside.PackedLayout(cu_seqlens, cu_seqlens_padded)"
            )
        if self.cu_seqlens_padded is None:  # no padding
            object.__setattr__(self, "cu_seqlens_padded", self.cu_seqlens)
        arguments.integer(self.num_rows, "num_rows")
        if self.max_rows is not None:
            arguments.integer(self.max_rows, "max_rows")
        if self.max_rows is not None and not 0 <= self.max_rows <= self.num_rows:
            raise _core.InvalidArgument(
                f"max_rows={self.max_rows} and num_rows={self.num_rows}; expected 0 to num_rows: "
                f"the longest sequence is a part of the packed array. Leave max_rows out"
            )

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return int(self.cu_seqlens_padded.shape[0]) - 1

    @property
    def longest(self) -> int:
        """No sequence has more rows."""
        return self.num_rows if self.max_rows is None else self.max_rows
