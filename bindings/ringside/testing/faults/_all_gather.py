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


class Place(NamedTuple):
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


def visible_by_key_chunks(place: Place) -> int:
    """How many keys a call may see: up to the end of the KEYS' chunk, and right more."""
    if place.right is None:
        return place.k.length
    return min(place.k.length, (place.chunk + 1) * place.k.size + place.right)


def visible_by_queries(place: Place) -> int:
    """Up to the position of the chunk's last query, and right more."""
    if place.right is None:
        return place.k.length
    return min(place.k.length, place.start + place.len_q + place.right)


def window_of_longest(place: Place, len_k: int) -> Window:
    """One window for all: what undoes the shift of the diagonal in a sequence of max_seqlen."""
    del len_k
    if place.right is None:
        return place.left, None
    end = (place.chunk + 1) * place.longest // (2 * place.q.cp_size)
    shift = min(place.longest, end + place.right) - end
    return None if place.left is None else place.left + shift, place.right - shift


def window_of_each(place: Place, len_k: int) -> Window:
    """A window per sequence: what undoes the shift of its own diagonal."""
    shift = len_k - place.len_q - place.start
    left = None if place.left is None else place.left + shift
    return left, None if place.right is None else place.right - shift


def bottom_right(place: Place) -> str:
    """What the windows above assume."""
    return "bottom_right"


def top_left_unless_causal(place: Place) -> str:
    """What a wrapper defaults to when nobody passes bottom_right_diagonal."""
    return "bottom_right" if place.right == 0 else "top_left"


def rows_of_chunk(places: list[Place]) -> list[int]:
    """Where each sequence's chunk begins in a rank's rows: prefix sums with offsets."""
    return [place.q.local_begin + place.half * place.q.size for place in places]


def rows_by_prefix_sums(places: list[Place]) -> list[int]:
    """Where a kernel without offsets looks: the chunks' lengths, added up from row 0."""
    return [0, *np.cumsum([place.len_q for place in places]).tolist()][: len(places)]


class Rules(NamedTuple):
    """The arithmetic of the metadata."""

    visible: Callable[[Place], int] = visible_by_queries
    window: Callable[[Place, int], Window] = window_of_each
    align: Callable[[Place], str] = bottom_right
    rows: Callable[[list[Place]], list[int]] = rows_of_chunk


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
            places = _places(plan, chunk, half)
            pieces = _pieces(rules, places)
            part = varlen(q, k, v, pieces, scale_of(q, softmax_scale))
            for place, begin in zip(places, rows_of_chunk(places), strict=True):
                rows = slice(begin, begin + place.len_q)  # copy_valid_tokens
                out[rows], lse[:, rows] = part[0][rows], part[1][:, rows]
        results.append((out, lse))
    return results


def _places(plan: rs.Plan, chunk: int, half: int) -> list[Place]:
    left, right = (bound(side) for side in plan.mask.window_size)
    longest = int(plan.layout_q.padded_lengths.max(initial=0))
    pairs = (chunks_of(layout, plan.cp_size) for layout in (plan.layout_q, plan.layout_k))
    return [Place(q, k, chunk, half, longest, left, right) for q, k in zip(*pairs, strict=True)]


def _pieces(rules: Rules, places: list[Place]) -> list[Piece]:
    pieces = []
    for place, begin in zip(places, rules.rows(places), strict=True):
        len_k = rules.visible(place)
        left, right = rules.window(place, len_k)
        pieces.append(
            Piece(begin, place.len_q, place.k.begin, len_k, left, right, rules.align(place))
        )
    return pieces
