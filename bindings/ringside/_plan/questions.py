"""Questions about one pair or one row of a plan: who computes it, and how an answer comes together.

What is told is read off the plan's tiles, never computed a second way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ringside import _core
from ringside._arguments.gradients import without_gradients
from ringside._arguments.kinds import imported
from ringside._core import InvalidArgument, arguments

if TYPE_CHECKING:
    from ringside._plan.plan import Plan


class Place(NamedTuple):
    """Where a pair is computed.

    Attributes:
        rank: who computes it.
        step: when.
        tile: the number of the tile, among those of the rank's step.
        heads: [begin, end) of the query heads for which this is so.
        q_row: of the rank's queries in that step.
        k_row: of the keys it holds in that step.
    """

    rank: int
    step: int
    tile: int
    heads: tuple[int, int]
    q_row: int
    k_row: int


@dataclass(frozen=True)
class Who:
    """An answer of Plan.who; str() is a sentence.

    Attributes:
        row: of the pack's queries.
        key: of the pack's keys.
        why_not: why nobody computes the pair, in words; empty where somebody does.
        places: one for each range of heads.
    """

    row: int
    key: int
    why_not: str
    places: tuple[Place, ...]

    def __str__(self) -> str:
        if self.why_not:
            return f"Nobody computes row {self.row} with key {self.key}: {self.why_not}."
        parts = [
            f"rank {p.rank} in step {p.step}, tile {p.tile}, from rows {p.q_row} and {p.k_row}"
            + (f" for heads {p.heads[0]} to {p.heads[1] - 1}" if len(self.places) > 1 else "")
            for p in self.places
        ]
        return f"Row {self.row} with key {self.key}: {'; '.join(parts)}."


class Part(NamedTuple):
    """What a step contributes to the answer of one row and head.

    Attributes:
        step: of the plan.
        rank: who computes it.
        owners: ranks at home to the keys that the row sees in this step.
        keys: how many those are.
        lse: of their scores, natural logarithm; -inf where there are none.
        share: of the weights of all keys that the row sees, in [0, 1].
    """

    step: int
    rank: int
    owners: tuple[int, ...]
    keys: int
    lse: float
    share: float


def who(self: Plan, row: int, key: int) -> Who:
    """Who computes a pair, when and from which rows; or why nobody does.

    Args:
        row: of the pack's queries, 0 to num_rows_q - 1.
        key: row of the pack's keys.

    Raises:
        InvalidArgument: no such row.

    >>> import ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
    >>> print(plan.who(5, 1))
    Row 5 with key 1: rank 1 in step 1, tile 0, from rows 3 and 1.
    >>> print(plan.who(1, 5))
    Nobody computes row 1 with key 5: position 1 of document 0 sees keys 0 to 1, not 5.
    """
    row = _row(self.layout_q, row, "row")
    key = _row(self.layout_k, key, "key")
    asked, wanted = _document(self.layout_q, row), _document(self.layout_k, key)
    why = _why_not(self, asked, wanted)
    places = () if why else tuple(_places(self, asked, wanted))
    return Who(row, key, why, places)


@without_gradients("Plan.attention(), whose out torch differentiates")
def story(self: Plan, row: int, q: Any = None, k: Any = None, *, head: int = 0) -> list[Part]:
    """How the answer of a row comes together, step by step.

    Args:
        row: of the pack's queries.
        q: [rows, num_heads, dim] of the pack; default: all keys weigh alike.
        k: [rows, num_kv_heads, dim] likewise; scores are q . k / sqrt(dim).
        head: query head.

    Returns:
        What each step adds: who, whose keys, how many, their lse and share. Nothing for padding
        and for a row that sees nothing.

    Raises:
        InvalidArgument: no such row or head, arrays of other shapes, or one of the two.

    >>> import ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
    >>> [(part.step, part.owners, part.keys, round(part.share, 3)) for part in plan.story(7)]
    [(0, (0,), 4, 0.5), (1, (1,), 4, 0.5)]
    """
    row = _row(self.layout_q, row, "row")
    head = arguments.integer(head, "head")
    if not 0 <= head < self.num_heads:
        raise InvalidArgument(
            f"head {head}; expected 0 to {self.num_heads - 1}, the query heads of the plan"
        )
    if (q is None) != (k is None):
        raise InvalidArgument("one of q and k; expected both or neither. Pass both")
    seq, position = _document(self.layout_q, row)
    if position is None:
        return []
    scores = _scores(self, row, q, k, head)
    owner = _owners(self)
    first = int(self.layout_k.cu_seqlens_padded[seq])
    visible = _visible(self, seq, position)
    parts = []
    for rank in range(self.cp_size):
        for number, step in enumerate(self.steps(rank)):
            here = step.heads[0] <= head < step.heads[1]
            seen = first + _keys_of(step, seq, position, visible if here else (0, 0))
            if len(seen):
                parts.append((number, rank, seen))
    parts.sort(key=lambda part: part[0])
    sums = [_log_sum_exp(scores[seen]) for _, _, seen in parts]
    total = _log_sum_exp(np.array(sums)) if sums else -math.inf
    return [
        Part(
            step, rank, tuple(np.unique(owner[seen]).tolist()), len(seen), lse, _weight(lse, total)
        )
        for (step, rank, seen), lse in zip(parts, sums, strict=True)
    ]


def _row(layout: _core.PackedLayout, row: int, name: str) -> int:
    row = arguments.integer(row, name)
    if not layout.num_rows:
        raise InvalidArgument(
            f"{name} {row}; the pack has no rows. Ask a plan of a pack that has some"
        )
    if not 0 <= row < layout.num_rows:
        raise InvalidArgument(
            f"{name} {row}; expected 0 to {layout.num_rows - 1}, rows of the pack"
        )
    return row


def _document(layout: _core.PackedLayout, row: int) -> tuple[int, int | None]:
    """(sequence, position in it); the position is None for padding."""
    begins, offsets = np.asarray(layout.cu_seqlens_padded), np.asarray(layout.cu_seqlens)
    seq = int(np.searchsorted(begins, row, side="right")) - 1
    if seq >= layout.num_sequences:
        return seq, None
    position = row - int(begins[seq])
    return seq, position if position < int(offsets[seq + 1] - offsets[seq]) else None


def _length(layout: _core.PackedLayout, seq: int) -> int:
    return int(layout.cu_seqlens[seq + 1] - layout.cu_seqlens[seq])


def _visible(plan: Plan, seq: int, position: int) -> tuple[int, int]:
    """[begin, end) of the keys of its document that a query sees."""
    lengths = (_length(x, seq) for x in (plan.layout_q, plan.layout_k))
    return plan.mask.visible(position, *lengths)


def _why_not(plan: Plan, row: tuple[int, int | None], key: tuple[int, int | None]) -> str:
    if row[1] is None or key[1] is None:
        return f"{'the row' if row[1] is None else 'the key'} is padding"
    if row[0] != key[0]:
        return f"they are of documents {row[0]} and {key[0]}"
    begin, end = _visible(plan, row[0], row[1])
    if begin <= key[1] < end:
        return ""
    seen = f"keys {begin} to {end - 1}" if end > begin else "no key"
    return f"position {row[1]} of document {row[0]} sees {seen}, not {key[1]}"


def _places(
    plan: Plan, row: tuple[int, int | None], key: tuple[int, int | None]
) -> Iterator[Place]:
    for rank in range(plan.cp_size):
        for number, step in enumerate(plan.steps(rank)):
            for tile_number, tile in enumerate(step.tiles):
                q_row, k_row = _row_of(tile.q, *row), _row_of(tile.k, *key)
                if q_row is not None and k_row is not None:
                    yield Place(rank, number, tile_number, step.heads, q_row, k_row)


def _row_of(segment: _core.Segment, seq: int, position: int | None) -> int | None:
    """Of a buffer, where the segment has this token."""
    if position is None or segment.seq != seq:
        return None
    steps, rest = divmod(position - segment.pos, segment.stride)
    return segment.row + steps if rest == 0 and 0 <= steps < segment.len else None


def _keys_of(step: _core.Step, seq: int, position: int, visible: tuple[int, int]) -> np.ndarray:
    """Positions of the keys that a query sees in a step, of those in an interval."""
    begin, end = visible
    found = [np.array([], dtype=np.int64)]
    for tile in step.tiles if begin < end else ():
        if _row_of(tile.q, seq, position) is not None:
            positions = tile.k.pos + tile.k.stride * np.arange(tile.k.len)
            found.append(positions[(positions >= begin) & (positions < end)])
    return np.concatenate(found)


def _owners(plan: Plan) -> np.ndarray:
    """[rows of keys] the rank at home to each."""
    owner = np.full(plan.layout_k.num_rows, -1)
    for rank in range(plan.cp_size):
        owner[plan.row_indices(rank, side="k")] = rank
    return owner


def _scores(plan: Plan, row: int, q: Any, k: Any, head: int) -> np.ndarray:
    """[rows of keys] of one query; zeros where no arrays are given: all keys weigh alike."""
    if q is None:
        return np.zeros(plan.layout_k.num_rows)
    q, k = arguments.floating(imported(q), "q"), arguments.floating(imported(k), "k")
    for name, x, layout, heads in (
        ("q", q, plan.layout_q, plan.num_heads),
        ("k", k, plan.layout_k, plan.num_kv_heads),
    ):
        if x.ndim != 3 or x.shape[:2] != (layout.num_rows, heads):
            raise InvalidArgument(
                f"{name} has shape {x.shape}; expected [{layout.num_rows}, {heads}, dim]"
            )
    if q.shape[2] != k.shape[2]:
        raise InvalidArgument(
            f"q and k have dimensions {q.shape[2]} and {k.shape[2]}; expected one"
        )
    of_kv = head // (plan.num_heads // plan.num_kv_heads)
    return k[:, of_kv] @ q[row, head] / math.sqrt(q.shape[2])


def _log_sum_exp(x: np.ndarray) -> float:
    top = float(np.max(x))
    return top if math.isinf(top) else top + math.log(float(np.exp(x - top).sum()))


def _weight(lse: float, total: float) -> float:
    return math.exp(lse - total) if lse > -math.inf else 0.0
