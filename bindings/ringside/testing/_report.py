"""What a disagreement says: where, by how much, what the row really read, how to repeat it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import ringside as rs
from ringside._rows import place
from ringside.testing import trace
from ringside.testing._judging import first, worst
from ringside.testing._running import Misuse, Runner
from ringside.testing._script import script_of
from ringside.testing.cases import Array, Case, Results
from ringside.testing.tolerance import Precision
from ringside.testing.trace_sums import trace_sum

MAX_LINES = 6


class Disagreement(AssertionError):
    """An implementation that is not what the definition says; str() is the whole report.

    What the row read is found out when it is first asked for: tracing runs the implementation some
    more times, which a search for smaller cases need not wait for.

    Attributes:
        case: the problem.
        script: Python that repeats it.
        headline: where and what, without tracing: there at once however large the case is.
    """

    def __init__(self, runner: Runner, words: tuple[str, ...], finding: Finding | None) -> None:
        super().__init__()
        self.case, self.script = runner.case, script_of(runner)
        self._words = (f"{name_of(runner.fn)} {words[0]}", *words[1:])
        self._finding = finding
        self._trace: Callable[[], None] = lambda: None

    @property
    def headline(self) -> str:
        """See the class."""
        return self._text(self._finding)

    @functools.cached_property
    def finding(self) -> Finding | None:
        """Where and what, and what the row read; or None where no row is to blame."""
        self._trace()
        return self._finding

    def __str__(self) -> str:
        """Where, what, why, and how to repeat it."""
        return f"{self._text(self.finding)}\n\nTo repeat:\n{self.script}"

    def _text(self, finding: Finding | None) -> str:
        return "\n".join(
            [self._words[0], *filter(None, [finding and str(finding)]), *self._words[1:]]
        )


@dataclasses.dataclass
class Finding:
    """The first wrong number of a result.

    >>> from ringside.testing import Finding
    >>> print(Finding("lse", 3, 12, 0, False, 0.5, 0.25, 1e-6, reads=["read key 7"]))
    lse is wrong at row 12 of document 3, head 0:
      got 0.5, expected 0.25, tolerance 1e-06
      this row read key 7

    Args:
        tensor: "out", "lse", "dq", "dk", "dv" or "dsink".
        document, position, head: where; the head is a kv head for dk and dv.
        padding: whether no token lies there.
        got, expected, tolerance: the number, the definition's, and what rounding explains.
        rank, step: whose row it is, the first step that holds the wrong keys; None outside plans.
        reads: what the row did that it should not, in words.
    """

    tensor: str
    document: int
    position: int
    head: int
    padding: bool
    got: float
    expected: float
    tolerance: float
    rank: int | None = None
    step: int | None = None
    reads: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        """Two to ten lines."""
        place = "padding row" if self.padding else "row"
        where = f"{place} {self.position} of document {self.document}, head {self.head}"
        where = f"head {self.head}" if self.tensor == "dsink" else where
        where += "" if self.rank is None else f", rank {self.rank}"
        where += "" if self.step is None else f", step {self.step}"
        digits = 17 if f"{self.got:.9g}" == f"{self.expected:.9g}" else 9
        lines = [
            f"{self.tensor} is wrong at {where}:",
            f"  got {self.got:.{digits}g}, expected {self.expected:.{digits}g}, "
            f"tolerance {self.tolerance:.2g}",
        ]
        return "\n".join(lines + [f"  this row {line}" for line in self.reads])


def name_of(fn: Any) -> str:
    """module:function, as `ringside fuzz --implementation` takes it."""
    name = getattr(fn, "__qualname__", None) or getattr(fn, "name", None) or type(fn).__qualname__
    return f"{getattr(fn, '__module__', '__main__')}:{name}"


def misuse(runner: Runner, what: str) -> Disagreement:
    """For a function that did something no row is to blame for."""
    return Disagreement(runner, (what,), None)


def disagreement(
    runner: Runner,
    how: tuple[Precision, Results],
    tensor: str,
    numbers: tuple[Array, Array, Array, Array],
) -> Disagreement:
    """For a wrong number; numbers are got, expected, tolerance and error, like the tensor.

    Args:
        runner: runs the function.
        how: the model of its rounding, and the definition's results.
        tensor: its name.
        numbers: see above.
    """
    got, expected, tolerance, error = numbers
    wrong = ~(error <= tolerance)
    row, head, index = _first_wrong(tensor, error, wrong)
    values = (float(got[index]), float(expected[index]), float(tolerance[index]))
    layout = runner.case.keys if tensor in ("dk", "dv") else runner.case.layout_q
    document, position, valid = (0, 0, True) if tensor == "dsink" else place(layout, row)
    finding = Finding(tensor, document, position, head, not valid, *values)
    count = f"  {wrong.sum()} of {error.size} numbers of {tensor} are wrong"
    failure = Disagreement(runner, ("disagrees with the definition", count), finding)
    if tensor != "dsink":
        failure._trace = lambda: _explain(runner, how, finding, row)
    return failure


def _first_wrong(tensor: str, error: Array, wrong: Any) -> tuple[int, int, tuple[int, ...]]:
    """The first row and head with a wrong number, and the worst number there."""
    found = first(wrong.T if tensor == "lse" else wrong)
    assert found is not None
    if tensor == "dsink":
        return 0, found[0], found
    row, head = found[:2]
    if tensor == "lse":
        return row, head, (head, row)
    return row, head, (row, head, worst(error[row, head], wrong[row, head]))


def _explain(runner: Runner, how: tuple[Precision, Results], finding: Finding, row: int) -> None:
    """Adds what tracing tells, and rank and step."""
    by_key = finding.tensor in ("dk", "dv")
    try:
        if (simple := _of_one_cause(runner, how, finding, row)) is not None:
            finding.reads.append(simple)
            _place(runner, finding, row, [])
            return
        search = trace.trace_keys_of_gradients if finding.tensor == "dq" else trace.trace_keys
        search = trace.trace_queries if by_key else search
        readings, complete = search(runner, how, row, finding.head)
        is_of_sum = complete and not readings and finding.tensor in ("dq", "dk")
        if is_of_sum and not finding.padding:
            readings, complete = trace_sum(runner, how, finding.tensor, row, finding.head)
    except (Misuse, rs.Unsupported, NotImplementedError) as error:
        finding.reads.append(f"could not be traced: {error}")
        return
    case = runner.case
    layout, what = (case.layout_q, "query") if by_key else (case.keys, "key")
    lines = trace.in_words(readings, layout, finding.document, what)
    lines = [
        f"{line} in the sum of {finding.tensor} alone" if is_of_sum else line for line in lines
    ]
    if not lines and (complete or readings):
        lines = [_unexplained(runner.case, finding, readings)]
    finding.reads += lines[:MAX_LINES]
    if len(lines) > MAX_LINES:
        finding.reads.append(f"did as much to {len(lines) - MAX_LINES} more")
    if not complete:
        finding.reads.append(f"was traced no further: {trace.limits()}")
    _place(runner, finding, row, readings)


def _of_one_cause(
    runner: Runner, how: tuple[Precision, Results], finding: Finding, row: int
) -> str | None:
    """What no weight of a key is to blame for."""
    if finding.tensor not in ("out", "lse"):
        return None
    if not finding.padding:
        return trace.wrong_kv_head(runner, how, row, finding.head)
    left = trace.without_values(runner, row, finding.head)
    return f"holds {left:.3g} even where all values are 0; no token lies there" if left else None


def _place(runner: Runner, finding: Finding, row: int, readings: list[trace.Reading]) -> None:
    """Adds rank and step."""
    if runner.plan is None:
        return
    by_key = finding.tensor in ("dk", "dv")
    finding.rank = owner(runner.plan, row, "k" if by_key else "q")
    changed = [x.row for x in readings if x.expected == 0 or x.got == 0] or [
        x.row for x in readings
    ]
    finding.step = step_of(runner.plan, finding.rank, changed) if not by_key else None


def _unexplained(case: Case, finding: Finding, readings: list[trace.Reading]) -> str:
    if np.isneginf(finding.expected) and not finding.padding:
        return (
            "sees no key; two partial results that saw none must merge to none (-inf), not to NaN"
        )
    if readings:
        return (
            "is NaN even where padding holds numbers: it read outside of its arrays, or made "
            "something of nothing (merged two partial results that saw no key)"
        )
    if finding.padding:
        return "should be exactly that: no token lies there, and nobody may write to it"
    if finding.tensor in ("dq", "dk"):
        whom = "keys" if finding.tensor == "dq" else "queries"
        return (
            f"has the right {whom} with the right weights in dv, and in its own sum where q and k "
            "meet in one column of a head: its own arithmetic is off"
        )
    if finding.tensor == "dv":
        return "reads the right rows with the right weights; the gradient's own arithmetic is off"
    if np.isnan(finding.got) and not _has_padding(case):
        return (
            "reads the right keys with the right weights, but is NaN where no padding lies: it "
            "made something of nothing (0/0, inf - inf), or read outside of its arrays"
        )
    if np.isnan(finding.got):
        return "reads the right keys with the right weights, but 0 times the NaN of padding got in"
    return "reads the right keys with the right weights; only this number is off"


def _has_padding(case: Case) -> bool:
    return any(int(x.lengths.sum()) < x.num_rows for x in (case.layout_q, case.keys))


def owner(plan: rs.Plan, row: int, side: Any) -> int:
    """The rank that owns a global row.

    >>> owner(rs.plan(rs.PackedLayout([0, 4]), cp_size=2), 1, "q")
    1
    """
    ranks = range(plan.cp_size)
    return next(rank for rank in ranks if row in plan.row_indices(rank, side=side))


def step_of(plan: rs.Plan, rank: int, key_rows: list[int]) -> int | None:
    """The first step in which a rank holds one of these rows of k.

    >>> step_of(rs.plan(rs.PackedLayout([0, 4]), cp_size=2), 0, [1])
    1
    """
    places = {place(plan.layout_k, row)[:2] for row in key_rows}
    for number, step in enumerate(plan.steps(rank)):
        for segment in step.kv:
            positions = range(
                segment.pos, segment.pos + segment.len * segment.stride, segment.stride
            )
            if any(seq == segment.seq and pos in positions for seq, pos in places):
                return number
    return None
