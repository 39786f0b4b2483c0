"""A timeline of a plan that really ran: all ranks in this process, a thread each, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ringside import _core
from ringside._attention.options import Options, to_core
from ringside._time.timeline import Event, Kind, Owners, Timeline, of_events

if TYPE_CHECKING:
    from ringside._plan.plan import Plan

SOURCE = "measured"
TIMEOUT_S = 600.0


def measured(
    plan: Plan, direction: str, head_dim: int, head_dim_v: int, owners: Owners
) -> Timeline:
    """Of random arrays. Ranks share the processor: where it has fewer cores, they take turns."""
    ranks = list(range(plan.cp_size))
    links = _core.SocketRanks(ranks, [], TIMEOUT_S)
    arrays = _random(plan, head_dim, head_dim_v)
    options = to_core(Options(), plan._dropout_origin)
    call = _core.RankCall(plan, ranks, arrays, options)
    links.start(1, 0)
    out, lse, *_ = call.attention(links)
    if direction == "backward":
        dout = [np.random.default_rng(rank).normal(size=x.shape) for rank, x in enumerate(out)]
        call = _core.RankCall(plan, ranks, [*arrays, dout, out, lse], options)
        links.start(2, 1)
        call.attention_backward(links)
    return of_events(_events(call.moments, owners), plan.cp_size, direction, SOURCE, owners)


def _random(plan: Plan, head_dim: int, head_dim_v: int) -> list[list[np.ndarray]]:
    """q, k and v of each rank."""
    rng, found = np.random.default_rng(0), []
    of = (("q", plan.num_heads, head_dim), ("k", plan.num_kv_heads, head_dim))
    for side, heads, dim in (*of, ("k", plan.num_kv_heads, head_dim_v)):
        rows = (len(plan.row_indices(rank, side=side)) for rank in range(plan.cp_size))  # type: ignore[arg-type]
        found.append([rng.normal(size=(count, heads, dim)) for count in rows])
    return found


def _events(moments: list[Any], owners: Owners) -> list[Event]:
    """From the first operation of all on."""
    start = min((begin for of_rank in moments for _, _, begin, _ in of_rank), default=0.0)
    found = []
    for rank, of_rank in enumerate(moments):
        for operation, step, begin, end in of_rank:
            kind: Kind = "exchange" if operation == "exchange" else "work"
            when = begin - start, end - start
            found.append(Event(rank, step, kind, *when, owners(rank, step)))
    return found
