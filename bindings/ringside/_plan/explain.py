"""A plan in words: who owns what, and what each rank moves and computes, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringside import _core
from ringside._core import arguments
from ringside._words import count, mask_words

if TYPE_CHECKING:
    from ringside._plan.plan import Plan

EVEN, FULL = 1.05, 0.6  # an imbalance and a fill of which nothing need be said
# Up to so many ranks and steps are told one by one, and of more than twice so many the ends.
FEW = 4


def explain(self: Plan, *, short: bool = False) -> str:
    """The plan in words: what it does and why it costs what it does, then each rank's steps.

    Args:
        short: the sentences alone, without the numbers of each rank.

    >>> import ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
    >>> print(plan.explain().splitlines()[0])
    zigzag over p2p, 2 ranks: 1 sequence, 4 tokens in 4 rows
    >>> plan.explain(short=True).split(".")[1]
    ' p2p: K/V travel round a ring'
    """
    if arguments.boolean(short, "short"):
        return " ".join(_reasons(self, self.cost()))
    return "\n".join(_lines(self))


def _reasons(plan: Plan, cost: _core.PlanCost) -> Iterator[str]:
    """What the plan does, and what its numbers come from, in sentences."""
    owns = _core.PARTITION_TABLE.get(plan.partition, {}).get("summary", "segments of your own")
    moves = _core.COMM_TABLE.get(plan.comm, {}).get("summary", "messages of your own")
    yield f"{plan.partition}: {owns}. {plan.comm}: {moves}."
    pairs = cost.pairs.sum(axis=1)
    if not pairs.any():
        yield "Nothing is visible: there is nothing to compute."
        return
    if cost.imbalance <= EVEN:
        yield f"Visible pairs are even: the busiest rank computes {cost.imbalance:.2f} x the mean."
    else:
        yield (
            f"Rank {int(pairs.argmax())} computes {cost.imbalance:.2f} x the mean of the visible "
            "pairs, and the others wait for it."
        )
    if cost.fill >= FULL:
        yield f"Blocks are {cost.fill:.0%} full: what a kernel computes is mostly needed."
    else:
        lengths = [s.len for rank in range(plan.cp_size) for s in plan.shards_q(rank) if s.len]
        blocks = "But blocks" if cost.imbalance <= EVEN else "Blocks"
        yield (
            f"{blocks} of {cost.block_size[0]} x {cost.block_size[1]} are {cost.fill:.0%} full: "
            f"runs of {sorted(lengths)[len(lengths) // 2]} rows, by the median, pay for whole "
            'ones. Longer runs cost less: see partition="balanced".'
        )


def _lines(plan: Plan) -> Iterator[str]:
    layout, cost = plan.layout_q, plan.cost()
    yield (
        f"{plan.partition} over {plan.comm}, {plan.cp_size} ranks: "
        f"{count(layout.num_sequences, 'sequence')}, {layout.num_tokens} tokens "
        f"in {layout.num_rows} rows"
    )
    if plan.layout_k != layout:
        keys = plan.layout_k
        yield f"keys of other lengths: {keys.num_tokens} tokens in {keys.num_rows} rows"
    yield from _reasons(plan, cost)
    heads = f"{count(plan.num_heads, 'query head')}, {count(plan.num_kv_heads, 'kv head')}"
    yield f"mask: {mask_words(plan.mask)}; {heads}"
    yield f"imbalance: the busiest rank computes {cost.imbalance:.2f} x the mean"
    yield f"fill: {_fill_words(cost)}"
    yield from _hint(plan, cost)
    yield from _fetched(plan)
    pairs = cost.pairs.sum(axis=1)
    for rank in _told(plan.cp_size):
        if rank is None:
            yield f"... {count(plan.cp_size - FEW, 'more rank')}, {_span(pairs)} pairs a rank ..."
        else:
            yield from _rank(plan, rank, cost)
    if cost.result_bytes_sent.any():
        yield "after the last step: out and lse travel home the way the queries came"


def _fill_words(cost: _core.PlanCost) -> str:
    blocks = "{} x {} blocks".format(*cost.block_size)
    return f"{cost.fill:.1%} of what a kernel computes in {blocks} is visible pairs"


def _hint(plan: Plan, cost: _core.PlanCost) -> Iterator[str]:
    causal = plan.mask.window_size[1] != -1 or plan.mask.chunk_size
    balanced = [name for name, rule in _core.PARTITION_TABLE.items() if rule["balances_causal"]]
    if cost.imbalance > 1.25 and plan.partition not in balanced and causal:
        busiest = int(cost.pairs.sum(axis=1).argmax())
        names = [f'"{name}"' for name in balanced if not _core.PARTITION_TABLE[name]["of_stream"]]
        yield f"hint: rank {busiest} works most; partition={' or '.join(names)} spreads the work"


def _fetched(plan: Plan) -> Iterator[str]:
    if plan.comm != "fetch" or plan.cp_size == 1:
        return
    steps = [(rank, step) for rank in range(plan.cp_size) for step in plan.steps(rank)]
    moved = sum(m.rows for rank, step in steps for m in step.receives if m.peer != rank)
    all_of_them = (plan.cp_size - 1) * plan.layout_k.num_rows
    yield f"fetched: {count(moved, 'kv row')}, of {all_of_them:,} that an all_gather would bring"


def _told(n: int) -> list[int | None]:
    """Which of n things are told; None stands for those left out.

    >>> _told(3), _told(100)
    ([0, 1, 2], [0, 1, None, 98, 99])
    """
    if n <= 2 * FEW:
        return list(range(n))
    return [*range(FEW // 2), None, *range(n - FEW // 2, n)]


def _span(numbers: object) -> str:
    low, high = int(min(numbers)), int(max(numbers))  # type: ignore[call-overload]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _rank(plan: Plan, rank: int, cost: _core.PlanCost) -> Iterator[str]:
    lengths, segments = plan.layout_q.lengths, plan.shards_q(rank)  # lengths are a copy: once
    rows = sum(segment.len for segment in segments)
    tokens = sum(_valid(segment, int(lengths[segment.seq])) for segment in segments)
    pairs = int(cost.pairs[rank].sum())
    owns = f"{count(tokens, 'token')} in {count(rows, 'row')} ({count(len(segments), 'run')})"
    yield f"rank {rank} owns {owns}, {pairs:,} pairs"
    steps = plan.steps(rank)
    for i in _told(len(steps)):
        if i is None:
            yield f"  ... {count(len(steps) - FEW, 'more step')} ..."
        else:
            computed = _computed(plan, steps[i], int(cost.pairs[rank, i]))
            yield f"  step {i}: {_moved(steps[i], rank)}; {computed}"


def _valid(segment: _core.Segment, length: int) -> int:
    """How many rows of a segment hold tokens."""
    return min(segment.len, max(0, -(-(length - segment.pos) // segment.stride)))


def _moved(step: _core.Step, rank: int) -> str:
    received = [message for message in step.receives if message.peer != rank]
    sent = [message for message in step.sends if message.peer != rank]
    if not received and not sent:
        rows = sum(segment.len for segment in step.kv)
        return f"nothing moves, {count(rows, 'kv row')} resident" if rows else "nothing moves"
    parts = []
    if received:
        parts.append(f"receives {_messages(received)} from {_peers(received)}")
    if sent:
        parts.append(f"sends {_messages(sent)} to {_peers(sent)}")
    return f"{step.exchange} {', '.join(parts)}"


def _messages(messages: list[_core.Message]) -> str:
    """Rows by operand, summed over the peers."""
    words = []
    for operand in ("q", "kv"):
        rows = sum(message.rows for message in messages if message.operand == operand)
        if rows:
            words.append(count(rows, f"{operand} row"))
    return " and ".join(words)


def _peers(messages: list[_core.Message]) -> str:
    peers = sorted({message.peer for message in messages})
    if len(peers) == 1:
        return f"rank {peers[0]}"
    if len(peers) <= FEW:
        return "ranks " + ", ".join(map(str, peers[:-1])) + f" and {peers[-1]}"
    return f"{len(peers)} ranks"


def _computed(plan: Plan, step: _core.Step, pairs: int) -> str:
    if not step.tiles:
        return "nothing to compute"
    begin, end = step.heads
    visible = count(pairs // (end - begin), "visible pair")
    heads = (
        f"{end - begin} heads" if end - begin == plan.num_heads else f"heads {begin} to {end - 1}"
    )
    of_heads = f" x {heads}" if end - begin > 1 else f" of head {begin}"
    return f"{count(len(step.tiles), 'tile')}, {visible}{of_heads}"
