"""A packed mask from the words of those who say any mask by ranges."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ringside._core import Mask, PackedLayout, Unsupported, arguments

FULL, CAUSAL, INV_CAUSAL, BI_CAUSAL = range(4)
NAMES = {"full": FULL, "causal": CAUSAL, "inv_causal": INV_CAUSAL, "bi_causal": BI_CAUSAL}
MASKS = {
    FULL: Mask.full(),
    CAUSAL: Mask.causal(align="bottom_right"),
    INV_CAUSAL: Mask.sliding_window(0, -1),
    BI_CAUSAL: Mask.sliding_window(0, 0),
}


class PackedMask(NamedTuple):
    """What from_ranges returns: layouts of q and k, and which keys a query of a sequence sees."""

    layout_q: PackedLayout
    layout_k: PackedLayout
    mask: Mask


def from_ranges(
    q_ranges: npt.ArrayLike,
    k_ranges: npt.ArrayLike,
    types: Any = "full",
    *,
    num_rows_q: int | None = None,
    num_rows_k: int | None = None,
) -> PackedMask:
    """A packed mask of the ranges that say it, one slice of queries by keys a sequence.

    Args:
        q_ranges: [slices, 2] integers, begin and end of the rows of the queries.
        k_ranges: [slices, 2] integers, of the keys that they may see.
        types: [slices], or one for all: 0 or "full", 1 or "causal" (the last query sees the last
            key), 2 or "inv_causal" (the first query sees from the first key on), 3 or "bi_causal"
            (both).
        num_rows_q, num_rows_k: rows of the arrays; default the end of the last range. Rows in no
            range are padding.

    Returns:
        (layout_q, layout_k, mask), for ringside.plan(layout_q, layout_k, mask=mask).

    Raises:
        ValueError: ranges that are none.
        Unsupported: ranges that overlap or are not in order, slices of unlike types: one mask and
            one sequence a slice cannot say them.

    Source: the slices of MagiAttention, https://github.com/SandAI-org/MagiAttention.

    >>> import ringside as rs
    >>> ranges = [[0, 5], [5, 12]]
    >>> layout_q, layout_k, mask = rs.from_ranges(ranges, ranges, "causal")
    >>> layout_q.lengths.tolist(), mask == rs.Mask.causal(align="bottom_right")
    ([5, 7], True)
    >>> rs.plan(layout_q, layout_k, mask=mask, cp_size=2).verify().pairs
    43
    """
    of_q, of_k = _ranges(q_ranges, "q_ranges"), _ranges(k_ranges, "k_ranges")
    if len(of_q) != len(of_k):
        raise ValueError(f"q_ranges has {len(of_q)} ranges; expected {len(of_k)}, as k_ranges")
    mask = MASKS[_type(types, len(of_q))]
    if mask == MASKS[BI_CAUSAL] and np.any(np.diff(of_q) != np.diff(of_k)):
        raise Unsupported(
            "bi_causal slices of more keys than queries, whose window is another for each. Nearest "
            "supported: slices of as many keys as queries, or Mask.sliding_window"
        )
    return PackedMask(_layout(of_q, num_rows_q, "q"), _layout(of_k, num_rows_k, "k"), mask)


def _ranges(x: npt.ArrayLike, name: str) -> npt.NDArray[np.int32]:
    given = arguments.array(x, name)
    if given.size and (given.ndim != 2 or given.shape[1] != 2):
        raise ValueError(f"{name} has shape {list(given.shape)}; expected [slices, 2]")
    empty = np.empty(0, np.int32)  # an empty list has no integers
    ranges = arguments.integers(given.reshape(-1) if given.size else empty, name).reshape(-1, 2)
    for i, (begin, end) in enumerate(ranges.tolist()):
        if not 0 <= begin <= end:
            raise ValueError(f"{name}[{i}] is [{begin}, {end}]; expected 0 <= begin <= end")
    return ranges


def _type(types: Any, count: int) -> int:
    """The one type of all slices."""
    listed = list(types) if _is_list(types) else [types] * count
    if len(listed) != count:
        raise ValueError(f"types has {len(listed)} of them; expected {count}, one for each slice")
    known = {*NAMES.values()}
    numbers = [
        NAMES.get(x, -1) if isinstance(x, str) else arguments.integer(x, "types") for x in listed
    ]
    for i, number in enumerate(numbers):
        if number not in known:
            raise ValueError(
                f"types[{i}] is {listed[i]!r}; expected one of 0 to 3 or {', '.join(NAMES)}"
            )
    if len(set(numbers)) > 1:
        other = next(i for i, number in enumerate(numbers) if number != numbers[0])
        raise Unsupported(
            f"types[{other}] is {listed[other]!r} beside {listed[0]!r}: a plan has one mask. "
            "Nearest supported: slices of one type"
        )
    return numbers[0] if numbers else FULL


def _is_list(x: Any) -> bool:
    return isinstance(x, list | tuple) or (isinstance(x, np.ndarray) and x.ndim == 1)


def _layout(ranges: npt.NDArray[np.int32], num_rows: int | None, side: str) -> PackedLayout:
    begins, ends = ranges[:, 0], ranges[:, 1]
    last = int(ends[-1]) if len(ends) else 0
    rows = last if num_rows is None else arguments.int32(num_rows, f"num_rows_{side}")
    for i in range(1, len(ranges)):
        if begins[i] < ends[i - 1]:
            raise Unsupported(
                f"{side}_ranges[{i}] begins at {begins[i]}, before {side}_ranges[{i - 1}] ends at "
                f"{ends[i - 1]}: a row lies in one sequence. Nearest supported: ranges in order "
                "that do not overlap"
            )
    if rows and (len(begins) == 0 or begins[0] != 0):
        first = begins[0] if len(begins) else "none"
        raise Unsupported(
            f"{side}_ranges begins at row {first}: a pack begins with a sequence. Nearest "
            "supported: ranges from row 0 on, or an empty one, [0, 0], of q and k in front"
        )
    if rows < last:
        raise ValueError(f"num_rows_{side}={rows}; expected at least {last}, where ranges end")
    lengths = (ends - begins).astype(np.int64)
    starts = np.append(begins, rows)
    return PackedLayout(np.concatenate([[0], np.cumsum(lengths)]), starts)
