"""Rates of a kernel from measured times: counts are known, so times are sums of four unknowns."""

from __future__ import annotations

import itertools

import numpy as np

from ringside import _core
from ringside._time.model import Float64, Rates

ROUNDS = 60  # until the weights of an even power settle


ALL = slice(None)


def counted(cost: _core.PlanCost, multiprocessors: int, ranks: slice = ALL) -> Float64:
    """[4] what each of Rates is multiplied by: all steps of these ranks, one after the other."""
    names = ("blocks", "partial_blocks", "visits")
    sums = [float(getattr(cost, name)[ranks].sum()) / multiprocessors for name in names]
    return np.array([*sums, float((cost.blocks[ranks] > 0).sum())])


def fitted(counts: Float64, us: Float64, power: float = 2.0) -> Rates:
    """The rates, none below 0, that are off by least: the sum of |error / us| ** power.

    Args:
        counts: [measurements, 4], as of counted().
        us: [measurements] what they took.
        power: 2 for the mean; more, and the largest errors weigh more.

    >>> import numpy as np
    >>> counts = np.random.default_rng(0).uniform(1, 100, (20, 4))
    >>> rates = fitted(counts, counts @ [2.0, 0.5, 3.0, 9.0])
    >>> [round(rate, 6) for rate in rates]
    [2.0, 0.5, 3.0, 9.0]
    """
    return Rates(*solved(counts / us[:, None], power).tolist())


def solved(shares: Float64, power: float) -> Float64:
    """x from 0 up with the least |shares @ x - 1| ** power, by least squares weighted anew."""
    weight, x = np.ones(len(shares)), np.zeros(shares.shape[1])
    for _ in range(ROUNDS if power > 2 else 1):
        root = np.sqrt(weight)
        x = _nonnegative(shares * root[:, None], root)
        error = np.abs(shares @ x - 1)
        if error.max() < 1e-9:
            break
        weight = np.sqrt(weight * np.maximum(error / error.max(), 1e-3) ** (power - 2))
    return x


def _nonnegative(matrix: Float64, wanted: Float64) -> Float64:
    """Least squares over x >= 0: the best of all choices of which unknowns are above 0."""
    best, found = np.inf, np.zeros(matrix.shape[1])
    unknowns = range(matrix.shape[1])
    for count in range(1, matrix.shape[1] + 1):
        for chosen in itertools.combinations(unknowns, count):
            x = np.linalg.lstsq(matrix[:, chosen], wanted, rcond=None)[0]
            left = float(((matrix[:, chosen] @ x - wanted) ** 2).sum())
            if (x >= 0).all() and left < best * (1 - 1e-12):
                best, found = left, np.zeros(matrix.shape[1])
                found[list(chosen)] = x
    return found
