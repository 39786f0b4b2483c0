"""What users ask of pictures, checked before anything is drawn."""

from __future__ import annotations

import os
from typing import Any

from ringside import _core
from ringside._core import InvalidArgument, arguments
from ringside._pictures.mask import Mark


def check_path(path: Any) -> None:
    if path is not None and not isinstance(path, str | os.PathLike):
        raise TypeError(f"path is a {type(path).__name__}; expected a path, or None for none")


def check_axes(ax: Any) -> None:
    if ax is not None and not hasattr(ax, "get_figure"):
        raise TypeError(f"ax is a {type(ax).__name__}; expected matplotlib's Axes, or None")


def checked_head(plan: _core.Plan, head: Any) -> int:
    head = int(arguments.integer(head, "head"))
    if not 0 <= head < plan.num_heads:
        raise InvalidArgument(
            f"head {head}; expected 0 to {plan.num_heads - 1}, the query heads of the plan"
        )
    return int(head)


def checked_sequence(layout: _core.PackedLayout, sequence: Any) -> int | None:
    if sequence is None:
        return None
    sequence = arguments.integer(sequence, "sequence")
    if not 0 <= sequence < layout.num_sequences:
        raise InvalidArgument(
            f"sequence {sequence}; expected 0 to {layout.num_sequences - 1}, documents of the pack"
        )
    return int(sequence)


def checked_mark(mark: Any) -> Mark | None:
    """From a PlanError, or (row, key)."""
    if mark is None:
        return None
    if isinstance(mark, _core.PlanError):
        return Mark(mark.row, mark.key)
    if not isinstance(mark, tuple) or len(mark) != 2:
        raise TypeError(
            f"mark is a {type(mark).__name__}; expected (row, key) of the pack, or a PlanError"
        )
    row, key = (None if x is None else arguments.integer(x, "mark") for x in mark)
    return Mark(row, key)
