"""Pictures of masks: a grid of who sees what, and one query's keys in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from ringside._core import InvalidArgument, Mask, arguments
from ringside.learn.figures.paper import EVEN, INK, ODD, RULE, SMALL, UNSEEN, WRONG, paper, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_CELLS, MAX_MASKS, A_ROW = 64, 9, 3


def figure_of_masks(
    masks: Mapping[str, Mask], len_q: SupportsIndex, len_k: SupportsIndex | None = None
) -> Figure:
    """Masks side by side, over one document: a row a query, filled where it sees the key.

    Args:
        masks: one to nine, under their names.
        len_q: queries of the document, 1 to 64.
        len_k: keys of the document, likewise; default as many.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> figure = learn.figure_of_masks({"full": rs.Mask.full(), "causal": rs.Mask.causal()}, 8)
    >>> [axis.get_title(loc="left") for axis in figure.axes]
    ['full', 'causal']
    """
    queries = _cells(len_q, "len_q")
    keys = queries if len_k is None else _cells(len_k, "len_k")
    if not 1 <= len(masks) <= MAX_MASKS:
        raise InvalidArgument(
            f"got {len(masks)} masks; expected 1 to {MAX_MASKS}, a panel each. Pass so many"
        )
    down, across = -(-len(masks) // A_ROW), min(len(masks), A_ROW)
    width = 8.4 / A_ROW * across
    height = (0.55 + (2.3 if across > 1 else 2.6) * max(queries / keys, 0.25)) * down
    figure, axes = paper(width, height, down, across, squeeze=False)
    for axis in axes.ravel()[len(masks) :]:
        axis.remove()
    for axis, (name, mask) in zip(axes.ravel(), masks.items(), strict=False):
        draw_cells(axis, arguments.mask(mask, name).to_dense(queries, keys), name)
    return figure


def _cells(length: SupportsIndex, name: str) -> int:
    number = arguments.integer(length, name)
    if not 1 <= number <= MAX_CELLS:
        raise InvalidArgument(
            f"got {name}={number}; expected 1 to {MAX_CELLS}, so that cells can be seen. Pass such"
        )
    return number


def draw_cells(axis: Axes, seen: Any, title: str) -> None:
    """[queries, keys] Booleans as a grid, keys to the right, queries downwards."""
    from matplotlib.colors import ListedColormap

    rows, columns = seen.shape
    axis.pcolormesh(
        np.arange(columns + 1),
        np.arange(rows + 1),
        seen,
        cmap=ListedColormap([UNSEEN, EVEN]),
        vmin=0,
        vmax=1,
        edgecolors=RULE,
        linewidth=0.25,
    )
    plain(axis, title)
    axis.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal")
    axis.set(xticks=[0, columns], yticks=[0, rows])
    axis.set_xlabel("key", fontsize=SMALL, color=INK, labelpad=-6)
    axis.set_ylabel("query", fontsize=SMALL, color=INK, labelpad=-6)


def figure_of_interval(
    mask: Mask, q: int, lengths: tuple[int, int], got: tuple[int, int] | None
) -> Figure:
    """A mask with one query's row marked, and the interval that somebody says it sees below it.

    Args:
        mask: over one document.
        q: the query.
        lengths: of the document's queries and keys.
        got: [begin, end) of keys; None for no answer.

    >>> import ringside as rs
    >>> figure = figure_of_interval(rs.Mask.causal(), 2, (4, 4), (0, 2))
    """
    seen = mask.to_dense(*lengths)
    begin, end = got if got is not None and got[0] < got[1] else (0, 0)
    first, last = min(begin, 0), max(end, lengths[1])
    rows = lengths[0] + 2.2
    size = min(0.42, 7.5 / max(last - first, 1))
    figure, axis = paper(max(3.4, (last - first) * size + 1.4), rows * size + 0.9)
    draw_cells(axis, seen, "filled: the keys that it sees")
    axis.barh(q + 0.5, lengths[1], 1, color="none", edgecolor=INK, linewidth=1.6)
    for k in np.flatnonzero(seen[q]):
        axis.barh(q + 0.5, 1, 0.9, left=k, color=ODD, edgecolor=RULE, linewidth=0.25)
    if end > begin:
        axis.barh(lengths[0] + 1.1, end - begin, 0.7, left=begin, color="none", edgecolor=WRONG)
    words = f"got [{begin}, {end})" if got is not None else "got nothing"
    axis.text(first, lengths[0] + 1.95, words, color=WRONG, fontsize=SMALL, va="center")
    axis.set(xlim=(first - 0.1, last + 0.1), ylim=(rows + 0.1, -0.1), yticks=[q + 0.5])
    axis.set_yticklabels([f"query {q}"])
    axis.set_ylabel("")
    axis.set_xlabel("")
    return figure
