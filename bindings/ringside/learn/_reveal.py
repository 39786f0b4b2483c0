"""A prediction beside what was computed."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

from ringside._core import arguments


@dataclass(frozen=True)
class Revealed:
    """What a reader guessed and what it is; it prints as a sentence.

    Attributes:
        prediction: the guess, None where there is none.
        computed: what it is.
        unit: of both, in words.
    """

    prediction: Any
    computed: Any
    unit: str

    def __str__(self) -> str:
        said = f"computed: {self._told(self.computed)}"
        if self.prediction is None or self.prediction is ...:
            return f"{said}; you made no prediction. A guess first makes it stick"
        return f"{said}; you predicted {self._told(self.prediction)}{self._apart()}"

    __repr__ = __str__

    def _told(self, value: Any) -> str:
        if isinstance(value, numbers.Real) and not isinstance(value, bool):
            value = f"{float(value):,.4g}" if abs(float(value)) < 1e4 else f"{float(value):,.0f}"
        elif isinstance(value, list | tuple):
            value = ", ".join(map(str, value))
        return f"{value} {self.unit}".strip()

    def _apart(self) -> str:
        """How far the guess is off, of numbers of one sign, as a factor."""
        try:
            ratio = float(self.prediction) / float(self.computed)
        except (TypeError, ValueError, ZeroDivisionError):
            return ", which is it" if self.prediction == self.computed else ""
        if not 0 < ratio < float("inf"):
            return ""
        factor = max(ratio, 1 / ratio)
        return ", which is it" if factor < 1.05 else f", off by a factor of {factor:.3g}"


def reveal(prediction: Any, computed: Any, unit: str = "") -> Revealed:
    """A prediction and what was computed, side by side; None is no prediction, and no harm.

    Args:
        prediction: a number, a word, a list of them, or None.
        computed: the same, as it is.
        unit: of numbers, in words.

    >>> from ringside import learn
    >>> learn.reveal(30, 61.3, "% of the blocks")
    computed: 61.3 % of the blocks; you predicted 30 % of the blocks, off by a factor of 2.04
    >>> learn.reveal(None, 61.3, "%")
    computed: 61.3 %; you made no prediction. A guess first makes it stick
    """
    return Revealed(prediction, computed, arguments.text(unit, "unit"))
