"""What two plans do differently, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ringside import _core
from ringside._words import mask_words

MOST = 3  # things of a kind that are told; the others are counted


def differences(plan: _core.Plan, other: _core.Plan) -> list[str]:
    """See Plan.diff."""
    found = list(_of_problem(plan, other))
    if plan.cp_size != other.cp_size:
        return [*found, f"cp_size is {plan.cp_size}; the other's is {other.cp_size}"]
    for rank in range(plan.cp_size):
        found += _of_rank(plan, other, rank)
    return found


def _of_problem(plan: _core.Plan, other: _core.Plan) -> Iterator[str]:
    for name in ("layout_q", "layout_k", "mask", "num_heads", "num_kv_heads", "partition", "comm"):
        mine, theirs = getattr(plan, name), getattr(other, name)
        if mine != theirs:
            said = mask_words if name == "mask" else str
            yield f"{name} is {said(mine)}; the other's is {said(theirs)}"


def _of_rank(plan: _core.Plan, other: _core.Plan, rank: int) -> Iterator[str]:
    for side in ("q", "k"):
        mine, theirs = (getattr(p, f"shards_{side}")(rank) for p in (plan, other))
        yield from _of_lists(f"rank {rank} owns of {side}", mine, theirs)
    steps = plan.steps(rank), other.steps(rank)
    if len(steps[0]) != len(steps[1]):
        yield f"rank {rank} has {len(steps[0])} steps; the other's has {len(steps[1])}"
    for i, (mine_of_step, theirs_of_step) in enumerate(zip(*steps, strict=False)):
        for kind in ("receives", "sends", "q", "kv", "tiles"):
            what = f"rank {rank}, step {i}, {kind}"
            yield from _of_lists(what, getattr(mine_of_step, kind), getattr(theirs_of_step, kind))


def _of_lists(what: str, mine: Sequence[object], theirs: Sequence[object]) -> Iterator[str]:
    """Things that only one of two lists holds, or that they are in another order."""
    said = [str(thing) for thing in mine], [str(thing) for thing in theirs]
    counts = Counter(said[0]), Counter(said[1])
    apart = [
        *(f"{what}: {thing}" for thing in (counts[0] - counts[1]).elements()),
        *(f"{what}: not {thing}" for thing in (counts[1] - counts[0]).elements()),
    ]
    yield from apart[:MOST]
    if len(apart) > MOST:
        yield f"{what}: {len(apart) - MOST} more"
    elif not apart and said[0] != said[1]:
        yield f"{what}: in another order"
