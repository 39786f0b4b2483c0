"""Exercise 3: two parts of an answer, merged."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from matplotlib.figure import Figure

from ringside.learn._exercise import Answer, Exercise, Wrong, array_of, told
from ringside.learn.figures.halves import figure_of_parts, lse_of, weights_of

STUB = '''
def merge(out_a, lse_a, out_b, lse_b):
    """(out, lse) of all keys, from those of two parts: [rows, dim] and [rows], natural log."""
'''
# Scores reach 800, whose last digit in float64 is 1e-13; three merges lose a few of these. The
# least that a wrong merge of scores 0 to 3 is off by is a thousand million times as much.
TOLERANCE = 1e-9

Array = npt.NDArray[np.float64]
Part = tuple[Array, Array]  # out [rows, 1], lse [rows]
Case = tuple[tuple[tuple[tuple[int, int], ...], ...], ...]  # rows of three parts of (score, value)


class Merge(NamedTuple):
    """A merge that was asked for: how it is told, what came, what is right, for whom."""

    words: str
    got: Part
    expected: Part


def cases() -> Any:
    """One row or two, whose keys lie in three parts; parts without a key, far scores."""
    near, far = st.integers(0, 3), st.sampled_from([-800, 800])
    key = st.tuples(st.one_of(near, near, far), st.integers(0, 3))
    part = st.lists(key, max_size=2).map(tuple)
    row = st.tuples(part, part, part)
    return st.lists(row, min_size=1, max_size=2).map(tuple)


def part_of(case: Case, *which: int) -> Part:
    """The definition: out and lse of each row over the keys of these parts together."""
    outs, sums = [], []
    for row in case:
        keys = np.array([key for part in which for key in row[part]], float).reshape(-1, 2)
        outs.append([float(weights_of(keys[:, 0]) @ keys[:, 1])])
        sums.append(lse_of(keys[:, 0]))
    return np.array(outs), np.array(sums)


def ask(merge: Answer, case: Case) -> list[Merge]:
    """Merges in both orders, both groupings, and with a part that has no key."""
    a, b, c = (part_of(case, part) for part in range(3))
    ab = _merged(merge, a, b)
    bc = _merged(merge, b, c)
    none = np.zeros_like(a[0]), np.full_like(a[1], -np.inf)
    both, whole = part_of(case, 0, 1), part_of(case, 0, 1, 2)
    return [
        Merge("a with b", ab, both),
        Merge("b with a", _merged(merge, b, a), both),
        Merge("b with c", bc, part_of(case, 1, 2)),
        Merge("(a with b) with c", _merged(merge, ab, c), whole),
        Merge("a with (b with c)", _merged(merge, a, bc), whole),
        Merge("a with a part of no keys", _merged(merge, a, none), a),
        Merge("a part of no keys with a", _merged(merge, none, a), a),
    ]


def _merged(merge: Answer, a: Part, b: Part) -> Part:
    """What it makes of copies of two parts, in the shapes that were asked for."""
    expected = f"(out, lse) of shapes {a[0].shape} and {a[1].shape}"
    with np.errstate(all="ignore"):
        said = merge(a[0].copy(), a[1].copy(), b[0].copy(), b[1].copy())
    if not isinstance(said, tuple | list) or len(said) != 2:
        raise Wrong(f"got {told(said)}; expected {expected}")
    out, lse = (array_of(x, "iuf", expected).astype(float) for x in said)
    if out.shape != a[0].shape or lse.shape != a[1].shape:
        raise Wrong(f"got shapes {out.shape} and {lse.shape}; expected {expected}")
    return out, lse


def fault(case: Case, got: list[Merge]) -> str:
    """The first merge and row whose out or lse is not that of the definition."""
    for words, mine, right in got:
        for row in range(len(case)):
            for name, found, wanted in (
                ("out", mine[0][row, 0], right[0][row, 0]),
                ("lse", mine[1][row], right[1][row]),
            ):
                if not np.isclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE):
                    return f"{words}, row {row}: got {name} {found:.6g}; expected {wanted:.6g}"
    return ""


def told_of(case: Case) -> str:
    """Scores and values of each part."""
    rows = []
    for row in case:
        parts = [
            ", ".join(f"{score} -> {value}" for score, value in part) or "no key" for part in row
        ]
        rows.append(" | ".join(f"{name}: {part}" for name, part in zip("abc", parts, strict=True)))
    return f"keys as score -> value, {'; '.join(rows)}"


def drawn(case: Case, got: list[Merge] | None) -> Figure:
    """The scores of the first row that is wrong."""
    said = "no answer" if got is None else fault(case, got)
    row = next((r for r in range(len(case)) if f"row {r}:" in said), 0)
    parts = [np.array([score for score, _ in part], float) for part in case[row]]
    return figure_of_parts(parts, said)


EXERCISE = Exercise(
    stub=STUB,
    plain=(((((0, 1),), ((1, 2),), ((2, 3),))),),
    cases=cases,
    ask=ask,
    fault=fault,
    told=told_of,
    drawn=drawn,
    holds="merging is the definition in any order, and parts without a key change nothing",
)
