"""What ringside explore counted, as a picture: balanced in pairs beside fast in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ringside._extras import extra
from ringside._pictures.balance import STYLES, scale
from ringside.cli.choices import Choice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALL, NORMAL = 8, 9.5  # points: 11 pixels where the picture is 840 wide


def best_of_partitions(choices: Sequence[Choice]) -> dict[str, list[Choice]]:
    """For each partition and number of ranks the transport whose slowest rank does least."""
    found: dict[str, dict[int, Choice]] = {}
    for choice in choices:
        of_sizes = found.setdefault(choice.partition, {})
        best = of_sizes.get(choice.cp_size)
        if best is None or choice.price < best.price:
            of_sizes[choice.cp_size] = choice
    return {name: [of_sizes[n] for n in sorted(of_sizes)] for name, of_sizes in found.items()}


def draw(choices: Sequence[Choice], title: str, path: Path) -> None:
    """Two panels over the number of ranks: the busiest rank's pairs, and its blocks."""
    with extra("plot", "ringside explore --draw"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.6), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=NORMAL)
    pairs, blocks = figure.subplots(1, 2, sharey=True)
    sizes = sorted({choice.cp_size for choice in choices})
    found = best_of_partitions(choices)
    for i, (name, best) in enumerate(found.items()):
        colour, marker = STYLES[i % len(STYLES)]
        ranks = [choice.cp_size for choice in best]
        style = {"color": colour, "marker": marker, "label": name, "linewidth": 1.4}
        pairs.plot(ranks, [choice.imbalance for choice in best], markersize=4, **style)
        blocks.plot(ranks, [choice.critical for choice in best], markersize=4, **style)
    most = max(max(choice.imbalance, choice.critical) for best in found.values() for choice in best)
    _finish(pairs, "pairs: the busiest rank over the mean", sizes, most)
    _finish(blocks, "128 x 128 blocks: the slowest rank over an equal share", sizes, most)
    figure.legend(
        *pairs.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        fontsize=SMALL,
        frameon=False,
    )
    figure.savefig(path)


def _finish(axis: Axes, title: str, sizes: list[int], most: float) -> None:
    axis.set_title(title, fontsize=SMALL)
    axis.set_xlabel("ranks", fontsize=SMALL)
    scale(axis, sizes, most)
    axis.tick_params(labelsize=SMALL)
    axis.grid(color="#D5D8DE", linewidth=0.5)
