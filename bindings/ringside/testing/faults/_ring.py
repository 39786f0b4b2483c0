"""The ring transport: KV travels, each step's partial result is merged into the rank's own.

`ring` is the peers' (sections: diagonal, lower, upper, all). `ring_by_positions` sees each step's
rows at their positions and so takes any mask; what it lends itself to is the merge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import ringside as rs
from ringside.testing.dtypes import round_to
from ringside.testing.faults._varlen import (
    Array,
    Partial,
    Piece,
    attend,
    chunks_of,
    merge,
    nothing,
    scale_of,
    varlen,
)


class Lengths(NamedTuple):
    """Where one sequence lies in a rank's rows, and how many of them are tokens."""

    begin: int
    rows: int
    first: int
    """tokens of the first half"""
    second: int


Metadata = Callable[[rs.PackedLayout, int, int], list[Lengths]]


def exact_lengths(layout: rs.PackedLayout, cp_size: int, rank: int) -> list[Lengths]:
    """Tokens counted chunk by chunk, rows where the padded sequences lie."""
    return [
        Lengths(chunks.local_begin, 2 * chunks.size, *chunks.halves(rank))
        for chunks in chunks_of(layout, cp_size)
    ]


def divided_lengths(layout: rs.PackedLayout, cp_size: int, rank: int) -> list[Lengths]:
    """cu_seqlens // cp_size: the same on every rank, rounded down."""
    chunks_of(layout, cp_size)
    whole = (layout.cu_seqlens // cp_size).tolist()
    half = np.diff(layout.cu_seqlens // (2 * cp_size)).tolist()
    sizes = np.diff(whole).tolist()
    return [Lengths(begin, n, h, n - h) for begin, n, h in zip(whole, sizes, half, strict=False)]


def ring(
    metadata: Metadata,
    shards: tuple[Sequence[Array], ...],
    plan: rs.Plan,
    softmax_scale: float | None,
) -> list[Partial]:
    """Every rank's (out, lse), causal or full; shards are qs, ks and vs."""
    if plan.mask.window_size not in ((-1, 0), (-1, -1)) or plan.mask.chunk_size:
        raise NotImplementedError("windows, attention chunks")
    qs, ks, vs = shards
    results = []
    for rank, q in enumerate(qs):
        mine = metadata(plan.layout_q, plan.cp_size, rank)
        result = nothing(q, vs[rank])
        for step in range(plan.cp_size):
            source = (rank - step) % plan.cp_size
            theirs = metadata(plan.layout_k, plan.cp_size, source)
            pieces = section(plan, mine, theirs, (rank, source))
            scale = scale_of(q, softmax_scale)
            result = merge(result, varlen(q, ks[source], vs[source], pieces, scale))
        results.append(result)
    return results


def section(
    plan: rs.Plan, mine: list[Lengths], theirs: list[Lengths], ranks: tuple[int, int]
) -> list[Piece]:
    """Which rows of a rank meet which of another's."""
    rank, source = ranks
    causal = plan.mask.window_size == (-1, 0)
    pieces = []
    for q, k in zip(mine, theirs, strict=True):
        whole_q, whole_k = (q.begin, q.first + q.second), (k.begin, k.first + k.second)
        if not causal:
            pieces.append(Piece(*whole_q, *whole_k))
        elif source == rank:
            pieces.append(Piece(*whole_q, *whole_k, right=0, align="top_left"))
        elif source < rank:
            pieces.append(Piece(*whole_q, k.begin, k.first))
        else:
            pieces.append(Piece(q.begin + q.rows // 2, q.second, *whole_k))
    return pieces


Merge = Callable[[list[Partial]], Partial]


def merge_elementwise(parts: list[Partial]) -> Partial:
    """lse first, over all steps, as max + log1p(exp(min - max)); then out, where it is not 0."""
    lse = parts[0][1]
    with np.errstate(invalid="ignore"):
        for _, other in parts[1:]:
            low, high = np.minimum(lse, other), np.maximum(lse, other)
            lse = high + np.log1p(np.exp(low - high))  # -inf - -inf is NaN
        out = np.zeros_like(parts[0][0])
        for part, own in parts:
            weight = np.exp(own - lse).T[..., None]
            out = out + np.where(part == 0, 0.0, part * weight)
    return out, lse


def merge_all(parts: list[Partial]) -> Partial:
    """With (0, -inf) as the neutral element it is."""
    result = parts[0]
    for part in parts[1:]:
        result = merge(result, part)
    return result


def merge_in_bfloat16(parts: list[Partial]) -> Partial:
    """out accumulated in the type of the inputs: every step rounds it."""
    lse = merge_all(parts)[1]
    base = np.where(np.isneginf(lse), 0.0, lse)
    out = np.zeros_like(parts[0][0])
    for part, own in parts:
        weighed = round_to(part, "bfloat16") * np.exp(own - base).T[..., None]
        out = round_to(out + weighed, "bfloat16")
    return out, lse


def ring_by_positions(
    merge: Merge, shards: tuple[Sequence[Array], ...], plan: rs.Plan, softmax_scale: float | None
) -> list[Partial]:
    """Every rank's (out, lse), any mask."""
    qs, ks, vs = shards
    results = []
    for rank, q in enumerate(qs):
        parts = []
        for step in range(plan.cp_size):
            source = (rank - step) % plan.cp_size
            visible = _visible(plan, rank, source)
            k, v = (np.where(np.isnan(x), 0.0, x) for x in (ks[source], vs[source]))
            parts.append(
                attend(np.where(np.isnan(q), 0.0, q), k, v, visible, scale_of(q, softmax_scale))
            )
        results.append(merge(parts))
    return results


def _visible(plan: rs.Plan, rank: int, source: int) -> Any:
    """[rows of rank, rows of source]"""
    sides = ((plan.layout_q, rank, "q"), (plan.layout_k, source, "k"))
    (seq_q, pos_q), (seq_k, pos_k) = (_documents(plan, *side) for side in sides)
    seen = np.zeros((len(seq_q), len(seq_k)), bool)
    for s, lengths in enumerate(zip(plan.layout_q.lengths, plan.layout_k.lengths, strict=True)):
        dense = plan.mask.to_dense(*(int(n) for n in lengths))
        q, k = (
            (of == s) & (at < n)
            for of, at, n in zip((seq_q, seq_k), (pos_q, pos_k), lengths, strict=True)
        )
        seen[np.ix_(q, k)] = dense[np.ix_(pos_q[q], pos_k[k])]
    return seen


def _documents(plan: rs.Plan, layout: rs.PackedLayout, rank: int, side: Any) -> tuple[Any, Any]:
    """The document and position of every row of a rank."""
    rows = plan.row_indices(rank, side=side)
    documents = np.searchsorted(layout.cu_seqlens_padded, rows, side="right") - 1
    return documents, plan.position_ids(rank, side=side)
