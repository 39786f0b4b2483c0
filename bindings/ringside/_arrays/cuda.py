"""backend="cuda": whether it can run here, whose memory it is, and which stream is current."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ringside import _core

FARTHEST = 1 << 35  # bytes from row to row, or head to head, below which kernels take them


class Described(NamedTuple):
    """An array as the C++ half takes it, unless it is a torch tensor, which that asks itself."""

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements


class Torch:
    """Arrays that are torch tensors."""

    def __init__(self) -> None:
        self.torch = importlib.import_module("torch")
        # Which what torch compiles asks, too; the public question makes an object of each answer.
        self._raw_stream = getattr(self.torch._C, "_cuda_getCurrentRawStream", None)

    def owns(self, x: Any) -> bool:
        """Whether x is such an array, on any device."""
        return isinstance(x, self.torch.Tensor)

    def device(self, x: Any) -> int | None:
        """The number of the CUDA device on which x lies."""
        return x.get_device() if x.is_cuda else None

    def describe(self, x: Any) -> Any:
        """For the C++ half: itself."""
        return x

    def ready(self, x: Any) -> Any:
        """x, copied unless its last dimension is dense and its rows are aligned for kernels."""
        if x.is_neg():  # a view whose memory holds other numbers
            x = x.resolve_neg()
        if x.is_contiguous() and x.data_ptr() % 16 == 0:
            return x
        dense = x.ndim == 0 or x.stride(-1) == 1
        if dense and _aligned(x.data_ptr(), x.shape, x.stride(), x.element_size()):
            return x
        return x.detach().clone(memory_format=self.torch.contiguous_format)

    def dense(self, x: Any) -> Any:
        """x, copied unless it is contiguous and begins at a multiple of 16 bytes."""
        if x.is_neg():
            x = x.resolve_neg()
        if x.is_contiguous() and x.data_ptr() % 16 == 0:
            return x.detach()
        return x.detach().clone(memory_format=self.torch.contiguous_format)

    def empty(self, shape: Sequence[int], like: Any, dtype: str | None = None) -> Any:
        """An array on the device of `like`."""
        if dtype is None and shape == like.shape and like.is_contiguous():
            return self.torch.empty_like(like)  # the quickest way
        of_type = getattr(self.torch, dtype) if dtype else like.dtype
        return like.new_empty(shape, dtype=of_type)

    def vector(self, x: Any, like: Any, size: int) -> Any:
        """A float32 [size] array on the device of `like`, from one number or [size] of them."""
        x = self.torch.as_tensor(x, dtype=self.torch.float32, device=like.device).detach()
        x = x.resolve_neg()
        return x.expand(size).contiguous() if x.ndim == 0 else x.contiguous()

    def stream(self, device: int) -> int:
        """The current stream's handle."""
        if self._raw_stream is not None:
            return int(self._raw_stream(device))
        return int(self.torch.cuda.current_stream(device).cuda_stream)


