"""The types that an implementation computes in, and what they mean to the error model."""

from __future__ import annotations

import dataclasses

from ringside.testing.dtypes import float_of

CONFIDENCE = 6.0


@dataclasses.dataclass(frozen=True)
class Precision:
    """Which types an implementation computes in.

    Args:
        dtype: of operands and results, and of p and ds where they enter a matrix product.
        accumulate: of scores and sums; None for float32, or dtype where that is wider.
        merge: of partial results; None for accumulate.
        merges: how many partial results are merged into one; 0 where nothing is split.
        partial: of partial results, out and gradients, as stored before they are merged; None where
            they stay in accumulate. Unlike merge it rounds each of them once.
        gradients: of dk and dv as they are added up, merge for merge; None for merge.

    >>> from ringside.testing import Precision
    >>> Precision("bfloat16").accumulate_name, Precision("float64").accumulate_name
    ('float32', 'float64')
    """

    dtype: str = "float64"
    accumulate: str | None = None
    merge: str | None = None
    merges: int = 0
    partial: str | None = None
    gradients: str | None = None

    @property
    def accumulate_name(self) -> str:
        """With the default filled in."""
        return self.accumulate or ("float64" if self.dtype == "float64" else "float32")

    @property
    def partial_roundoff(self) -> float:
        """b of the model.

        >>> from ringside.testing import Precision
        >>> Precision("bfloat16", merges=3, partial="bfloat16").partial_roundoff
        0.00390625
        """
        return float_of(self.partial).roundoff if self.partial and self.merges else 0.0

    @property
    def gradients_roundoff(self) -> float:
        """c g(M) of the model.

        >>> from ringside.testing import Precision
        >>> Precision("bfloat16", merges=3, gradients="bfloat16").gradients_roundoff
        0.01171875
        """
        return growth(self.merges) * float_of(self.gradients).roundoff if self.gradients else 0.0

    def roundoffs(self) -> tuple[float, float, float, float]:
        """u, w, m of the model, and the absolute error of the coarsest type.

        >>> from ringside.testing import Precision
        >>> Precision("bfloat16").roundoffs()[1]
        0.00390625
        """
        store, sums = float_of(self.dtype), float_of(self.accumulate_name)
        merge = float_of(self.merge or self.accumulate_name)
        partial = float_of(self.partial or self.accumulate_name)
        tiny = max(x.tiny for x in (store, sums, merge, partial))
        return sums.roundoff, store.roundoff, merge.roundoff, tiny


def growth(n: int) -> float:
    """How much n additions may amplify the roundoff: g(n) of the model.

    >>> growth(10), growth(10_000)
    (10, 600.0)
    """
    return min(n, CONFIDENCE * n**0.5)
