"""Pictures of what travels, what is held, and what nobody needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ringside._core import InvalidArgument, PlanCost
from ringside._pictures.colours import rank_colours
from ringside._plan.plan import Plan
from ringside.learn.figures.paper import (
    EVEN,
    INK,
    ODD,
    PADDING,
    RULE,
    SMALL,
    UNSEEN,
    WRONG,
    bare,
    paper,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIB = 2.0**20
LINES = ("#332288", "#AA3377", "#228833", "#66CCEE", "#999933")


def figure_of_holdings(plans: Mapping[str, Plan], rank: int) -> Figure:
    """Whose keys a rank holds in each step: a row a step, a column an owner, filled by heads.

    Args:
        plans: of as many ranks, by name.
        rank: whose buffers.

    Raises:
        InvalidArgument: no plan, or one without this rank.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> ring = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
    >>> learn.figure_of_holdings({"p2p": ring}, rank=0).axes[0].get_title(loc="left")
    'p2p'
    """
    if not plans or not all(0 <= rank < plan.cp_size for plan in plans.values()):
        raise InvalidArgument(
            f"got rank {rank} of {len(plans)} plans; expected a rank of each plan"
        )
    most = max(plan.num_steps for plan in plans.values())
    figure, axes = paper(8.4, 1.1 + 0.16 * most, 1, len(plans), squeeze=False)
    for axis, (name, plan) in zip(axes[0], plans.items(), strict=True):
        _draw_holdings(axis, plan, rank)
        plain(axis, name)
        axis.set(xlim=(-0.6, plan.cp_size - 0.4), ylim=(most - 0.4, -0.6))
        axis.set_xlabel("owner of the keys", fontsize=SMALL, color=INK)
        axis.locator_params(integer=True, nbins=5)
    axes[0, 0].set_ylabel("step", fontsize=SMALL, color=INK)
    return figure


def _draw_holdings(axis: Axes, plan: Plan, rank: int) -> None:
    owner = np.full(plan.layout_k.num_rows, -1)
    for at in range(plan.cp_size):
        owner[plan.row_indices(at, side="k")] = at
    starts, colours = plan.layout_k.cu_seqlens_padded, rank_colours(plan.cp_size)
    for number, step in enumerate(plan.steps(rank)):
        share = (step.kv_heads[1] - step.kv_heads[0]) / plan.num_kv_heads
        held = {o for s in step.kv for o in owner[starts[s.seq] + s.positions].tolist()}
        cells = [(at - 0.45, 0.9) for at in range(plan.cp_size)]
        axis.broken_barh(cells, (number - 0.45, 0.9), color=PADDING)
        full, hues = [cells[at] for at in held], [colours[at] for at in held]
        axis.broken_barh(full, (number - 0.45, 0.9 * share), facecolors=hues)


def figure_of_traffic(costs: Mapping[str, PlanCost]) -> Figure:
    """MiB that the busiest rank receives in a forward pass, and that it holds beside its own.

    Args:
        costs: of plans, by name.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> cost = rs.plan(rs.PackedLayout([0, 8]), cp_size=2).cost()
    >>> len(learn.figure_of_traffic({"p2p": cost}).axes)
    2
    """
    if not costs:
        raise InvalidArgument("got no costs; expected one at least, under a name. Pass some")
    figure, (moved, held) = paper(8.4, 1.1 + 0.36 * len(costs), 1, 2, sharey=True)
    for y, cost in enumerate(costs.values()):
        busiest = int((cost.bytes_received.sum(axis=1) + cost.result_bytes_received).argmax())
        before = cost.bytes_received[busiest].sum() / MIB
        home = cost.result_bytes_received[busiest] / MIB
        names = ("q, k and v", "out and lse, back home") if y == 0 else (None, None)
        moved.barh(y, before, 0.7, color=LINES[0], label=names[0])
        moved.barh(y, home, 0.7, left=before, color=LINES[3], label=names[1])
        _say(moved, before + home, y)
        held.barh(y, cost.workspace_bytes.max() / MIB, 0.7, color=RULE)
        _say(held, cost.workspace_bytes.max() / MIB, y)
    plain(moved, "MiB into the busiest rank")
    plain(held, "MiB held beside its own rows, at most")
    moved.legend(fontsize=SMALL - 1, frameon=False, labelcolor=INK, loc="lower right")
    moved.set_yticks(range(len(costs)), list(costs))
    moved.set_ylim(len(costs) - 0.5, -0.5)
    return figure


def _say(axis: Axes, number: float, y: int) -> None:
    axis.text(number, y, f" {number:,.0f}", va="center", fontsize=SMALL, color=INK)
    axis.set_xlim(0, max(axis.get_xlim()[1], number * 1.18))


def figure_of_need(costs: Mapping[str, PlanCost], bytes_per_row: int) -> Figure:
    """K/V rows that arrive at all ranks together, split by whether a tile there sees them.

    Args:
        costs: of plans of one pack whose ranks keep their queries, by name.
        bytes_per_row: of k and v of all kv heads.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> cost = rs.plan(rs.PackedLayout([0, 8]), cp_size=2).cost(head_dim=16)
    >>> len(learn.figure_of_need({"p2p": cost}, bytes_per_row=2 * 16 * 2).axes)
    1
    """
    if not costs:
        raise InvalidArgument("got no costs; expected one at least, under a name. Pass some")
    figure, axis = paper(8.4, 1.1 + 0.36 * len(costs), 1, 1)
    for y, cost in enumerate(costs.values()):
        needed, arrived = (
            int(cost.rows_needed.sum()),
            int(cost.bytes_received.sum()) // bytes_per_row,
        )
        names = ("seen by a tile", "nobody needed") if y == 0 else (None, None)
        axis.barh(y, needed, 0.7, color=LINES[2], label=names[0])
        axis.barh(y, arrived - needed, 0.7, left=needed, color=PADDING, label=names[1])
        share = 100 * needed / max(arrived, 1)
        axis.text(
            arrived, y, f" {arrived:,}, {share:.0f} % seen", va="center", fontsize=SMALL, color=INK
        )
        axis.set_xlim(0, max(axis.get_xlim()[1], arrived * 1.3))
    plain(axis, "K/V rows that arrive from other ranks, all ranks together")
    axis.set_yticks(range(len(costs)), list(costs))
    axis.set(ylim=(len(costs) - 0.5, -0.5), xticks=[])
    axis.legend(fontsize=SMALL, frameon=False, labelcolor=INK, loc="lower right")
    return figure


def figure_of_traffic_by_ranks(lines: Mapping[str, Mapping[int, int]]) -> Figure:
    """MiB into the busiest rank by the number of ranks, a line a transport.

    Args:
        lines: bytes by the number of ranks, as of learn.traffic_by_ranks.

    >>> from ringside import learn
    >>> len(learn.figure_of_traffic_by_ranks({"p2p": {2: 1 << 20, 4: 1 << 21}}).axes)
    1
    """
    if not lines or not all(lines.values()):
        raise InvalidArgument("got no lines; expected a number of bytes at least. Pass some")
    figure, axis = paper(8.4, 3.2, 1, 1)
    names: dict[tuple[tuple[int, int], ...], list[str]] = {}  # of lines that lie on each other
    for name, numbers in lines.items():
        names.setdefault(tuple(numbers.items()), []).append(name)
    for (points, shared), colour in zip(names.items(), LINES * len(names), strict=False):
        at, mib = [size for size, _ in points], [found / MIB for _, found in points]
        axis.plot(at, mib, "o-", color=colour)
        label = "  " + ", ".join(shared)
        axis.annotate(label, (at[-1], mib[-1]), va="center", fontsize=SMALL, color=colour)
    sizes = sorted({size for numbers in lines.values() for size in numbers})
    plain(axis, "MiB into the busiest rank, forward, by the number of ranks")
    axis.set(xscale="log", ylim=(0, None))
    axis.set_xlim(sizes[0] * 0.9, sizes[-1] * 1.8)
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.tick_params(axis="x", which="minor", length=0, labelbottom=False)
    return figure


def figure_of_parts(parts: Mapping[str, float], got: float | None) -> Figure:
    """Bytes by what they are of, one behind the other, and somebody's sum below.

    Args:
        parts: bytes under a name.
        got: what somebody says they sum up to; None for nothing.

    >>> len(figure_of_parts({"queries": 8, "results": 4}, 11).axes)
    1
    """
    figure, axis = paper(7.2, 1.8, 1, 1)
    left = 0.0
    for (name, size), colour in zip(parts.items(), (EVEN, ODD, PADDING, RULE), strict=False):
        axis.barh(0, size, 0.8, left=left, color=colour)
        axis.text(left + size / 2, 0, _told(name, size), ha="center", va="center", fontsize=7)
        left += size
    if got is not None:
        axis.barh(1, got, 0.8, color=WRONG if got != left else EVEN)
        ink = INK if got == left else UNSEEN
        axis.text(0, 1, f" {got:,.0f}", va="center", fontsize=SMALL, color=ink)
    bare(axis)
    axis.set_yticks([0, 1], [f"expected: {left:,.0f}", "got"])
    axis.set(ylim=(1.5, -0.5), xlim=(0, max(left, got or 0.0, 1.0)))
    axis.tick_params(labelsize=SMALL, length=0, labelcolor=INK)
    return figure


def _told(name: str, size: float) -> str:
    return f"{name}\n{size:,.0f}" if size else ""
