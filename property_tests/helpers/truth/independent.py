"""Plain NumPy truths, written from the documentation; they share no code with the library."""

from __future__ import annotations

import numpy as np
import ringside as rs


def dense_mask(mask: rs.Mask, len_q: int, len_k: int) -> np.ndarray:
    """[len_q, len_k] bool, from window_size, chunk_size and align alone."""
    left, right = mask.window_size
    shift = len_k - len_q if mask.align == "bottom_right" else 0
    p = np.arange(len_q, dtype=np.int64)[:, None] + shift
    k = np.arange(len_k, dtype=np.int64)[None, :]
    seen = np.ones((len_q, len_k), bool)
    if left != -1:
        seen &= k >= p - left
    if right != -1:
        seen &= k <= p + right
    if mask.chunk_size:
        seen &= np.floor_divide(p, mask.chunk_size) == np.floor_divide(k, mask.chunk_size)
    return seen


def split(x: np.ndarray, layout: rs.PackedLayout) -> list[np.ndarray]:
    """The valid rows of each sequence."""
    starts, lengths = layout.cu_seqlens_padded, np.diff(layout.cu_seqlens)
    return [x[begin : begin + n] for begin, n in zip(starts[:-1], lengths, strict=True)]


def seeing_rows(mask: rs.Mask, layout_q: rs.PackedLayout, layout_k: rs.PackedLayout) -> np.ndarray:
    """[rows_q] True where a token sees at least one key."""
    seeing = np.zeros(layout_q.num_rows, bool)
    for s in range(layout_q.num_sequences):
        dense = dense_mask(mask, int(layout_q.lengths[s]), int(layout_k.lengths[s]))
        begin = layout_q.cu_seqlens_padded[s]
        seeing[begin : begin + len(dense)] = dense.any(axis=1)
    return seeing


def seen_rows(mask: rs.Mask, layout_q: rs.PackedLayout, layout_k: rs.PackedLayout) -> np.ndarray:
    """[rows_k] True where at least one query sees the token."""
    seen = np.zeros(layout_k.num_rows, bool)
    for s in range(layout_k.num_sequences):
        dense = dense_mask(mask, int(layout_q.lengths[s]), int(layout_k.lengths[s]))
        begin = layout_k.cu_seqlens_padded[s]
        seen[begin : begin + dense.shape[1]] = dense.any(axis=0)
    return seen


def visible_pairs(mask: rs.Mask, layout_q: rs.PackedLayout, layout_k: rs.PackedLayout) -> int:
    """How many (query, key) pairs one head computes."""
    lengths = zip(layout_q.lengths.tolist(), layout_k.lengths.tolist(), strict=True)
    return sum(int(dense_mask(mask, n_q, n_k).sum()) for n_q, n_k in lengths)
