"""Philox4x32-10 and the dropout drawn from it, written from the published algorithm.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF


def philox4x32_10(counter: tuple[Any, ...], key: tuple[int, int]) -> tuple[Any, ...]:
    """Four random words of 32 bits, of Python's integers or of arrays of uint64."""
    k = list(key)
    c0, c1, c2, c3 = counter
    for _ in range(10):
        product0, product1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1 = product1 >> 32 ^ c1 ^ k[0], product1 & LOW
        c2, c3 = product0 >> 32 ^ c3 ^ k[1], product0 & LOW
        k = [(word + step) & LOW for word, step in zip(k, WEYL, strict=True)]
    return c0, c1, c2, c3


def dropout_factors(p: float, seed: int, seq: int, head: int, len_q: int, len_k: int) -> np.ndarray:
    """[len_q, len_k]: 0 where dropped, 1/(1-p) where kept, as ringside.attention documents it."""
    if p == 0:
        return np.ones((len_q, len_k))
    rows, fours = np.arange(len_q, dtype=np.uint64), np.arange(-(-len_k // 4), dtype=np.uint64)
    i, j = (x.copy() for x in np.broadcast_arrays(rows[:, None], fours))
    counter = (np.full_like(i, seq), np.full_like(i, head), i, j)
    words = np.stack(philox4x32_10(counter, (seed & LOW, seed >> 32)), axis=-1)
    uniform = (words.reshape(len_q, 4 * len(fours))[:, :len_k].astype(np.float64) + 0.5) / 2.0**32
    return np.where(uniform >= p, 1 / (1 - p), 0.0)
