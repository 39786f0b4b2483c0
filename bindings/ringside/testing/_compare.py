"""A plan against the definition, number by number.

The tolerance. Both sides add the same float64 terms, only in another order, and operands are
standard normal: a term is of the order of 1, up to ~30. Rounding a score by eps scales its
probability by as much times the score, and sums over a few thousand terms add some tens of eps:
together a few hundred eps at the very worst, 1e-13. One pair too many, too few or misplaced shifts
its row by about one part in the length of its document, 1e-4 here. 1e-12 of max(1, |definition|)
stands between the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._rows import place, valid_rows
from ringside.testing._judging import first, relative_errors, worst
from ringside.testing._problems import TENSORS, Array, Geometry, SolvedProblem, results

if TYPE_CHECKING:
    from ringside._plan.plan import Plan

TOLERANCE = 1e-12


@dataclass
class Comparison:
    """The largest error of each result of one plan, and the first thing that is wrong."""

    errors: dict[str, float] = field(default_factory=dict)
    disagreement: str = ""


def compare(plan: Plan, problem: SolvedProblem) -> Comparison:
    """Proves the plan, runs it forward and backward, and holds each result against the definition.

    Padding must be exactly 0 and its lse -inf; so must be out, dq and lse where a row sees nothing.
    """
    comparison = Comparison()
    try:
        got = _run(plan, problem)
    except _core.PlanError as refusal:
        comparison.errors = dict.fromkeys(TENSORS, np.inf)
        comparison.disagreement = f"the plan is refused: {refusal}"
        return comparison
    nothing_seen = np.isneginf(problem.want["lse"])
    for tensor in TENSORS:
        want = problem.want[tensor]
        error = _errors(got[tensor], want)
        exact = nothing_seen if tensor in ("out", "lse", "dq") else _padding(problem, tensor)
        must_be = -np.inf if tensor == "lse" else 0.0
        error[exact & _differs(got[tensor], must_be)] = np.inf
        comparison.errors[tensor] = float(error.max(initial=0.0))
        if not comparison.disagreement and comparison.errors[tensor] > TOLERANCE:
            comparison.disagreement = _first(problem.geometry, tensor, error, got[tensor], want)
    return comparison


def _run(plan: Plan, problem: SolvedProblem) -> dict[str, Array]:
    plan.verify()
    out, lse = plan.attention(problem.q, problem.k, problem.v)
    operands = (problem.dout, problem.q, problem.k, problem.v)
    return results(out, lse, plan.attention_backward(*operands, out, lse))


def _padding(problem: SolvedProblem, tensor: str) -> npt.NDArray[np.bool_]:
    """[rows, 1] bool: rows without a token."""
    return ~valid_rows(problem.geometry.layout_of(tensor))[:, None]


def _errors(got: Array, want: Array) -> Array:
    """[rows, heads]: largest |got - want| / max(1, |want|); infinite for NaN or a lone infinity."""
    error = relative_errors(got, want)
    return error.max(axis=-1, initial=0) if error.ndim == 3 else error


def _differs(got: Array, must_be: float) -> npt.NDArray[np.bool_]:
    return (got != must_be).any(axis=-1) if got.ndim == 3 else got != must_be


def _first(geometry: Geometry, tensor: str, error: Array, got: Array, want: Array) -> str:
    """In words, the first row and head whose error is too large."""
    found = first(error > TOLERANCE)
    assert found is not None
    layout, row = geometry.layout_of(tensor), found[0]
    document, position, is_token = place(layout, row)
    where = f"position {position}" if is_token else "padding"
    values = np.atleast_1d(got[found]), np.atleast_1d(want[found])
    i = worst(relative_errors(*values))
    return (
        f"{tensor} of document {document}, row {row} ({where}), head {found[1]}: "
        f"got {values[0][i]:.17g}, the definition says {values[1][i]:.17g}"
    )
