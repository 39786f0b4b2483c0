"""The rows of a layout: which hold tokens, and whose."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ringside import _core


def positions(layout: _core.PackedLayout) -> npt.NDArray[np.int32]:
    """[rows] int32: the position of each row in its sequence, padding counted on.

    >>> positions(_core.PackedLayout([0, 2, 3], [0, 4, 6])).tolist()
    [0, 1, 2, 3, 0, 1]
    """
    rows = np.arange(layout.num_rows, dtype=np.int32)
    return rows - np.repeat(layout.cu_seqlens_padded[:-1], layout.padded_lengths)


def valid_rows(layout: _core.PackedLayout) -> npt.NDArray[np.bool_]:
    """[rows] bool: which rows hold tokens; the others are padding.

    >>> valid_rows(_core.PackedLayout([0, 2, 3], [0, 4, 6])).tolist()
    [True, True, False, False, True, False]
    """
    return positions(layout) < np.repeat(layout.lengths, layout.padded_lengths)


def place(layout: _core.PackedLayout, row: int) -> tuple[int, int, bool]:
    """The document of a row, its position there, and whether a token lies there.

    >>> place(_core.PackedLayout([0, 2, 3], [0, 4, 6]), 5)
    (1, 1, False)
    """
    document = int(np.searchsorted(layout.cu_seqlens_padded, row, side="right")) - 1
    position = row - int(layout.cu_seqlens_padded[document])
    return document, position, bool(position < layout.lengths[document])
