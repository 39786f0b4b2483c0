"""How far two results are apart, and where first: one meaning for all that the kit judges.

property_tests/helpers/assertions.py says the same in words of its own, on purpose: it judges what
stands here, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def errors(got: Array, true: Array) -> Array:
    """|got - true| of each number; infinite for a NaN and for a lone infinity.

    >>> infinity = np.inf
    >>> errors(np.array([1.0, infinity, infinity]), np.array([3.0, infinity, 0.0])).tolist()
    [2.0, 0.0, inf]
    """
    with np.errstate(invalid="ignore"):  # -inf - -inf
        error = np.abs(got - true)
    error[got == true] = 0.0
    error[np.isnan(error)] = np.inf
    return error


def relative_errors(got: Array, true: Array) -> Array:
    """errors() as fractions of max(1, |true|)."""
    size = np.maximum(1.0, np.abs(true))
    return errors(got, true) / np.where(np.isfinite(size), size, 1.0)


def first(wrong: npt.NDArray[np.bool_]) -> tuple[int, ...] | None:
    """The index of the first True, rows first; None where there is none.

    >>> first(np.array([[False, False], [True, True]]))
    (1, 0)
    """
    return tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.any() else None


def worst(error: Array, wrong: Any = True) -> int:
    """Where the largest error of a row and head is, among those that are wrong."""
    return int(np.argmax(np.where(wrong, error, -1.0)))
