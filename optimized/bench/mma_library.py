"""The C functions of mma_check.cu, called with torch tensors."""

from __future__ import annotations

import ctypes

import numpy as np
import torch

NONE = -1  # no bound on that side
FULL, CAUSAL, BOTTOM_RIGHT = (NONE, NONE, 0, 0), (NONE, 0, 0, 0), (NONE, 0, 0, 1)
ELEMENTS = {torch.float16: 1, torch.bfloat16: 2}


class Matrix(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("row", ctypes.c_int64), ("head", ctypes.c_int64))

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Matrix:
        return cls(tensor.data_ptr(), tensor.stride(0), tensor.stride(1))


def cumulative(lens: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lens)]).astype(np.int32)


class Library:
    def __init__(self, path: str) -> None:
        self.path = path
        self.library = ctypes.CDLL(path)
        self.library.ringside_lists.restype = ctypes.c_void_p

    def lists(self, shape, q_segments, k_segments, lens_q, lens_k, mask):
        q, k = (np.array(s, np.int32).reshape(-1, 5) for s in (q_segments, k_segments))
        cu_q, cu_k = cumulative(lens_q), cumulative(lens_k)
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (q, k, cu_q, cu_k)]
        mask_ints = (ctypes.c_int * 4)(*mask)
        return ctypes.c_void_p(
            self.library.ringside_lists(
                shape,
                pointers[0],
                len(q),
                pointers[1],
                len(k),
                pointers[2],
                pointers[3],
                len(lens_q),
                mask_ints,
            )
        )

    def forward(self, lists, shape, scale, matrices, lse):
        operands = (Matrix * 4)(*map(Matrix.of, matrices))
        status = self.library.ringside_forward(
            lists, shape, ctypes.c_float(scale), operands, ctypes.c_void_p(lse.data_ptr()), stream()
        )
        assert status == 0, f"forward: CUDA error {status}"

    def backward(self, lists, shape, scale, matrices, lse, delta, deterministic):
        operands = (Matrix * 7)(*map(Matrix.of, matrices))
        status = self.library.ringside_backward(
            lists,
            shape,
            ctypes.c_float(scale),
            operands,
            ctypes.c_void_p(lse.data_ptr()),
            ctypes.c_void_p(delta.data_ptr()),
            int(deterministic),
            stream(),
        )
        assert status == 0, f"backward: CUDA error {status}"


def stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def shape_of(heads: int, kv_heads: int, dims: tuple[int, int], dtype: torch.dtype):
    return (ctypes.c_int * 8)(heads, kv_heads, 0, 0, heads // kv_heads, *dims, ELEMENTS[dtype])
