"""What ringside.thd's functions need on a device: whose arrays, which stream, where results go."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringside import _core
from ringside._arrays import cuda as _cuda
from ringside._arrays.layout import on_device


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


class DeviceContext:
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
        self.handle = self.core.DeviceStream(self.device, self.library.stream(self.device))

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
