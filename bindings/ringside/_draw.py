"""A plan as a picture."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ringside._plan import Plan


def draw(plan: Plan, path: str | os.PathLike[str] | None) -> Figure:
    """See Plan.draw."""
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots(1, plan.cp_size)
    return figure
