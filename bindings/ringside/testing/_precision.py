"""The types that an implementation computes in, what they mean to the error model, and Demands."""

from __future__ import annotations

import dataclasses
from numbers import Integral
from typing import Literal

from ringside.testing.dtypes import FLOATS, float_of

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demands:
    """What is asked of an implementation besides the right numbers.

    >>> from ringside.testing import Demands
    >>> Demands(runs=2, merge="bfloat16").padding
    'zero'

    Raises:
        ValueError: for a word, a count or a type that is none of these.

    Args:
        padding: "zero": rows without a token are exactly 0 in out and all gradients, and -inf in
            lse. "any": out and lse may hold anything there (FlashAttention 3 leaves garbage).
        runs: how often the function runs; all runs must return the same bits.
        accumulate: the type its sums are in; None for float32, or the inputs' where that is wider.
        merge: the type that partial results are merged in; None for accumulate.
        merges: how many partial results are merged; None for the number of steps of the plan.
        partial: the type that each partial result is stored in before it is merged, such as
            "bfloat16" where a kernel returns out in the inputs' type and a ring merges in float32
            what its steps return; None for accumulate.
        gradients: the type that dk and dv are summed in from one of the merges to the next, where a
            kernel adds each block's share to a result of the inputs' type; None for merge.
    """

    padding: Literal["zero", "any"] = "zero"
    runs: int = 1
    accumulate: str | None = None
    merge: str | None = None
    merges: int | None = None
    partial: str | None = None
    gradients: str | None = None

    def __post_init__(self) -> None:
        """Refuses what would ask nothing, or make tolerances of nothing."""
        if self.padding not in ("zero", "any"):
            raise ValueError(
                f'padding={self.padding!r}; expected "zero" or "any". Leave it out, or pass one'
            )
        for name in ("runs", "merges"):
            _require_count(getattr(self, name), name, 1 if name == "runs" else 0)
        for name in ("accumulate", "merge", "partial", "gradients"):
            if (dtype := getattr(self, name)) is not None and dtype not in FLOATS:
                raise ValueError(
                    f"{name}={dtype!r}; expected one of {', '.join(FLOATS)}, or None. Pass one by "
                    "its name"
                )


def _require_count(value: object, name: str, least: int) -> None:
    if value is None and name == "merges":
        return
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"{name}={value!r}; expected an integer, {least} or more. Leave it out, or pass {least}"
        )
