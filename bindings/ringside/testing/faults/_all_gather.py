"""The all-gather transport: K and V whole on every rank, two kernel calls for a rank's two chunks.

A call describes chunk c of every sequence by prefix sums and ONE window, under a diagonal that the
kernel derives from the lengths (bottom-right: the last query stands at the last key). Position is
not a value anywhere, so it has to come out of lengths, chunk number, window and flag together. The
functions of Rules are the four places where it can go wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import ringside as rs
from ringside.testing.faults._varlen import (
    Array,
    Chunks,
    Partial,
    Piece,
    bound,
    chunks_of,
    nothing,
    scale_of,
    varlen,
)


class ChunkCall(NamedTuple):
    """One sequence's chunk, of which a call is made."""

    q: Chunks
    k: Chunks
    chunk: int
    half: int
    """0 for the rank's first chunk, 1 for its second"""
    longest: int
    """padded, of all sequences: the peers' max_seqlen"""
    left: int | None
    right: int | None

    @property
    def start(self) -> int:
        """The position of the chunk's first query."""
        return self.chunk * self.q.size

    @property
    def len_q(self) -> int:
        """Tokens in the chunk."""
        return self.q.valid(self.chunk)


Window = tuple[int | None, int | None]


def visible_by_key_chunks(call: ChunkCall) -> int:
    """How many keys a call may see: up to the end of the KEYS' chunk, and right more."""
    if call.right is None:
        return call.k.length
    return min(call.k.length, (call.chunk + 1) * call.k.size + call.right)


def visible_by_queries(call: ChunkCall) -> int:
    """Up to the position of the chunk's last query, and right more."""
    if call.right is None:
        return call.k.length
    return min(call.k.length, call.start + call.len_q + call.right)


def window_of_longest(call: ChunkCall, len_k: int) -> Window:
    """One window for all: what undoes the shift of the diagonal in a sequence of max_seqlen."""
    del len_k
    if call.right is None:
        return call.left, None
    end = (call.chunk + 1) * call.longest // (2 * call.q.cp_size)
    shift = min(call.longest, end + call.right) - end
    return None if call.left is None else call.left + shift, call.right - shift


def window_of_each(call: ChunkCall, len_k: int) -> Window:
    """A window per sequence: what undoes the shift of its own diagonal."""
    shift = len_k - call.len_q - call.start
    left = None if call.left is None else call.left + shift
    return left, None if call.right is None else call.right - shift


def bottom_right(call: ChunkCall) -> str:
    """What the windows above assume."""
    return "bottom_right"


def top_left_unless_causal(call: ChunkCall) -> str:
    """What a wrapper defaults to when nobody passes bottom_right_diagonal."""
    return "bottom_right" if call.right == 0 else "top_left"


def rows_of_chunk(calls: list[ChunkCall]) -> list[int]:
    """Where each sequence's chunk begins in a rank's rows: prefix sums with offsets."""
    return [call.q.local_begin + call.half * call.q.size for call in calls]


def rows_by_prefix_sums(calls: list[ChunkCall]) -> list[int]:
    """Where a kernel without offsets looks: the chunks' lengths, added up from row 0."""
    return [0, *np.cumsum([call.len_q for call in calls]).tolist()][: len(calls)]


class Rules(NamedTuple):
    """The arithmetic of the metadata."""

    visible: Callable[[ChunkCall], int] = visible_by_queries
    window: Callable[[ChunkCall, int], Window] = window_of_each
    align: Callable[[ChunkCall], str] = bottom_right
    rows: Callable[[list[ChunkCall]], list[int]] = rows_of_chunk


def all_gather(
    rules: Rules, shards: tuple[list[Array], ...], plan: rs.Plan, softmax_scale: float | None
) -> list[Partial]:
    """Every rank's (out, lse); shards are qs, ks and vs."""
    if plan.mask.chunk_size or plan.mask.align != "top_left":
        raise NotImplementedError("attention chunks, bottom-right masks")
    qs, k, v = shards[0], *(plan.unshard(x, side="k") for x in shards[1:])
    results = []
    for rank, q in enumerate(qs):
        out, lse = nothing(q, v)
        for half, chunk in enumerate((rank, 2 * plan.cp_size - 1 - rank)):
            calls = _calls(plan, chunk, half)
            pieces = _pieces(rules, calls)
            part = varlen(q, k, v, pieces, scale_of(q, softmax_scale))
            for call, begin in zip(calls, rows_of_chunk(calls), strict=True):
                rows = slice(begin, begin + call.len_q)  # copy_valid_tokens
                out[rows], lse[:, rows] = part[0][rows], part[1][:, rows]
        results.append((out, lse))
    return results


def _calls(plan: rs.Plan, chunk: int, half: int) -> list[ChunkCall]:
    left, right = (bound(side) for side in plan.mask.window_size)
    longest = int(plan.layout_q.padded_lengths.max(initial=0))
    pairs = (chunks_of(layout, plan.cp_size) for layout in (plan.layout_q, plan.layout_k))
    return [ChunkCall(q, k, chunk, half, longest, left, right) for q, k in zip(*pairs, strict=True)]


def _pieces(rules: Rules, calls: list[ChunkCall]) -> list[Piece]:
    pieces = []
    for call, begin in zip(calls, rules.rows(calls), strict=True):
        len_k = rules.visible(call)
        left, right = rules.window(call, len_k)
        pieces.append(Piece(begin, call.len_q, call.k.begin, len_k, left, right, rules.align(call)))
    return pieces
