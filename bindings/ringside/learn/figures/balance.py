"""Pictures of balance: pairs beside blocks over the ranks, and blocks of each rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringside._pictures.balance import STYLES, scale
from ringside.learn.figures.paper import INK, PADDING, RULE, SMALL, WRONG, paper, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def figure_of_balance(shares: Mapping[str, Mapping[int, Any]]) -> Figure:
    """See Balance.figure; shares have pairs and blocks."""
    figure, (pairs, blocks) = paper(8.4, 3.7, 1, 2, sharey=True)
    for place, (name, found) in enumerate(shares.items()):
        colour, marker = STYLES[place % len(STYLES)]
        style = {"color": colour, "marker": marker, "markersize": 4.5, "linewidth": 1.5}
        pairs.plot(list(found), [share.pairs for share in found.values()], label=name, **style)
        blocks.plot(list(found), [share.blocks for share in found.values()], **style)
    each = [share for found in shares.values() for share in found.values()]
    most = max(max(share.pairs, share.blocks) for share in each)
    sizes = list(next(iter(shares.values())))
    _finish(pairs, "pairs: the busiest rank, times the mean", sizes, most)
    _finish(blocks, "blocks: the slowest rank, times its share", sizes, most)
    figure.legend(
        *pairs.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        fontsize=SMALL,
        labelcolor=INK,
        frameon=False,
    )
    return figure


def _finish(axis: Axes, title: str, sizes: list[int], most: float) -> None:
    plain(axis, title)
    axis.set_xlabel("ranks", fontsize=SMALL, color=INK)
    scale(axis, sizes, most)
    axis.grid(color=PADDING, linewidth=0.5)


def figure_of_blocks(blocks: npt.NDArray[Any], ideal: float, limit: float) -> Figure:
    """Blocks of each rank as bars, beside an equal share and what is allowed.

    Args:
        blocks: [ranks].
        ideal: an equal share of what one rank would compute alone.
        limit: in such shares.

    >>> figure = figure_of_blocks(np.array([3, 5]), 3.5, 1.3)
    """
    figure, axis = paper(8.4, 2.6)
    colours = [WRONG if number > limit * ideal else RULE for number in blocks.tolist()]
    axis.bar(np.arange(len(blocks)), blocks, 0.85, color=colours)
    axis.axhline(ideal, color=INK, linestyle=":", linewidth=1)
    axis.axhline(limit * ideal, color=INK, linewidth=1)
    plain(axis, f"blocks of each rank; dotted an equal share, drawn through {limit} of it")
    axis.set_xlabel("rank", fontsize=SMALL, color=INK)
    axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.set(xlim=(-0.6, len(blocks) - 0.4))
    return figure


def figure_of_owners(owners: npt.NDArray[np.int64]) -> Figure:
    """How many ranks own each row of a small pack; another number than one is marked.

    Args:
        owners: [rows] how many.

    >>> figure = figure_of_owners(np.array([1, 0, 1]))
    """
    figure, axis = paper(8.4, 1.7)
    most, edges = int(owners.max(initial=1)), np.arange(len(owners) + 1)
    axis.stairs(np.where(owners == 1, owners, 0), edges, fill=True, color=RULE)
    axis.stairs(np.where(owners != 1, np.maximum(owners, 0.08), 0), edges, fill=True, color=WRONG)
    plain(axis, "how many ranks own a row; it must be one")
    axis.set_xlabel("row", fontsize=SMALL, color=INK)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set(yticks=range(most + 1), xlim=(0, max(len(owners), 1)), ylim=(0, 1.1 * most))
    return figure
