"""Pictures of packs: documents as a batch and end to end, and the rows of a small pack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringside._core import InvalidArgument, PackedLayout, arguments
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
    thousands,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_ROWS = 64  # that numbers can be read of


def figure_of_documents(lengths: npt.ArrayLike) -> Figure:
    """The same documents as a batch, each padded to the longest, and packed end to end.

    Args:
        lengths: [documents] tokens of each.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> figure = learn.figure_of_documents(rs.lengths.load("man_pages")[:40])
    >>> [axis.get_title(loc="left") for axis in figure.axes][0]
    'as a batch: 40 x 13,095 = 523,800 rows, 85 % of them padding'
    """
    tokens = arguments.integers(lengths, "lengths")
    if len(tokens) == 0 or tokens.min() < 0 or tokens.max() == 0:
        raise InvalidArgument(
            f"got lengths {tokens.tolist()}; expected at least one document with a token, and none "
            "of a negative length. Pass such lengths"
        )
    figure, (batch, pack) = paper(8.4, 3.6, 2, 1, height_ratios=[5, 1])
    longest, total, count = int(tokens.max()), int(tokens.sum()), len(tokens)
    batch.barh(range(count), longest, 0.8, color=PADDING)
    batch.barh(range(count), tokens, 0.8, color=_in_turn(count))
    rows = count * longest
    plain(
        batch,
        f"as a batch: {count} x {longest:,} = {rows:,} rows, "
        f"{100 * (1 - total / rows):.0f} % of them padding",
    )
    batch.set(ylim=(count - 0.5, -0.5), xlim=(0, longest), yticks=[])
    thousands(batch)
    thousands(pack)
    batch.set_xlabel("row of a document", fontsize=SMALL, color=INK)
    starts = np.cumsum(tokens) - tokens
    pack.bar(starts, 1, tokens, align="edge", color=_in_turn(count))
    plain(pack, f"as a pack: {total:,} rows, a document behind the other")
    pack.set(xlim=(0, total), ylim=(0, 1), yticks=[])
    pack.set_xlabel("row of the pack", fontsize=SMALL, color=INK)
    return figure


def _in_turn(count: int) -> list[str]:
    return [(EVEN, ODD)[i % 2] for i in range(count)]


def figure_of_rows(
    layout: PackedLayout,
    strips: Mapping[str, npt.ArrayLike] | None = None,
    *,
    expected: npt.ArrayLike | None = None,
) -> Figure:
    """The rows of a small pack, a cell each: whose they are, and numbers of your own below.

    Args:
        layout: of at most 64 rows.
        strips: [rows] numbers under a name, a strip each; default the position in the document,
            -1 for padding.
        expected: [rows] numbers; what differs from them in a strip is marked.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> figure = learn.figure_of_rows(rs.PackedLayout.from_lengths([5, 7, 0, 3]))
    >>> len(figure.axes)
    2
    """
    layout = arguments.layout(layout, "layout")
    if layout.num_rows > MAX_ROWS:
        raise InvalidArgument(
            f"got a layout of {layout.num_rows} rows; expected at most {MAX_ROWS}, a cell each. "
            "Pass a smaller one"
        )
    if strips is None:
        strips = {"position": positions_of(layout)}
    strips = {"document": documents_of(layout), **strips}
    figure, axes = paper(8.4, 0.4 + 0.62 * len(strips), len(strips), 1, squeeze=False)
    for axis, (name, numbers) in zip(axes[:, 0], strips.items(), strict=True):
        wanted = None if expected is None or name == "document" else np.asarray(expected)
        _draw_strip(axis, name, layout, np.asarray(numbers), wanted)
    return figure


def documents_of(layout: PackedLayout) -> npt.NDArray[np.int64]:
    """[rows] the document of each row, padding behind it included; -1 beyond the last.

    >>> import ringside as rs
    >>> documents_of(rs.PackedLayout([0, 2, 3], [0, 4, 5])).tolist()
    [0, 0, 0, 0, 1]
    """
    return np.repeat(np.arange(layout.num_sequences), layout.padded_lengths)


def positions_of(layout: PackedLayout) -> npt.NDArray[np.int64]:
    """[rows] the position of each row in its document; -1 for padding.

    >>> import ringside as rs
    >>> positions_of(rs.PackedLayout([0, 2, 3], [0, 4, 5])).tolist()
    [0, 1, -1, -1, 0]
    """
    positions = np.full(layout.num_rows, -1)
    for begin, length in zip(layout.cu_seqlens_padded, layout.lengths, strict=False):
        positions[begin : begin + length] = np.arange(length)
    return positions


def _draw_strip(
    axis: Axes, name: str, layout: PackedLayout, numbers: Any, expected: Any | None
) -> None:
    """A cell a row, coloured by document; padding in grey."""
    positions, documents = positions_of(layout), documents_of(layout)
    bare(axis)
    for row, number in enumerate(numbers.tolist()):
        colour = PADDING if positions[row] < 0 else (EVEN, ODD)[documents[row] % 2]
        wrong = expected is not None and (row >= len(expected) or number != expected[row])
        axis.bar(
            row + 0.5,
            1,
            0.94,
            color=colour,
            edgecolor=WRONG if wrong else UNSEEN,
            linewidth=2 if wrong else 0.5,
        )
        ink = WRONG if wrong else RULE if positions[row] < 0 else INK
        axis.text(row + 0.5, 0.5, str(number), ha="center", va="center", fontsize=SMALL, color=ink)
    axis.set(xlim=(0, max(layout.num_rows, len(numbers), 12)), ylim=(0, 1))
    axis.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=SMALL, color=INK)