class Cupy:
    """Arrays that are CuPy's; any other that speaks DLPack becomes one of them."""

    def __init__(self) -> None:
        self.cupy = importlib.import_module("cupy")

    def owns(self, x: Any) -> bool:
        """Whether x is such an array."""
        return isinstance(x, self.cupy.ndarray)

    def device(self, x: Any) -> int | None:
        """The number of the CUDA device on which x lies."""
        return x.device.id

    def describe(self, x: Any) -> Any:
        """For the C++ half."""
        strides = tuple(stride // x.itemsize for stride in x.strides)
        return Described(x.data.ptr, x.dtype.name, x.shape, strides)

    def ready(self, x: Any) -> Any:
        """x, copied unless its last dimension is dense and its rows are aligned for kernels."""
        dense = x.ndim == 0 or x.strides[-1] == x.itemsize
        strides = [stride // x.itemsize for stride in x.strides]
        if dense and _aligned(x.data.ptr, x.shape, strides, x.itemsize):
            return x
        with x.device:  # CuPy copies to the current device
            return x.copy(order="C")

    def dense(self, x: Any) -> Any:
        """x, copied unless it is contiguous and begins at a multiple of 16 bytes."""
        if x.flags.c_contiguous and x.data.ptr % 16 == 0:
            return x
        with x.device:  # CuPy copies to the current device
            return x.copy(order="C")

    def empty(self, shape: Sequence[int], like: Any, dtype: str | None = None) -> Any:
        """An array on the device of `like`, whichever is current."""
        with like.device:
            return self.cupy.empty(tuple(shape), dtype or like.dtype)

    def vector(self, x: Any, like: Any, size: int) -> Any:
        """A float32 [size] array on the device of `like`, from one number or [size] of them."""
        with like.device:
            x = self.cupy.asarray(x, dtype=np.float32)
            if x.device.id != like.device.id:
                x = x.copy()
            if x.ndim == 0:
                x = self.cupy.broadcast_to(x, (size,))
            return self.cupy.ascontiguousarray(x)

    def stream(self, device: int) -> int:
        """The handle of the stream that is current on a device, whichever device is."""
        with self.cupy.cuda.Device(device):
            return self.cupy.cuda.get_current_stream().ptr


Library = Torch | Cupy


@functools.lru_cache(maxsize=32)
def name_of(dtype: Any) -> str:
    """torch's bfloat16 is "bfloat16", as NumPy's would be."""
    return str(dtype).removeprefix("torch.")


def _aligned(pointer: int, shape: Sequence[int], strides: Sequence[int], size: int) -> bool:
    """Whether every row of every head begins at a multiple of 16 bytes, where dims allow it.

    Rows or heads that lie upon each other, as torch.expand makes them, or further apart than
    kernels can tell, do not.
    """
    if len(shape) != 3 or size != 2 or shape[2] % 8 != 0:
        return True
    steps = [s for n, s in zip(shape[:2], strides[:2], strict=True) if n > 1]
    inside = all(0 < step * size < FARTHEST for step in steps)
    return inside and pointer % 16 == 0 and all(step * size % 16 == 0 for step in steps)


def pointer(x: Any) -> int:
    """Where an array lies."""
    return x.data_ptr() if hasattr(x, "data_ptr") else x.data.ptr


def lies_on_device(x: Any) -> bool:
    """Whether x is an array on a GPU, of torch or of whoever says so."""
    if (torch := sys.modules.get("torch")) and isinstance(x, torch.Tensor):
        return bool(x.is_cuda)  # one that requires a gradient must not be asked the other way
    return hasattr(x, "__cuda_array_interface__")


def has_cuda_core() -> bool:
    """Whether this build has CUDA."""
    return importlib.util.find_spec("ringside._cuda_core") is not None


@functools.cache
def cuda_core() -> Any:
    """The C++ half, which loads CUDA's runtime."""
    return importlib.import_module("ringside._cuda_core")


def problem() -> str:
    """Why backend="cuda" cannot run here; empty if it can."""
    return cuda_core().problem() if has_cuda_core() else "this build has no CUDA"


@functools.cache  # what was found stays; what was not is looked for again
def require_cuda(
    subject: str = 'backend="cuda"', nearest: str = 'backend="reference" (CPU, float64)'
) -> None:
    """Raises Unsupported where there is no CUDA in the build, or no device.

    Warns of kernels that were compiled to be checked, not to be run: they are right, but slow.

    Args:
        subject: what the caller asked for.
        nearest: what runs without CUDA.
    """
    if reason := problem():
        raise _core.Unsupported(
            f"{subject} cannot run here: {reason}. Nearest supported: {nearest}"
        )
    if cuda_core().QUICK_KERNELS:
        warnings.warn(
            "this build has kernels that are hardly optimized (RINGSIDE_QUICK_KERNELS=ON, as "
            "`./dev test` builds it where there is no GPU); expected those of `pip install .`. "
            "Install that, or expect kernels several times slower",
            RuntimeWarning,
            stacklevel=3,
        )


@functools.lru_cache(maxsize=4)
def _library(kind: type[Torch] | type[Cupy], _module: Any) -> Any:
    """One for as long as its module is loaded."""
    return kind()


def library_of(x: Any) -> Library:
    """Who owns an array; raises TypeError for what does not lie on a device."""
    if (module := sys.modules.get("torch")) and (torch := _library(Torch, module)).owns(x):
        if torch.device(x) is None:
            raise TypeError(
                'a torch tensor on the CPU with backend="cuda"; pass x.cuda(), or use "reference"'
            )
        return torch
    if (module := sys.modules.get("cupy")) and (cupy := _library(Cupy, module)).owns(x):
        return cupy
    name = f"{type(x).__module__}.{type(x).__qualname__}"
    raise TypeError(
        f'a {name} with backend="cuda"; expected device arrays. Pass torch tensors (x.cuda()) '
        f'or CuPy arrays (cupy.asarray(x), cupy.from_dlpack(x)), or use backend="reference"'
    )
