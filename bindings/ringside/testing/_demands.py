"""What a check asks of an implementation besides the right numbers."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demands:
    """What is asked of an implementation besides the right numbers.

    >>> from ringside.testing import Demands
    >>> Demands(runs=2, merge="bfloat16").padding
    'zero'

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
