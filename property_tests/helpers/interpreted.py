"""A GPU that is interpreted: torch's tensors on the CPU, in that GPU's memory.

RINGSIDE_INTERPRETED names a ringside._cuda_core that runs the PTX of its kernels (the target
ringside_interpreted_core). All that stands between a call and its kernels is what runs on a GPU.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from ringside._arrays import cuda as _cuda

PATH = os.environ.get("RINGSIDE_INTERPRETED", "")
SHARE = float(os.environ.get("RINGSIDE_SHARE", "1"))  # of the tests, drawn by the seed of the run
ON_DEVICE = 2  # cudaMemoryTypeDevice
MULTIPROCESSORS = 16  # cudaDevAttrMultiProcessorCount


class Pointer(ctypes.Structure):
    """What the runtime says of one: cudaPointerAttributes."""

    _fields_ = (("kind", ctypes.c_int), ("device", ctypes.c_int), ("rest", ctypes.c_void_p * 10))


class Memory:
    """So many bytes of the device: NaN at first, and behind them a page that is nobody's."""

    def __init__(self, bytes_: int) -> None:
        where = ctypes.c_void_p()
        assert runtime().cudaMalloc(ctypes.byref(where), ctypes.c_size_t(bytes_)) == 0
        self.where = where
        shape, place = (bytes_,), (where.value, False)
        self.__array_interface__ = {"data": place, "shape": shape, "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        runtime().cudaFree(self.where)


def runtime() -> Any:
    """The interpreter's CUDA runtime, which the module exports."""
    return ctypes.CDLL(PATH)  # loaded already


def multiprocessors() -> int:
    """Of the device."""
    found = ctypes.c_int()
    assert runtime().cudaDeviceGetAttribute(ctypes.byref(found), MULTIPROCESSORS, 0) == 0
    return found.value


def new(shape: Sequence[int], dtype: Any) -> Any:
    """A tensor on the device."""
    import torch

    bytes_ = math.prod(shape) * dtype.itemsize
    if bytes_ == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.from_numpy(np.asarray(Memory(bytes_))).view(dtype).view(*shape)


def placed(x: Any) -> Any:
    """x, copied to the device unless it lies there. What holds nothing keeps its strides."""
    if x.numel() == 0:
        return x
    found = Pointer()
    runtime().cudaPointerGetAttributes(ctypes.byref(found), ctypes.c_void_p(x.data_ptr()))
    return x if found.kind == ON_DEVICE else new(x.shape, x.dtype).copy_(x.detach())


class Library(_cuda.Torch):
    """Every tensor is on the one device, if need be as a copy."""

    def device(self, x: Any) -> int:
        return 0

    def stream(self, device: int) -> int:
        return 0

    def empty(self, shape: Sequence[int], like: Any, dtype: str | None = None) -> Any:
        return new(shape, getattr(self.torch, dtype) if dtype else like.dtype)

    def ready(self, x: Any) -> Any:
        return placed(super().ready(x))

    def dense(self, x: Any) -> Any:
        return placed(super().dense(x))

    def vector(self, x: Any, like: Any, size: int) -> Any:
        return placed(super().vector(x, like, size))


def install() -> None:
    """In place of the module that asks for a GPU, before anybody has."""
    name = "ringside._cuda_core"
    spec = importlib.util.spec_from_file_location(name, PATH)
    assert spec is not None and spec.loader is not None, PATH
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.QUICK_KERNELS = False  # of which users are warned
    library, of_others = Library(), _cuda.library_of
    _cuda.library_of = lambda x: library if library.owns(x) else of_others(x)


if PATH:
    install()
