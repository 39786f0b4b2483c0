"""Which rows of a layout hold tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ringside import _core


def valid_rows(layout: _core.PackedLayout) -> npt.NDArray[np.bool_]:
    """[rows] bool: which rows hold tokens; the others are padding."""
    starts = layout.cu_seqlens_padded[:-1]
    position = np.arange(layout.num_rows) - np.repeat(starts, layout.padded_lengths)
    return position < np.repeat(layout.lengths, layout.padded_lengths)
