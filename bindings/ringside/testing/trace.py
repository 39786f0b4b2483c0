"""Which keys a row really read: the values are replaced by codes, and the output tells.

An output row is a weighted sum of value rows. With values that are 1 in one row and 0 elsewhere the
sum is that row's weight; with codes in a block of rows, whether any weight in the block is off. So
a search that splits wrong blocks finds the wrong keys in a few runs, whatever head_dim_v. q and k
stay as they are, except that padding, NaN otherwise, gets numbers: reading it shows.

The gradient of v is a weighted sum of rows of dout, with the same weights: codes in dout tell which
queries reached a key. So backward is traced, whichever of its results is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import ringside as rs
from ringside._rows import place
from ringside.testing._running import Runner
from ringside.testing.cases import Arrays, Case, Results
from ringside.testing.dtypes import round_to
from ringside.testing.tolerance import Model, Precision

__all__ = [
    "Reading",
    "in_words",
    "limits",
    "search",
    "trace_keys",
    "trace_keys_of_gradients",
    "trace_queries",
    "without_nan",
    "without_values",
    "wrong_kv_head",
]


Array = npt.NDArray[np.float64]
Probe = Callable[[Array], tuple[Array, Array, Array]]
MIN_RUNS, MAX_RUNS, MAX_SECONDS = 6, 200, 3.0
"""So many runs, or a key, at least; so many runs at most; none after so many seconds in between."""


class Reading(NamedTuple):
    """A row and the weight it got, where that is not the definition's."""

    row: int
    got: float
    expected: float


def without_nan(case: Case, arrays: Arrays) -> Arrays:
    """Numbers of the dtype in padding instead of NaN."""
    rng = np.random.default_rng(case.seed + 1)
    filled = (np.where(np.isnan(x), rng.normal(size=x.shape), x) for x in arrays)
    return Arrays(*(round_to(x, case.dtype) for x in filled))


def trace_keys(
    runner: Runner, how: tuple[Precision, Results], row: int, head: int
) -> tuple[list[Reading], bool]:
    """The keys whose weight in an output row is not the definition's, by row of k.

    The function runs on the whole case; its right answer is asked for this row and head only.

    Returns:
        The keys, and whether these are all.
    """
    case = runner.case
    arrays = without_nan(case, case.arrays())
    expected = _expected_out(runner.case, how, row, head)

    def probe(codes: Array) -> tuple[Array, Array, Array]:
        coded = arrays._replace(v=_for_heads(codes, case.num_kv_heads))
        return runner.forward(coded).out[row, head], *expected(codes)

    return search(probe, case.keys.num_rows, case.head_dim_v, case)


def trace_queries(
    runner: Runner, how: tuple[Precision, Results], row: int, head: int
) -> tuple[list[Reading], bool]:
    """The queries whose weight in a row of dv is not the definition's, by row of q."""
    case = runner.case
    arrays = without_nan(case, case.arrays())
    forward = runner.forward(arrays)
    expected = _expected_dv(runner.case, how, row, head)

    def probe(codes: Array) -> tuple[Array, Array, Array]:
        coded = arrays._replace(dout=_for_heads(codes, case.num_heads))
        return runner.backward(coded, forward)[2][row, head], *expected(codes)

    return search(probe, case.layout_q.num_rows, case.head_dim_v, case)


def wrong_kv_head(
    runner: Runner, how: tuple[Precision, Results], row: int, head: int
) -> str | None:
    """In words, where an output row reads values of another kv head than its own; else None.

    Values are 1 in one kv head and 0 in the others; trace_keys gives all of them the same codes.
    """
    case = runner.case
    own = head * case.num_kv_heads // case.num_heads
    arrays, ones = without_nan(case, case.arrays()), np.ones((case.keys.num_rows, case.head_dim_v))
    value, bound = (float(x[0]) for x in _expected_out(case, how, row, head)(ones))

    def reads(kv_head: int) -> float:
        v = np.zeros_like(arrays.v)
        v[:, kv_head] = 1.0
        return float(runner.forward(arrays._replace(v=v)).out[row, head, 0])

    if case.num_kv_heads == 1 or value == 0 or abs(reads(own) - value) <= bound:
        return None
    others = (x for x in range(case.num_kv_heads) if x != own)
    read = next((x for x in others if abs(reads(x)) > bound), None)
    return None if read is None else f"reads kv head {read}, should be {own}"


def without_values(runner: Runner, row: int, head: int) -> float:
    """What an output row holds where all values are 0."""
    arrays = without_nan(runner.case, runner.case.arrays())
    return float(runner.forward(arrays._replace(v=np.zeros_like(arrays.v))).out[row, head, 0])


def trace_keys_of_gradients(
    runner: Runner, how: tuple[Precision, Results], row: int, head: int
) -> tuple[list[Reading], bool]:
    """The keys whose dv has another weight of a query than the definition's: what backward saw.

    dout is 1 in that query and 0 elsewhere, so that dv is its weights: one run tells all.
    """
    case = runner.case
    arrays, kv_head = without_nan(case, case.arrays()), head * case.num_kv_heads // case.num_heads
    dout = np.zeros_like(arrays.dout)
    dout[row, head] = 1.0
    got = runner.backward(arrays._replace(dout=dout), runner.forward(arrays))[2][:, kv_head, 0]
    model, group = Model(case, arrays, how[1], how[0]), case.num_heads // case.num_kv_heads
    expected, bound = np.zeros(len(got)), np.zeros(len(got))
    for rows in model.blocks():
        if rows.head == head and rows.q_rows.start <= row < rows.q_rows.stop:
            x = model.softmax(rows.of_query(row))
            expected[rows.k_rows] = x.w[0]
            bound[rows.k_rows] = model.stored(model.weight_error(x, group)[0], x.w[0])
    wrong = np.flatnonzero(~(np.abs(got - expected) <= bound)).tolist()
    return [Reading(key, float(got[key]), float(expected[key])) for key in wrong], True


