"""A plan's tables as pictures ask them: by rank and step, without an object for each tile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ringside import _core

Records = npt.NDArray[Any]  # of named columns


def records(plan: _core.Plan, name: str) -> Records:
    """One of Plan.tables, its columns by name."""
    columns, cells = plan.tables()[name]
    return _named(columns, cells)


def tiles_of(plan: _core.Plan, head: int = 0) -> Records:
    """Every tile that computes a query head, with its rank and step.

    >>> import ringside as rs
    >>> tiles = tiles_of(rs.plan(rs.PackedLayout([0, 4]), cp_size=2))
    >>> tiles[["rank", "step", "q_pos", "k_pos"]].tolist()[:3]
    [(0, 0, 0, 0), (0, 0, 3, 0), (0, 0, 3, 3)]
    """
    tables = plan.tables()
    steps, tiles = (_named(*tables[name]) for name in ("steps", "tiles"))
    steps = steps[(steps["q_head_begin"] <= head) & (head < steps["q_head_end"])]
    first = np.searchsorted(tiles["tile_list"], steps["tile_list"])
    end = np.searchsorted(tiles["tile_list"], steps["tile_list"], side="right")
    of_step = np.repeat(np.arange(len(steps)), end - first)
    place = np.arange(len(of_step)) - np.repeat(np.cumsum(end - first) - (end - first), end - first)
    found = tiles[first[of_step] + place]
    columns = ["rank", "step", *(found.dtype.names or ())]
    joined = np.empty(len(found), [(name, np.int64) for name in columns])
    joined["rank"], joined["step"] = steps["rank"][of_step], steps["step"][of_step]
    for name in columns[2:]:
        joined[name] = found[name]
    return joined


def _named(columns: list[str], cells: npt.NDArray[np.int32]) -> Records:
    kind = np.dtype([(name, np.int32) for name in columns])
    return np.ascontiguousarray(cells).view(kind).reshape(-1)
