"""What two plans do differently, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ringside import _core
from ringside._words import mask_words

MOST = 3  # things of a kind that are told; the others are counted


def diff(self: _core.Plan, other: _core.Plan) -> list[str]:
    """What this plan does that another does not, or the other way round, a line each.

    Layouts, mask, heads and names first; then, where both have as many ranks, what each rank
    owns, receives, sends, holds and computes in each step: the first three of a kind, and how
    many more there are. No line, no difference.

    >>> import ringside as rs
    >>> layout = rs.PackedLayout([0, 4])
    >>> zigzag = rs.plan(layout, cp_size=2)
    >>> for line in zigzag.diff(rs.plan(layout, cp_size=2, comm="all_gather"))[:2]:
    ...     print(line)
    comm is p2p; the other's is all_gather
    rank 0 has 2 steps; the other's has 1
    >>> len(zigzag.diff(rs.plan(layout, cp_size=2, partition="contiguous"))) > 3
    True
    >>> zigzag.diff(rs.plan(layout, cp_size=2))
    []
    """
    if not isinstance(other, _core.Plan):
        raise TypeError(f"other is a {type(other).__name__}; expected a Plan")
    found = list(_of_problem(self, other))
    if self.cp_size != other.cp_size:
        return [*found, f"cp_size is {self.cp_size}; the other's is {other.cp_size}"]
    for rank in range(self.cp_size):
        found += _of_rank(self, other, rank)
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
    if mine == theirs:
        return
    said = [str(thing) for thing in mine], [str(thing) for thing in theirs]
    more, fewer = _only_in(*said), _only_in(*reversed(said))
    told = [f"{what}: {thing}" for thing in more[:MOST]]
    told += [f"{what}: not {thing}" for thing in fewer[: MOST - len(told)]]
    yield from told
    apart = len(more) + len(fewer)
    if apart > MOST:
        yield f"{what}: {apart - MOST} more"
    elif not apart and said[0] != said[1]:
        yield f"{what}: in another order"


def _only_in(mine: list[str], theirs: list[str]) -> list[str]:
    """What the first list holds more often than the second.

    >>> _only_in(["a", "b", "c"], ["b"]), _only_in(["a", "b", "a"], ["a"])
    (['a', 'c'], ['a', 'b'])
    """
    others = set(theirs)
    if len(set(mine)) == len(mine):  # as a rule: quicker than to count
        return [thing for thing in mine if thing not in others]
    return list((Counter(mine) - Counter(theirs)).elements())
