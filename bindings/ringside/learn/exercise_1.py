"""Exercise 1: which row of a pack holds which position of its document."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from ringside._core import PackedLayout
from ringside.learn._exercise import Answer, Exercise, Wrong, array_of
from ringside.learn.figures.packs import MAX_ROWS, figure_of_rows, positions_of
from ringside.testing import strategies

STUB = '''
def positions(cu_seqlens, cu_seqlens_padded):
    """An array: of each row its position in its document, -1 for padding."""
'''


def ask(positions: Answer, layout: PackedLayout) -> Any:
    """What it returns for the offsets of a layout, as an array of integers [any number]."""
    expected = f"integers, one for each of the {layout.num_rows} rows"
    got = array_of(positions(layout.cu_seqlens, layout.cu_seqlens_padded), "iu", expected)
    if got.ndim != 1:
        raise Wrong(f"got an array of shape {got.shape}; expected {expected}")
    return got


def fault(layout: PackedLayout, got: Any) -> str:
    """The first row that differs from the layout's own positions."""
    expected = positions_of(layout)
    if len(got) != len(expected):
        return f"got {len(got)} numbers; expected {len(expected)}, one for each row"
    for row, (found, wanted) in enumerate(zip(got.tolist(), expected.tolist(), strict=True)):
        if found != wanted:
            what = "padding" if wanted < 0 else f"position {wanted} of its document"
            return f"got {found} for row {row}; expected {wanted}: the row is {what}"
    return ""


def drawn(layout: PackedLayout, got: Any) -> Figure:
    """The rows, what they are, and what the answer says."""
    expected = positions_of(layout)
    strips = {"expected": expected}
    if got is not None:
        strips["got"] = got[:MAX_ROWS]
    return figure_of_rows(layout, strips, expected=expected)


def cases() -> Any:
    """Packs of few and of more documents, empty ones and padding among them."""
    return strategies.layouts(lengths=strategies.lengths(max_length=9))


EXERCISE = Exercise(
    stub=STUB,
    plain=PackedLayout.from_lengths([3, 2]),
    cases=cases,
    ask=ask,
    fault=fault,
    told=repr,
    drawn=drawn,
    holds="every row is told its position",
)
