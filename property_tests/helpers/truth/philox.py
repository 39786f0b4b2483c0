"""Philox4x32-10 and the dropout drawn from it, written from the published algorithm.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3.
"""

from __future__ import annotations

import numpy as np

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF


def philox4x32_10(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Four random words of 32 bits, in Python's integers."""
    k = list(key)
    c0, c1, c2, c3 = counter
    for _ in range(10):
        high0, low0 = divmod(MULTIPLIERS[0] * c0, 1 << 32)
        high1, low1 = divmod(MULTIPLIERS[1] * c2, 1 << 32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k[0], low1, high0 ^ c3 ^ k[1], low0
        k = [(word + step) & LOW for word, step in zip(k, WEYL, strict=True)]
    return c0, c1, c2, c3


def dropout_factors(p: float, seed: int, seq: int, head: int, len_q: int, len_k: int) -> np.ndarray:
    """[len_q, len_k]: 0 where dropped, 1/(1-p) where kept, as ringside.attention documents it."""
    factors = np.ones((len_q, len_k))
    if p == 0:
        return factors
    key = (seed & LOW, seed >> 32)
    for i in range(len_q):
        words = [w for j in range(-(-len_k // 4)) for w in philox4x32_10((seq, head, i, j), key)]
        uniform = (np.array(words[:len_k], np.float64) + 0.5) / 2.0**32
        factors[i] = np.where(uniform >= p, 1 / (1 - p), 0.0)
    return factors
