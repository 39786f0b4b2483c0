"""Rows of a pack and of its ranks: who owns which, to a rank and back, in what position.

These are methods of Plan; they stand here because they are a concept of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from ringside._arguments.gradients import rows_in_kind

if TYPE_CHECKING:
    from ringside._plan.plan import Plan

Side = Literal["q", "k"]
Array = TypeVar("Array")  # of torch, CuPy or JAX: results are of its kind


@rows_in_kind("x")
def shard(self: Plan, x: Array, rank: int, *, side: Side = "q") -> Array:
    """The rows of x [rows, ...] that a rank owns, in its order: tokens, labels, q, anything.

    >>> import numpy as np, ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
    >>> plan.shard(np.array([10, 11, 12, 13]), rank=0).tolist()
    [10, 13]
    """
    return self._shard(x, rank, side=side)


@rows_in_kind("parts")
def unshard(self: Plan, parts: Sequence[Array], *, side: Side = "q") -> Array:
    """The global array from every rank's part; the inverse of shard.

    >>> import numpy as np, ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
    >>> plan.unshard([np.array([10, 13]), np.array([11, 12])]).tolist()
    [10, 11, 12, 13]
    """
    return self._unshard(parts, side=side)


@rows_in_kind("x", fill="fill_value")
def roll(self: Plan, x: Array, shift: int = -1, *, fill_value: Any = 0) -> Array:
    """Shifts a global array along its rows within each document; see PackedLayout.roll.

    Roll first, then shard: a rank's own rows do not hold the neighbours it would need.

    >>> import numpy as np, ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
    >>> labels = plan.roll(np.array([10, 11, 12, 13]), fill_value=-100)
    >>> plan.shard(labels, rank=0).tolist()
    [11, -100]
    """
    return self.layout_q.roll(x, shift, fill_value=fill_value)


def position_ids(self: Plan, rank: int, *, side: Side = "q") -> npt.NDArray[np.int32]:
    """[rows of the rank] int32: each row's position in its document, as RoPE needs.

    >>> import ringside as rs
    >>> rs.plan(rs.PackedLayout([0, 8]), cp_size=2).position_ids(1).tolist()
    [2, 3, 4, 5]
    """
    return self._position_ids(rank, side=side)


def row_indices(self: Plan, rank: int, *, side: Side = "q") -> npt.NDArray[np.int32]:
    """[rows of the rank] int32: the global row of each of the rank's rows.

    >>> import ringside as rs
    >>> rs.plan(rs.PackedLayout([0, 2, 6]), cp_size=2).row_indices(1).tolist()
    [0, 3, 4]
    """
    return self._row_indices(rank, side=side)
