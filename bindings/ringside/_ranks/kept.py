"""Keys and values that a forward pass kept for the backward pass."""

from __future__ import annotations

import dataclasses
from typing import Any

from ringside._core import InvalidArgument

FIX = "Pass what attention_rank(..., keep_kv=True) returned for the same arguments"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class KeptKv:
    """What attention_rank(keep_kv=True) returns last, for attention_backward_rank(kept_kv=).

    Attributes:
        arrays: one of each hosted rank, in an order of its own.
        made_for: of what calls.

    >>> import numpy as np, ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
    >>> x = [np.zeros((2, 1, 8))] * 2
    >>> with rs.init(ranks_per_process=2) as group:
    ...     out_r, lse_r, kept = plan.attention_rank(x, x, x, group=group, keep_kv=True)
    >>> kept, kept.nbytes
    (KeptKv(ranks 0, 1, 512 bytes), 512)
    """

    arrays: list[Any]
    made_for: dict[str, str]

    @property
    def nbytes(self) -> int:
        """Memory that it takes until it is dropped."""
        return sum(int(x.nbytes) for x in self.arrays)

    def __repr__(self) -> str:
        """Whose it is, and its size."""
        return f"KeptKv({self.made_for['ranks']}, {self.nbytes} bytes)"


def require_kept(kept: Any, made_for: dict[str, str]) -> list[Any]:
    """Its arrays, where it was made for such calls.

    >>> require_kept(KeptKv([], {"ranks": "rank 0"}), {"ranks": "rank 0"})
    []
    """
    if not isinstance(kept, KeptKv):
        raise TypeError(f"kept_kv is a {type(kept).__name__}; expected a KeptKv. {FIX}")
    for name, mine in made_for.items():
        theirs = kept.made_for.get(name)
        if theirs != mine:
            raise InvalidArgument(f"kept_kv was made for {name} {theirs}; expected {mine}. {FIX}")
    return kept.arrays
