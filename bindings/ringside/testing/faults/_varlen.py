"""One call of a variable-length attention kernel, as the peers describe it, by its contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import ringside as rs

Array = npt.NDArray[np.float64]
Partial = tuple[Array, Array]
"""out [rows, heads, dim] and lse [heads, rows]; 0 and -inf where nothing was seen"""


class Piece(NamedTuple):
    """One sequence of a call: valid rows of q and of k and v, and its window."""

    begin_q: int
    len_q: int
    begin_k: int
    len_k: int
    left: int | None = None
    """None: unbounded"""
    right: int | None = None
    align: str = "bottom_right"

    def visible(self) -> npt.NDArray[np.bool_]:
        """[len_q, len_k]: i+d-left <= j <= i+d+right, d = len_k - len_q if bottom_right, else 0."""
        shift = self.len_k - self.len_q if self.align == "bottom_right" else 0
        distance = np.arange(self.len_k)[None, :] - np.arange(self.len_q)[:, None] - shift
        seen = np.ones(distance.shape, bool)
        if self.left is not None:
            seen &= distance >= -self.left
        if self.right is not None:
            seen &= distance <= self.right
        return seen


def bound(of_window: int) -> int | None:
    """A side of a window_size: -1 is unbounded."""
    return None if of_window == -1 else of_window


def scale_of(q: Array, softmax_scale: float | None) -> float:
    """With its default filled in."""
    return q.shape[2] ** -0.5 if softmax_scale is None else softmax_scale


def nothing(q: Array, v: Array) -> Partial:
    """The result of rows that no piece covers."""
    return np.zeros((*q.shape[:2], v.shape[2])), np.full((q.shape[1], q.shape[0]), -np.inf)


def attend(q: Array, k: Array, v: Array, visible: npt.NDArray[np.bool_], scale: float) -> Partial:
    """Dense attention of all rows of q and k; rows that see nothing are 0, -inf."""
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    s = np.where(visible, scale * np.einsum("qhd,khd->hqk", q, k), -np.inf)
    top = s.max(axis=2, keepdims=True, initial=-np.inf)
    p = np.exp(s - np.where(np.isneginf(top), 0.0, top))
    z = p.sum(axis=2, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.log(z[..., 0]) + np.where(np.isneginf(top[..., 0]), 0.0, top[..., 0])
    return np.einsum("hqk,khd->qhd", p / np.where(z > 0, z, 1.0), v), lse


def varlen(q: Array, k: Array, v: Array, pieces: Sequence[Piece], scale: float) -> Partial:
    """Every piece by itself; rows outside all of them are 0, -inf."""
    out, lse = nothing(q, v)
    for piece in pieces:
        rows = slice(piece.begin_q, piece.begin_q + piece.len_q)
        keys = slice(piece.begin_k, piece.begin_k + piece.len_k)
        cut = piece._replace(len_q=len(q[rows]), len_k=len(k[keys]))  # arrays may end earlier
        part = attend(q[rows], k[keys], v[keys], cut.visible(), scale)
        out[rows], lse[:, rows] = part
    return out, lse


def merge(a: Partial, b: Partial) -> Partial:
    """Two results of the same rows over different keys; (0, -inf) is neutral."""
    with np.errstate(invalid="ignore"):
        lse = np.logaddexp(a[1], b[1])
    base = np.where(np.isneginf(lse), 0.0, lse)
    weigh_a, weigh_b = (np.exp(x[1] - base).T[..., None] for x in (a, b))
    return weigh_a * a[0] + weigh_b * b[0], lse


class Chunks(NamedTuple):
    """The dual chunks of one sequence: 2*cp_size of them, rank r holds r, then 2*cp_size-1-r."""

    length: int
    padded: int
    begin: int
    """its first row among all sequences'"""
    cp_size: int

    @property
    def size(self) -> int:
        """Rows of a chunk."""
        return self.padded // (2 * self.cp_size)

    @property
    def local_begin(self) -> int:
        """Its first row on every rank."""
        return self.begin // self.cp_size

    def valid(self, chunk: int) -> int:
        """Tokens in a chunk."""
        return int(np.clip(self.length - chunk * self.size, 0, self.size))

    def halves(self, rank: int) -> tuple[int, int]:
        """Tokens in a rank's first and second chunk."""
        return self.valid(rank), self.valid(2 * self.cp_size - 1 - rank)


def chunks_of(layout: rs.PackedLayout, cp_size: int) -> list[Chunks]:
    """Every sequence's; as the peers', they need padded lengths that 2*cp_size divides."""
    if (layout.padded_lengths % (2 * cp_size)).any():
        raise NotImplementedError("padded lengths must be multiples of 2*cp_size")
    rows = zip(
        layout.lengths.tolist(),
        layout.padded_lengths.tolist(),
        layout.cu_seqlens_padded.tolist(),
        strict=False,
    )
    return [Chunks(*each, cp_size) for each in rows]
