"""A ring in NumPy whose eight rules can each be swapped for a wrong one.

It takes global arrays and plays all ranks: each owns two chunks of every document, mirrored, and in
each step attends to the keys of one rank. Every rule stands beside its cure in rules.py; the
loops here are the same for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ringside._core import Mask, PackedLayout
from ringside._rows import valid_rows
from ringside.learn.faults.rules import Array, Rules

Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


class Passes(NamedTuple):
    """What both passes return; 0 in padding."""

    out: Array
    """[rows, num_heads, head_dim]"""
    dq: Array
    dk: Array
    dv: Array


class Tile(NamedTuple):
    """A step of a rank in one document."""

    rank: int
    q: Integers
    """rows of the pack"""
    k: Integers
    visible: Bools
    """[len(q), len(k)]"""


def both_passes(
    rules: Rules,
    ranks: int,
    arrays: tuple[Array, Array, Array, Array],
    layout: PackedLayout,
    mask: Mask,
) -> Passes:
    """out of q, k and v, and the gradients of sum(dout * out); arrays are q, k, v and dout."""
    valid = valid_rows(layout)[:, None, None]
    q, k, dout = (np.where(valid, arrays[i], 0.0) for i in (0, 1, 3))
    v, dout = rules.values(arrays[2], valid), rules.dout(dout) * valid
    kv_head = [rules.kv_head(h, q.shape[1], k.shape[1]) for h in range(q.shape[1])]
    whole = (q, k[:, kv_head], v[:, kv_head])
    result = Passes(*(np.zeros_like(x) for x in (q, *whole)))
    for document in range(layout.num_sequences):
        for tiles in _ranks(rules, ranks, layout, mask, document):
            _one_rank(rules, whole, dout, tiles, result)
    back = (np.zeros_like(arrays[1]), np.zeros_like(arrays[2]))
    for of_kv, of_q in zip(back, result[2:], strict=True):
        np.add.at(of_kv, (slice(None), kv_head), of_q)
    return Passes(*result[:2], *back)


def _one_rank(
    rules: Rules,
    whole: tuple[Array, Array, Array],
    dout: Array,
    tiles: list[Tile],
    result: Passes,
) -> None:
    """Adds what a rank computes of a document to the result."""
    parts = [_forward(whole, tile) for tile in tiles]
    rows = tiles[0].q
    out, lse = rules.merge(parts)
    result.out[rows] = out
    for tile, (of_step, _) in zip(tiles, parts, strict=True):
        dq, dk, dv = _backward(whole, dout, tile, rules.out(of_step, out), lse)
        result.dq[rows] += dq
        result.dk[tile.k] += dk
        result.dv[tile.k] += dv


def _forward(whole: tuple[Array, Array, Array], tile: Tile) -> tuple[Array, Array]:
    """out [rows, heads, dim] and lse [heads, rows] of a step; 0 and -inf where nothing is seen."""
    scores = _scores(whole, tile)
    top = scores.max(axis=2, keepdims=True, initial=-np.inf)
    top = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        lse = np.log(np.exp(scores - top).sum(axis=2)) + top[..., 0]
    return np.einsum("hqk,khd->qhd", _weights(scores, lse), whole[2][tile.k]), lse


def _backward(
    whole: tuple[Array, Array, Array], dout: Array, tile: Tile, out: Array, lse: Array
) -> tuple[Array, Array, Array]:
    q, k, v = (x[rows] for x, rows in zip(whole, (tile.q, tile.k, tile.k), strict=True))
    dout = dout[tile.q]
    p = _weights(_scores(whole, tile), lse)
    dp = np.einsum("qhd,khd->hqk", dout, v)
    ds = p * (dp - (dout * out).sum(axis=2).T[..., None]) * q.shape[2] ** -0.5
    return (
        np.einsum("hqk,khd->qhd", ds, k),
        np.einsum("hqk,qhd->khd", ds, q),
        np.einsum("hqk,qhd->khd", p, dout),
    )


def _scores(whole: tuple[Array, Array, Array], tile: Tile) -> Array:
    """[heads, rows, keys]; -inf where a key is not seen."""
    q, k = whole[0][tile.q], whole[1][tile.k]
    return np.where(tile.visible, np.einsum("qhd,khd->hqk", q, k) * q.shape[2] ** -0.5, -np.inf)


def _weights(scores: Array, lse: Array) -> Array:
    return np.exp(scores - np.where(np.isneginf(lse), 0.0, lse)[..., None])


def _ranks(
    rules: Rules, ranks: int, layout: PackedLayout, mask: Mask, document: int
) -> Iterator[list[Tile]]:
    """The tiles of each rank in a document, step by step."""
    start = int(layout.cu_seqlens_padded[document])
    length, padded = int(layout.lengths[document]), int(layout.padded_lengths[document])
    rows = rules.chunk_rows(length, padded, ranks)
    chunks = [np.arange(c * rows, min((c + 1) * rows, padded)) for c in range(2 * ranks)]
    shards = [np.concatenate([chunks[r], chunks[2 * ranks - 1 - r]]) for r in range(ranks)]
    for rank, of_q in enumerate(shards):
        sources = [shards[(rank - step) % ranks] for step in range(ranks)]
        yield [
            Tile(
                rank, start + of_q, start + of_k, _visible(rules, mask, length, padded, of_q, of_k)
            )
            for of_k in sources
        ]


def _visible(
    rules: Rules, mask: Mask, length: int, padded: int, of_q: Integers, of_k: Integers
) -> Bools:
    """[queries, keys] of positions in a document; padding sees nothing and is not seen."""
    left, right = mask.window_size
    chunk_size = rules.chunk_size(mask.chunk_size, length, padded)
    inside = np.zeros((padded, padded), bool)
    inside[:length, :length] = Mask((-1, right), chunk_size).to_dense(length, length)
    seen = inside[np.ix_(of_q, of_k)]
    if left < 0:
        return seen
    return seen & (rules.places(of_q)[:, None] - rules.places(of_k)[None, :] <= left)
