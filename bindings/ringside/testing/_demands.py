"""What a check asks of an implementation besides the right numbers."""

from __future__ import annotations

import dataclasses
from numbers import Integral
from typing import Literal

from ringside.testing.dtypes import FLOATS


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
