"""Attention chunks over the ring: prefix sums in which each chunk is a sequence of its own.

A rank r holds two halves of h tokens of every sequence, from r*h and from (2*cp-1-r)*h on. On the
diagonal they are cut at multiples of the chunk size; a chunk that the first half begins and the
second half ends is one piece, causal in local order. Off the diagonal at most one chunk of a
sequence meets both ranks' rows, and it needs no mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ringside as rs
from ringside.testing.faults._varlen import (
    Array,
    Chunks,
    Partial,
    Piece,
    chunks_of,
    merge,
    nothing,
    scale_of,
    varlen,
)

Cuts = Callable[[int, int, int, int], list[int]]


def all_cuts(rank: int, cp_size: int, h: int, chunk: int) -> list[int]:
    """Local rows where pieces end, at every multiple of chunk.

    >>> all_cuts(0, 2, 6, 2), all_cuts(1, 2, 6, 8)
    ([2, 4, 6, 8, 10, 12], [2, 10, 12])
    """
    first, second = rank * h, (2 * cp_size - 1 - rank) * h
    cuts = [at - first for at in range(first + 1, first + h) if at % chunk == 0]
    if (first + h - 1) // chunk != second // chunk:
        cuts.append(h)
    cuts += [h + at - second for at in range(second + 1, second + h) if at % chunk == 0]
    return [*cuts, 2 * h]


def merged_cuts(rank: int, cp_size: int, h: int, chunk: int) -> list[int]:
    """What the peer's kernel emits: interior chunks of a half come out as one.

    The first half keeps its first and its last cut, the second half its first.

    >>> merged_cuts(0, 2, 6, 2), merged_cuts(1, 2, 6, 8)
    ([2, 4, 6, 8, 12], [2, 10, 12])
    """
    cuts = all_cuts(rank, cp_size, h, chunk)
    inside_first = [at for at in cuts if at < h]
    inside_second = [at for at in cuts if h < at < 2 * h]
    at_h = [h] if h in cuts else []
    return sorted({*inside_first[:1], *inside_first[-1:], *at_h, *inside_second[:1], 2 * h})


def chunk_ring(
    cuts: Cuts, shards: tuple[Sequence[Array], ...], plan: rs.Plan, softmax_scale: float | None
) -> list[Partial]:
    """Every rank's (out, lse), causal inside chunks; shards are qs, ks and vs."""
    if plan.mask.window_size != (-1, 0) or not plan.mask.chunk_size:
        raise NotImplementedError("anything but causal attention chunks")
    qs, ks, vs = shards
    results = []
    for rank, q in enumerate(qs):
        result = nothing(q, vs[rank])
        for step in range(plan.cp_size):
            source = (rank - step) % plan.cp_size
            pieces: list[Piece] = []
            for chunks in chunks_of(plan.layout_q, plan.cp_size):
                pieces += _section(cuts, chunks, (rank, source), plan.mask.chunk_size)
            scale = scale_of(q, softmax_scale)
            result = merge(result, varlen(q, ks[source], vs[source], pieces, scale))
        results.append(result)
    return results


def _section(cuts: Cuts, chunks: Chunks, ranks: tuple[int, int], chunk: int) -> list[Piece]:
    if chunks.length != chunks.padded:
        raise NotImplementedError("padding")
    rank, source = ranks
    if not chunks.size:
        return []
    if source < rank:
        return _below_diagonal(chunks, ranks, chunk)
    if source > rank:
        return _above_diagonal(chunks, ranks, chunk)
    ends = cuts(rank, chunks.cp_size, chunks.size, chunk)
    begins = [0, *ends[:-1]]
    at = chunks.local_begin
    spans = [(at + begin, end - begin) for begin, end in zip(begins, ends, strict=True)]
    return [Piece(*span, *span, right=0) for span in spans]


def _below_diagonal(chunks: Chunks, ranks: tuple[int, int], chunk: int) -> list[Piece]:
    """The keys come earlier: only the other rank's first half, and only its last chunk."""
    (rank, source), h, at = ranks, chunks.size, chunks.local_begin
    second = (2 * chunks.cp_size - 1 - rank) * h
    number = ((source + 1) * h - 1) // chunk
    if number != rank * h // chunk:
        return []
    len_k = min(h, (source + 1) * h - number * chunk)
    end = (number + 1) * chunk
    len_q = min(h, end - rank * h) if number != second // chunk else min(2 * h, h + end - second)
    return [Piece(at, len_q, at + h - len_k, len_k)]


def _above_diagonal(chunks: Chunks, ranks: tuple[int, int], chunk: int) -> list[Piece]:
    """The queries come later: only the own second half, and only its first chunk."""
    (rank, source), h, at = ranks, chunks.size, chunks.local_begin
    second, end_k = (2 * chunks.cp_size - 1 - rank) * h, (2 * chunks.cp_size - source) * h
    number = second // chunk
    if number != (end_k - 1) // chunk:
        return []
    len_q = min(h, (number + 1) * chunk - second)
    if number != ((source + 1) * h - 1) // chunk:
        len_k = min(h, (end_k - 1) % chunk + 1)
    else:
        len_k = min(2 * h, h + ((source + 1) * h - 1) % chunk + 1)
    return [Piece(at + h, len_q, at + 2 * h - len_k, len_k)]
