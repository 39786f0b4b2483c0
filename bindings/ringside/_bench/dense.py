"""Attention as one writes it in NumPy: dense, float64, one document and head at a time.

The measure for `ringside bench cpu`; temporary arrays are reused where NumPy lets one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ringside.testing._problems import Array

Integers = npt.NDArray[np.int32]


def causal_forward(q: Array, k: Array, v: Array, cu_seqlens: Integers) -> tuple[Array, Array]:
    """(out [rows, heads, dim], lse [heads, rows])."""
    group, scale = q.shape[1] // k.shape[1], q.shape[2] ** -0.5
    out, lse = np.empty((*q.shape[:2], v.shape[2])), np.empty(q.shape[1::-1])
    for begin, end in _documents(cu_seqlens):
        bias = np.where(np.tri(end - begin, dtype=bool), 0.0, -np.inf)
        for head in range(q.shape[1]):
            scores = q[begin:end, head] @ k[begin:end, head // group].T
            scores *= scale
            scores += bias
            top = scores.max(axis=1, keepdims=True)
            scores -= top
            np.exp(scores, out=scores)
            total = scores.sum(axis=1, keepdims=True)
            out[begin:end, head] = scores @ v[begin:end, head // group] / total
            lse[head, begin:end] = (top + np.log(total))[:, 0]
    return out, lse


def causal_backward(
    dout: Array, qkv: tuple[Array, Array, Array], saved: tuple[Array, Array], cu_seqlens: Integers
) -> tuple[Array, Array, Array]:
    """(dq, dk, dv), shaped like q, k and v; saved is what causal_forward returned."""
    (q, k, v), (out, lse) = qkv, saved
    group, scale = q.shape[1] // k.shape[1], q.shape[2] ** -0.5
    dq, dk, dv = np.empty_like(q), np.zeros_like(k), np.zeros_like(v)
    for begin, end in _documents(cu_seqlens):
        bias = np.where(np.tri(end - begin, dtype=bool), 0.0, -np.inf)
        rows = slice(begin, end)
        for head in range(q.shape[1]):
            kv_head = head // group
            p = q[rows, head] @ k[rows, kv_head].T
            p *= scale
            p -= lse[head, rows, None]
            p += bias
            np.exp(p, out=p)
            ds = dout[rows, head] @ v[rows, kv_head].T
            ds -= (dout[rows, head] * out[rows, head]).sum(axis=1, keepdims=True)
            ds *= p
            ds *= scale
            dq[rows, head] = ds @ k[rows, kv_head]
            dk[rows, kv_head] += ds.T @ q[rows, head]
            dv[rows, kv_head] += p.T @ dout[rows, head]
    return dq, dk, dv


def _documents(cu_seqlens: Integers) -> list[tuple[int, int]]:
    return list(zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True))