Expected = Callable[[Array], tuple[Array, Array]]


def _expected_out(case: Case, how: tuple[Precision, Results], row: int, head: int) -> Expected:
    """What a row of out should be for any values, and its tolerance."""
    model = Model(case, case.arrays(), how[1], how[0])
    blocks = [x for x in model.blocks() if x.head == head and x.q_rows.start <= row < x.q_rows.stop]
    softmaxes = [(x, model.softmax(x.of_query(row))) for x in blocks]

    def expected(codes: Array) -> tuple[Array, Array]:
        value, error = np.zeros(codes.shape[1]), np.zeros(codes.shape[1])
        for rows, x in softmaxes:
            value = x.w[0] @ codes[rows.k_rows]
            error = model.out_error(x, codes[rows.k_rows])[0]
        return value, model.stored(error, value)

    return expected


def _expected_dv(case: Case, how: tuple[Precision, Results], row: int, head: int) -> Expected:
    """What a row of dv should be for any dout, and its tolerance."""
    model, group = Model(case, case.arrays(), how[1], how[0]), case.num_heads // case.num_kv_heads
    columns = []
    for rows in model.blocks():
        if rows.kv_head == head and rows.k_rows.start <= row < rows.k_rows.stop:
            x, key = model.softmax(rows), row - rows.k_rows.start
            columns.append((rows.q_rows, x.w[:, key], model.weight_error(x, group)[:, key]))

    def expected(codes: Array) -> tuple[Array, Array]:
        value, error = np.zeros(codes.shape[1]), np.zeros(codes.shape[1])
        for q_rows, weight, off in columns:
            value = value + weight @ codes[q_rows]
            error = error + off @ np.abs(codes[q_rows])
        return value, model.stored(error, value)

    return expected


def _for_heads(codes: Array, heads: int) -> Array:
    return np.ascontiguousarray(
        np.broadcast_to(codes[:, None, :], (len(codes), heads, codes.shape[1]))
    )


def search(probe: Probe, rows: int, width: int, case: Case) -> tuple[list[Reading], bool]:
    """Splits blocks that come out wrong until single rows are left, the first rows first.

    Args:
        probe: what a row holds, should hold, and the tolerance, for codes [rows, width].
        rows: among which to search.
        width: so many codes at once.
        case: gives their dtype, and a seed.

    Returns:
        The rows whose weight is not the definition's, and whether these are all.
    """
    rng, begin = np.random.default_rng(case.seed), time.monotonic()
    found, blocks = [], np.array_split(np.arange(rows), min(rows, width)) if rows else []
    for runs in range(MAX_RUNS):
        enough = bool(found) or runs >= MIN_RUNS
        if not blocks or (enough and time.monotonic() - begin > MAX_SECONDS):
            break
        now, blocks = blocks[:width], blocks[width:]
        codes = np.zeros((rows, width))
        for column, block in enumerate(now):
            alone = len(block) == 1
            codes[block, column] = 1.0 if alone else rng.uniform(1, 2, size=len(block))
        codes = round_to(codes, case.dtype)
        got, expected, bound = probe(codes)
        wrong = ~(np.abs(got - expected) <= bound)
        parts = []
        for column, block in enumerate(now):
            if wrong[column] and len(block) == 1:
                found.append(Reading(int(block[0]), float(got[column]), float(expected[column])))
            elif wrong[column]:
                parts += np.array_split(block, min(len(block), max(2, width)))
        blocks = parts + blocks
    return sorted(found), not blocks


def limits() -> str:
    """Why a search may have ended before it was through."""
    return f"at most {MAX_RUNS} runs, and {MAX_SECONDS:g} s once one has told something"


def in_words(
    readings: list[Reading], layout: rs.PackedLayout, document: int, what: str
) -> list[str]:
    """What a row did that it should not: read, did not read, weighed.

    Args:
        readings: from trace_keys or trace_queries.
        layout: of the rows that were read.
        document: of the row that read; others are named.
        what: "key" or "query".

    >>> in_words([Reading(2, 0.5, 0.0)], rs.PackedLayout([0, 2, 3]), 0, "key")
    ['read key 0 of document 1 (weight 0.5, should be 0)']
    """
    lines, weighed = [], []
    for reading in readings:
        where, position, valid = place(layout, reading.row)
        name = f"{what} {position}" if valid else f"padding at position {position}"
        name += "" if where == document and valid else f" of document {where}"
        digits = 3 if abs(reading.got - reading.expected) > 0.01 * abs(reading.expected) else 12
        weights = f"(weight {reading.got:.{digits}g}, should be {reading.expected:.{digits}g})"
        if np.isnan(reading.got):
            continue
        if reading.expected == 0:
            lines.append(f"read {name} {weights}")
        elif abs(reading.got) < 1e-3 * abs(reading.expected):
            lines.append(f"did not read {name} {weights}")
        else:
            weighed.append(f"weighed {name} {weights}")
    return lines or weighed
