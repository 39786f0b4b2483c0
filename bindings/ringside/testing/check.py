"""Puts a function of yours in the ring with the definition."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ringside._core import PackedLayout
from ringside._rows import valid_rows
from ringside.testing._judging import errors
from ringside.testing._precision import Demands
from ringside.testing._report import Disagreement, disagreement, misuse
from ringside.testing._running import AttentionRunner, ContextParallelRunner, Misuse, Runner
from ringside.testing.cases import Array, Arrays, Case, Results
from ringside.testing.tolerance import Precision, bounds

__all__ = ["Demands", "Disagreement", "Report", "check_attention", "check_context_parallel"]

FORWARD = ("out", "lse")
LARGE = 1 << 20
"""So many pairs take the definition of the gradients more than half a second."""


@dataclasses.dataclass(frozen=True)
class Report:
    """A comparison that went well.

    >>> from ringside.testing import Report
    >>> Report({"out": 0.25, "lse": 0.5}).largest_ratio
    0.5

    Args:
        ratios: the largest error of each result as a fraction of its tolerance, at most 1.
    """

    ratios: dict[str, float]

    @property
    def largest_ratio(self) -> float:
        """Of all results."""
        return max(self.ratios.values(), default=0.0)


def check_attention(
    fn: Callable[..., Any],
    case: Case,
    *,
    backward: Callable[..., Any] | None = None,
    demands: Demands | None = None,
) -> Report:
    """Compares your attention with the definition, forward and, where you have it, backward.

    fn has the signature of ringside.attention: it is called as fn(q, k, v, layout_q=...,
    layout_k=..., mask=..., softmax_scale=..., **options) with NumPy arrays of the case's dtype, and
    returns out or (out, lse). options are only those that the case sets (softcap, sink, ...).
    backward, or else an attribute `backward` of fn, has that of ringside.attention_backward and
    returns (dq, dk, dv), and dsink where there is a sink. ringside.testing.adapters wraps functions
    of torch or JAX arrays and differentiates them.

    Padding rows, and rows around each array, hold NaN; inputs must not be written to. What comes
    back must be within the tolerance that ringside.testing.tolerance derives, and exactly 0 where
    nothing is seen.

    Args:
        fn: your function. It may raise ringside.Unsupported or NotImplementedError, which pass
            through.
        case: the problem.
        backward: the gradients of sum(dout * out), for a random dout.
        demands: what else is asked; None for `fn.demands_for(case)`, where fn says what its
            rounding needs, else Demands().

    Returns:
        How large the errors are, as fractions of what rounding explains.

    Raises:
        Disagreement: an AssertionError that says where, by how much, which keys the row really
            read, and how to repeat it.

    >>> import ringside as rs
    >>> from ringside.testing import Case, check_attention
    >>> case = Case(rs.PackedLayout([0, 3, 5], [0, 4, 8]), num_heads=2)
    >>> check_attention(rs.attention, case, backward=rs.attention_backward).largest_ratio < 1
    True
    """
    _require_case(case)
    return _check(
        AttentionRunner(fn, case, backward, _told(fn, demands)), _asked(fn, case, demands)
    )


def check_context_parallel(
    fn: Callable[..., Any],
    case: Case,
    *,
    backward: Callable[..., Any] | None = None,
    demands: Demands | None = None,
) -> Report:
    """Compares your context-parallel attention, all ranks of it, with the definition.

    fn(qs, ks, vs, plan=..., softmax_scale=..., **options) gets every rank's own rows, lists of
    plan.cp_size arrays, and the Plan: plan.layout_q, plan.mask, plan.position_ids(rank),
    plan.shards_q(rank), ... It returns one out, or (out, lse), for each rank. How it makes ranks of
    them (threads, processes, a loop) is its own affair. backward(douts, qs, ks, vs, outs, lses,
    plan=..., ...) returns one (dq, dk, dv) for each rank, and its share of dsink.

    The rest is as for check_attention. A Disagreement also names the rank that owns the row and the
    step of the plan that holds the keys.

    >>> import ringside as rs
    >>> from ringside.testing import Case, check_context_parallel
    >>> def gathered(qs, ks, vs, *, plan, softmax_scale):
    ...     whole = plan.unshard(qs), plan.unshard(ks, side="k"), plan.unshard(vs, side="k")
    ...     out, _ = rs.attention(*whole, plan.layout_q, plan.layout_k, mask=plan.mask)
    ...     return [plan.shard(out, rank) for rank in range(plan.cp_size)]
    >>> case = Case(rs.PackedLayout([0, 3, 5], [0, 4, 8]), cp_size=2)
    >>> check_context_parallel(gathered, case).largest_ratio < 1
    True
    """
    _require_case(case)
    return _check(
        ContextParallelRunner(fn, case, backward, _told(fn, demands)), _asked(fn, case, demands)
    )


def _told(fn: Any, demands: Demands | None) -> Demands | None:
    """None where nothing is asked that is not always asked of the function."""
    own = hasattr(fn, "demands_for")
    return None if demands == Demands() and not own else demands


def _asked(fn: Any, case: Case, demands: Demands | None) -> Demands:
    """With the default filled in."""
    if demands is not None:
        return demands
    own = getattr(fn, "demands_for", None)
    return Demands() if own is None else own(case)


def _require_case(case: Any) -> None:
    if not isinstance(case, Case):
        fix = "Case(layout)" if isinstance(case, PackedLayout) else "Case(PackedLayout(cu_seqlens))"
        raise TypeError(
            f"case is a {type(case).__name__}; expected a ringside.testing.Case. Pass {fix}"
        )


def _check(runner: Runner, demands: Demands) -> Report:
    """The two checks differ in how a function is called, in nothing else."""
    case = runner.case
    arrays = case.arrays()
    steps = 0 if runner.plan is None else runner.plan.num_steps
    merges = steps if demands.merges is None else demands.merges
    types = (demands.accumulate, demands.merge, merges, demands.partial, demands.gradients)
    precision = Precision(case.dtype, *types)
    try:
        got = _run(runner, arrays)
        for _ in range(demands.runs - 1):
            _same_bits(got, _run(runner, arrays))
    except Misuse as error:
        raise misuse(runner, str(error)) from error.__cause__
    for gradients in _stages(case, with_backward=runner.backward_fn is not None):
        truth = case.by_definition(arrays, gradients=gradients)
        bound = bounds(case, arrays, truth, precision)
        now = got if gradients else {name: got[name] for name in FORWARD if name in got}
        report = _compare(runner, now, (truth, bound), (demands, precision))
    return report


def _stages(case: Case, with_backward: bool) -> tuple[bool, ...]:
    """Whether gradients are looked at, each time: a wrong out need not wait for large ones."""
    lengths = zip(case.layout_q.lengths.tolist(), case.keys.lengths.tolist(), strict=True)
    large = case.num_heads * sum(n_q * n_k for n_q, n_k in lengths) > LARGE
    return (False, True) if with_backward and large else (with_backward,)


def _run(runner: Runner, arrays: Arrays) -> dict[str, Array]:
    forward = runner.forward(arrays)
    got = {"out": forward.out}
    if forward.lse is not None:
        got["lse"] = forward.lse
    if runner.backward_fn is not None:
        gradients = runner.backward(arrays, forward)
        got.update(zip(("dq", "dk", "dv", "dsink"), gradients, strict=False))
    return got


def _same_bits(first: dict[str, Array], again: dict[str, Array]) -> None:
    for name, x in first.items():
        if x.tobytes() != again[name].tobytes():
            raise Misuse(f"returned another {name} when it ran again on the same arrays")


def _compare(
    runner: Runner,
    got: dict[str, Array],
    expected: tuple[Results, Results],
    how: tuple[Demands, Precision],
) -> Report:
    truth, bound = expected
    demands, precision = how
    ratios = {}
    for name, x in got.items():
        true, limit = getattr(truth, name), getattr(bound, name)
        error = errors(x, true)
        if demands.padding == "any" and name in FORWARD:
            padding = ~valid_rows(runner.case.layout_q)
            error[(padding if name == "out" else (slice(None), padding))] = 0.0
        if not (error <= limit).all():  # a NaN of either is no agreement
            raise disagreement(runner, (precision, truth), name, (x, true, limit, error))
        ratio = np.divide(error, limit, out=np.zeros_like(error), where=limit > 0)
        ratios[name] = float(ratio.max(initial=0.0))
    return Report(ratios)
