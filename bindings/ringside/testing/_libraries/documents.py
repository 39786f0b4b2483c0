"""The documents of a pack, one by one, and the mask of all of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

import ringside as rs

Rows = tuple[slice, slice]


def documents_of(layout_q: rs.PackedLayout, layout_k: rs.PackedLayout) -> Iterator[Rows]:
    """The valid rows of each document that has queries and keys."""
    starts = zip(
        layout_q.cu_seqlens_padded.tolist(), layout_k.cu_seqlens_padded.tolist(), strict=True
    )
    lengths = zip(layout_q.lengths.tolist(), layout_k.lengths.tolist(), strict=True)
    for (begin_q, begin_k), (n_q, n_k) in zip(starts, lengths, strict=False):
        if n_q and n_k:
            yield slice(begin_q, begin_q + n_q), slice(begin_k, begin_k + n_k)


def pack_mask(
    layout_q: rs.PackedLayout, layout_k: rs.PackedLayout, mask: rs.Mask
) -> npt.NDArray[np.bool_]:
    """[rows_q, rows_k]: the mask of the whole pack, documents and padding included.

    >>> pack_mask(rs.PackedLayout([0, 1, 2]), rs.PackedLayout([0, 1, 2]), rs.Mask.full()).tolist()
    [[True, False], [False, True]]
    """
    seen = np.zeros((layout_q.num_rows, layout_k.num_rows), bool)
    for rows, keys in documents_of(layout_q, layout_k):
        seen[rows, keys] = mask.to_dense(rows.stop - rows.start, keys.stop - keys.start)
    return seen
