"""What ringside.thd's functions need on a device: whose arrays, which stream, where results go."""

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


def refuse_on_host(**keywords: Any) -> None:
    """Raises ValueError for keywords that only offsets on a device need."""
    for name, value in keywords.items():
        if value is not None:
            raise _core.InvalidArgument(
                f"{name}={value} with offsets on the host; expected none, as the result is exactly "
                f"as long as needed. Leave {name} out, or pass offsets on a device"
            )


def to_host(x: Any) -> Any:
    """x as NumPy sees it; waits for the device if that is where x lies."""
    if not on_device(x):
        return x
    return x.get() if hasattr(x, "get") else np.asarray(x.cpu())


class Place:
    """Where the arrays of one call lie, and the stream on which it runs."""

    def __init__(self, like: Any):
        if reason := _cuda.problem():
            raise _core.Unsupported(
                f"arrays on a device cannot be used here: {reason}. Nearest supported: NumPy "
                f"arrays, np.asarray(x.cpu()) or x.get()"
            )
        self.like = like
        self.library = _cuda.library_of(like)
        self.device = self.library.device(like)
        self.core = _cuda.cuda_core().thd
        self.handle = self.core.Place(self.device, self.library.stream(self.device))

    def describe(self, name: str, x: Any) -> Any:
        """For the C++ half; raises TypeError for what lies elsewhere."""
        if not self.library.owns(x) or self.library.device(x) != self.device:
            raise TypeError(
                f"{name} is a {type(x).__module__}.{type(x).__qualname__} that does not lie on the "
                f"device of the other arrays, or is not of their kind; expected one that does. "
                f"Convert it, e.g. torch.as_tensor({name}, device=x.device)"
            )
        return self.library.describe(x)

    def empty_like(self, x: Any) -> Any:
        """A new array of x's shape and dtype, rows back to back."""
        return self.library.empty(x.shape, x)

    def integers(self, size: int, dtype: str = "int32") -> Any:
        """A new [size] array."""
        return self.library.empty((size,), self.like, dtype)

    def address(self, x: Any) -> int:
        """Of an array just made."""
        return _cuda.pointer(x)

    def workspace(self) -> Any:
        """For the functions that compute metadata."""
        return self.integers(self.core.workspace_size())


@dataclasses.dataclass(frozen=True, eq=False)
class DeviceLayout:
    """Where the sequences of a packed array lie, known to the device only.

    What PackedLayout is to arrays on the host. Nothing is read back, so values are not checked:
    see ringside.thd.check_offsets.

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
