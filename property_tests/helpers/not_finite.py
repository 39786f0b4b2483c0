"""NaN and infinities in tests: drawing them, their classes, and who may see them."""

from __future__ import annotations

import numpy as np
import ringside as rs
from hypothesis import strategies as st
from independent import dense_mask
from ringside.testing import Case

NOT_FINITE = st.sampled_from([np.nan, np.inf, -np.inf])


def classes(x: np.ndarray) -> np.ndarray:
    """1 for +inf, -1 for -inf, 2 for NaN, 0 for what is finite."""
    return np.select([np.isnan(x), np.isposinf(x), np.isneginf(x)], [2, 1, -1], 0)


def who_sees_whom(case: Case) -> np.ndarray:
    """[rows_q, rows_k] bool."""
    sees = np.zeros((case.layout_q.num_rows, case.keys.num_rows), bool)
    for s in range(case.layout_q.num_sequences):
        mask = dense_mask(case.mask, int(case.layout_q.lengths[s]), int(case.keys.lengths[s]))
        q, k = (int(x.cu_seqlens_padded[s]) for x in (case.layout_q, case.keys))
        sees[q : q + mask.shape[0], k : k + mask.shape[1]] = mask
    return sees


def behind(layout: rs.PackedLayout, share: float) -> np.ndarray:
    """[rows] True for the tokens behind the first `share` of their document."""
    late = np.zeros(layout.num_rows, bool)
    for begin, n in zip(layout.cu_seqlens_padded[:-1], layout.lengths, strict=True):
        late[begin + round(share * n) : begin + n] = True
    return late
