"""Figures of layouts and masks, without a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._core import InvalidArgument
from ringside._pictures import layout as of_layout
from ringside._pictures import mask as of_mask
from ringside._pictures.checks import checked_mark, checked_sequence
from ringside._pictures.figure import Path, axes_for, new_figure, saved, say
from ringside._pictures.raster import EXACT, PIXELS, seen, shown_of, tokens_of
from ringside._words import count, mask_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_layout(layout: Any, path: Path, ax: Axes | None) -> Figure:
    """See ringside.draw_layout."""
    layout = _layout(layout, "layout")
    many = ax is None and layout.num_sequences > of_mask.FEW_LINES
    if many:
        figure = new_figure(2.7)
        axis, below = figure.subplots(2, height_ratios=[1, 2.6])
        of_layout.paint_lengths(below, layout)
    else:
        figure, axis = axes_for(ax, 1.05)
    of_layout.paint_documents(axis, layout)
    padding = layout.num_rows - layout.num_tokens
    lost = f", {count(padding, 'row')} of padding (hatched)" if padding else ""
    words = f"{count(layout.num_sequences, 'document')}, {count(layout.num_tokens, 'token')}{lost}"
    say(axis, words, width=None if ax else 7.6)
    return saved(figure, path)


def _layout(layout: Any, name: str) -> _core.PackedLayout:
    if not isinstance(layout, _core.PackedLayout):
        raise TypeError(f"{name} is a {type(layout).__name__}; expected a ringside.PackedLayout")
    return layout


def draw_mask(
    mask: Any, both: tuple[Any, Any], path: Path, against: Any, sequence: Any, mark: Any, ax: Any
) -> Figure:
    """See ringside.draw_mask."""
    if not isinstance(mask, _core.Mask):
        raise TypeError(f"mask is a {type(mask).__name__}; expected a ringside.Mask")
    layout, layout_k = both
    keys = layout if layout_k is None else layout_k
    layouts = _layout(layout, "layout"), _layout(keys, "layout_k")
    sequence = _chosen(layouts, sequence)
    differs = _differs(against, layouts, mask)
    point = checked_mark(mark)
    shown = shown_of(layouts, sequence, PIXELS)
    figure, axis = axes_for(ax, 0.9 + 3.6 * of_mask.aspect_of(*shown), 4.4)
    rows, keys = (~tokens_of(one, x.rows)[2] for one, x in zip(layouts, shown, strict=True))
    of_mask.paint_mask(axis, layouts, shown, seen(mask, layouts, shown), (rows, keys))
    lines = [mask_words(mask) + ": grey pairs are seen"]
    if differs is not None:
        lines.append(of_mask.paint_differences(axis, differs, shown))
    if point is not None:
        of_mask.paint_mark(axis, point, shown)
    say(axis, *lines, width=None if ax else 3.6)
    return saved(figure, path)


def _chosen(layouts: tuple[_core.PackedLayout, _core.PackedLayout], sequence: Any) -> int | None:
    if layouts[0].num_sequences != layouts[1].num_sequences:
        raise InvalidArgument(
            f"layout has {layouts[0].num_sequences} documents and layout_k "
            f"{layouts[1].num_sequences}; expected as many: add empty ones"
        )
    if sequence is None and max(layout.num_rows for layout in layouts) > EXACT:
        return int(np.argmax(layouts[0].lengths))
    return checked_sequence(layouts[0], sequence)


def _array(against: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(against)
    except ValueError as error:
        raise InvalidArgument(f"against cannot be read as an array of bool: {error}") from None


def _differs(
    against: Any, layouts: tuple[_core.PackedLayout, _core.PackedLayout], mask: _core.Mask
) -> npt.NDArray[np.int8] | None:
    """[rows_q, rows_k] 1 where somebody else's mask shows too much, -1 too little."""
    if against is None:
        return None
    theirs = _array(against)
    shape = layouts[0].num_rows, layouts[1].num_rows
    if theirs.shape != shape or theirs.dtype != bool:
        raise InvalidArgument(
            f"against has shape {theirs.shape} and dtype {theirs.dtype}; expected {shape}, bool"
        )
    ours = seen(mask, layouts, shown_of(layouts, None, max(*shape, 1)))
    return theirs.astype(np.int8) - ours.astype(np.int8)
