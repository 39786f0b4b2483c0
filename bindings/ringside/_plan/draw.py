"""A plan as a picture: a panel a rank, rows are query rows, columns key rows, a colour a step.

Packs of up to EXACT rows are drawn pair by pair. Larger ones are averaged into PIXELS pixels a
side: a pixel's hue is the mean of the steps in it, its strength the share of its pairs that the
rank computes, never so faint that a pair goes unseen.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringside._extras import extra
from ringside._plan.explain import count, mask_words
from ringside._plan.pairs import Image, Pairs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ringside import _core

EXACT, PIXELS = 2048, 800
MAX_PANELS, PANELS_A_LINE = 16, 4
FAINTEST = 0.25
# Paul Tol's qualitative schemes "bright" and "muted", safe for colour-blind readers; a step keeps
# its colour in every picture. Plans of more steps take them from viridis.
STEP_COLOURS = (
    "#4477AA",
    "#EE6677",
    "#CCBB44",
    "#228833",
    "#66CCEE",
    "#AA3377",
    "#332288",
    "#999933",
)
ELSEWHERE_COLOUR, PADDING_COLOUR, LINE_COLOUR = "#EDF0F4", "#D9D9D9", "#8A8A8A"
HATCHED: dict[str, Any] = {
    "facecolor": PADDING_COLOUR,
    "edgecolor": "white",
    "linewidth": 0,
    "hatch": "////",
}


def draw(plan: _core.Plan, path: str | os.PathLike[str] | None) -> Figure:
    """See Plan.draw."""
    with extra("plot", "Plan.draw"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    panels = min(plan.cp_size, MAX_PANELS)
    columns = min(panels, PANELS_A_LINE)
    lines = -(-panels // columns)
    size = (max(3.1 * columns, 5.0) + 0.6, 3.25 * lines + 1.05)
    figure = Figure(figsize=size, dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    painter = _Painter(plan)
    for rank, axis in enumerate(axes.flat):
        if rank < panels:
            painter.paint(axis, rank)
        else:
            axis.set_visible(False)
        if rank + columns >= panels:
            axis.set_xlabel("key row", fontsize=8)
            axis.tick_params(labelbottom=True)
    for axis in axes[:, 0]:
        axis.set_ylabel("query row", fontsize=8)
    figure.suptitle(_title(plan) + painter.note(), fontsize=10)
    _add_legend(figure, painter)
    if path is not None:
        figure.savefig(path)
    return figure


def step_colours(num_steps: int) -> npt.NDArray[np.float64]:
    """[num_steps, 3] RGB."""
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    if num_steps <= len(STEP_COLOURS):
        return np.array([to_rgb(colour) for colour in STEP_COLOURS[:num_steps]]).reshape(-1, 3)
    return colormaps["viridis"](np.linspace(0, 1, num_steps))[:, :3]


def _title(plan: _core.Plan) -> str:
    layout = plan.layout_q
    title = (
        f"{plan.partition} over {plan.comm}, cp_size {plan.cp_size}, {mask_words(plan.mask)}: "
        f"{count(layout.num_sequences, 'document')}, {count(layout.num_tokens, 'token')}"
    )
    if plan.cp_size > MAX_PANELS:
        title += f" (ranks 0 to {MAX_PANELS - 1})"
    return title


class _Painter:
    """What all panels share: the pairs, the colours, and what lies behind them."""

    def __init__(self, plan: _core.Plan) -> None:
        self.plan, self.pairs = plan, Pairs(plan)
        self.colours = step_colours(plan.num_steps)
        self.pairs_of_rank = plan.cost().pairs.sum(axis=1)
        rows = (self.pairs.rows_q, self.pairs.rows_k)
        self.exact = max(rows) <= EXACT
        self.shape = rows if self.exact else (min(rows[0], PIXELS), min(rows[1], PIXELS))
        self.background = self._background()
        self.padding = _padding(plan.layout_q), _padding(plan.layout_k)

    def paint(self, axis: Axes, rank: int) -> None:
        """One rank's panel."""
        rows_q, rows_k = self.pairs.rows_q, self.pairs.rows_k
        extent = (0, max(rows_k, 1), max(rows_q, 1), 0)
        if rows_q and rows_k:
            axis.imshow(self._image(rank), extent=extent, interpolation=self._interpolation())
        axis.set(xlim=extent[:2], ylim=extent[2:], box_aspect=1, aspect="auto")
        self._add_hatches(axis)
        self._add_documents(axis)
        share = self.pairs_of_rank[rank] / max(1, self.pairs_of_rank.sum())
        axis.set_title(f"rank {rank}{self._heads(rank)}: {share:.1%} of the work", fontsize=9)
        axis.tick_params(labelsize=7, length=2, color=LINE_COLOUR)
        axis.spines[:].set(color=LINE_COLOUR, linewidth=0.6)

    def note(self) -> str:
        """What a reader must know of averaged pixels."""
        if self.exact:
            return ""
        pairs = -(-self.pairs.rows_q // self.shape[0]), -(-self.pairs.rows_k // self.shape[1])
        return f"\na pixel averages up to {pairs[0]} x {pairs[1]} pairs, so steps may mix"

    def _heads(self, rank: int) -> str:
        """Which heads, where ranks differ in them."""
        begin, end = self.plan.steps(rank)[0].heads
        if end - begin == self.plan.num_heads:
            return ""
        return f", heads {begin}-{end - 1}" if end - begin > 1 else f", head {begin}"

    def _interpolation(self) -> str:
        return "nearest" if max(self.shape) <= 256 else "antialiased"

    def _background(self) -> Image:
        """[*shape, 3]: white; a light tint where some rank computes, grey where padding is."""
        from matplotlib.colors import to_rgb

        if 0 in self.shape:
            return np.ones((*self.shape, 3))
        seen = self.pairs.visible_coverage(self.shape)[..., None]
        padding = self.pairs.padding_coverage(self.shape)[..., None]
        tints = (1 - np.array(to_rgb(colour)) for colour in (ELSEWHERE_COLOUR, PADDING_COLOUR))
        return 1 - seen * next(tints) - padding * next(tints)

    def _image(self, rank: int) -> Image:
        """[*shape, 3] RGB."""
        if self.exact:
            step = self.pairs.step_image(rank)
            return np.where((step >= 0)[..., None], self.colours[step], self.background)
        coverage = self.pairs.coverage(rank, self.shape)
        total = coverage.sum(axis=0)
        hue = (
            np.tensordot(coverage, self.colours, axes=(0, 0)) / np.maximum(total, 1e-12)[..., None]
        )
        strength = np.where(total > 1e-9, np.clip(total, FAINTEST, 1.0), 0.0)[..., None]
        return strength * hue + (1 - strength) * self.background

    def _add_hatches(self, axis: Axes) -> None:
        """Hatches the padding, which is grey already, where there is room."""
        rows = max(self.pairs.rows_q, self.pairs.rows_k)
        spans: list[Any] = [(axis.axhspan, *span) for span in self.padding[0]]
        spans += [(axis.axvspan, *span) for span in self.padding[1]]
        for add, begin, end in spans:
            if (end - begin) / rows > 0.006:
                add(begin, end, **HATCHED)

    def _add_documents(self, axis: Axes) -> None:
        """A thin box round each document."""
        from matplotlib.collections import PatchCollection
        from matplotlib.patches import Rectangle

        layout_q, layout_k = self.plan.layout_q, self.plan.layout_k
        starts = zip(layout_k.cu_seqlens_padded, layout_q.cu_seqlens_padded, strict=True)
        sizes = zip(layout_k.lengths, layout_q.lengths, strict=True)
        boxes = [Rectangle(start, *size) for start, size in zip(starts, sizes, strict=False)]
        style = {"facecolor": "none", "edgecolor": LINE_COLOUR, "linewidth": 0.4}
        axis.add_collection(PatchCollection(boxes, match_original=False, **style))


def _padding(layout: _core.PackedLayout) -> list[tuple[int, int]]:
    """(begin, end) of the runs of padding rows."""
    ends = layout.cu_seqlens_padded[:-1] + layout.lengths
    runs = zip(ends.tolist(), layout.cu_seqlens_padded[1:].tolist(), strict=True)
    return [(begin, end) for begin, end in runs if end > begin]


def _add_legend(figure: Figure, painter: _Painter) -> None:
    """The steps once for the whole figure."""
    from matplotlib.patches import Patch

    plan, colours = painter.plan, painter.colours
    patches: list[Any] = []
    if len(colours) <= len(STEP_COLOURS):
        patches = [Patch(color=colour, label=f"step {i}") for i, colour in enumerate(colours)]
    else:
        _add_colourbar(figure, len(colours))
    if plan.cp_size > 1:
        patches.append(Patch(color=ELSEWHERE_COLOUR, label="visible, another rank's"))
    if any(painter.padding):
        patches.append(Patch(label="padding", **HATCHED))
    columns = max(1, len(patches))
    figure.legend(
        handles=patches, loc="outside lower center", ncols=columns, fontsize=8, frameon=False
    )


def _add_colourbar(figure: Figure, num_steps: int) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap

    norm = BoundaryNorm(np.arange(num_steps + 1) - 0.5, num_steps)
    mappable = ScalarMappable(norm, ListedColormap(step_colours(num_steps)))
    ticks = np.arange(0, num_steps, -(-num_steps // 8))
    bar = figure.colorbar(mappable, ax=figure.axes, ticks=ticks, fraction=0.02, aspect=40)
    bar.minorticks_off()
    bar.set_label("step", fontsize=8)
    bar.ax.tick_params(labelsize=7)
