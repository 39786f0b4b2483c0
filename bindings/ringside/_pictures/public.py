"""Pictures of layouts and masks, as users call them; those of plans are methods of Plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy.typing as npt

from ringside._pictures.checks import check_axes, check_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ringside import _core
    from ringside._pictures.figure import Path


def draw_layout(layout: _core.PackedLayout, path: Path = None, *, ax: Axes | None = None) -> Figure:
    """A pack as a strip: its documents side by side, padding hatched.

    Of packs of more than 40 documents, their lengths, the longest first, too.

    Args:
        layout: what to draw.
        path: where to save it (png, pdf, svg); default nowhere.
        ax: matplotlib's Axes to draw the strip on; default a figure of its own.

    Returns:
        The matplotlib figure.

    Raises:
        ImportError: matplotlib is missing: pip install matplotlib.

    >>> import ringside as rs
    >>> figure = rs.draw_layout(rs.PackedLayout.from_lengths([5, 3], pad_to_multiple_of=4))
    >>> len(figure.axes)
    1
    """
    from ringside._pictures import alone

    check_path(path)
    check_axes(ax)
    return alone.draw_layout(layout, path, ax)


def draw_mask(
    mask: _core.Mask,
    layout: _core.PackedLayout,
    layout_k: _core.PackedLayout | None = None,
    path: Path = None,
    *,
    against: npt.ArrayLike | None = None,
    sequence: int | None = None,
    mark: tuple[int | None, int | None] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """A mask on a pack: which keys each query sees, in grey; padding in light grey.

    Args:
        mask: which keys a query may see.
        layout: of the queries.
        layout_k: of the keys; default layout.
        path: where to save it (png, pdf, svg); default nowhere.
        against: [rows_q, rows_k] of bool, a mask of somebody else: where it hides what this one
            shows stands a minus, where it shows what this one hides a plus.
        sequence: of the pack, to be shown alone; default the whole pack, or, beyond 2,048 rows,
            the longest document.
        mark: (row, key) of the pack to point at.
        ax: matplotlib's Axes to draw on; default a figure of its own.

    Returns:
        The matplotlib figure.

    Raises:
        InvalidArgument: layouts of unequal numbers of documents, or another shape of `against`.
        ImportError: matplotlib is missing: pip install matplotlib.

    >>> import ringside as rs
    >>> layout = rs.PackedLayout.from_lengths([5, 3], pad_to_multiple_of=4)
    >>> figure = rs.draw_mask(rs.Mask.causal(), layout)
    >>> len(figure.axes)
    1
    """
    from ringside._pictures import alone

    check_path(path)
    check_axes(ax)
    return alone.draw_mask(mask, (layout, layout_k), path, against, sequence, mark, ax)
