"""What a plan has computed after each of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringside._plan.plan import Plan
from ringside.learn.figures.ring import figure_of_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def errors_after_steps(
    plan: Plan, q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """How far the result is from the final one when a plan stops after 0, 1, 2, ... steps.

    Args:
        plan: is run num_steps + 1 times, from the start each time.
        q, k, v: as of plan.attention.

    Returns:
        [num_steps + 1] the norm of the difference over that of the final result; 0 at the end.

    >>> import numpy as np, ringside as rs
    >>> from ringside import learn
    >>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
    >>> q, k, v = np.random.default_rng(0).normal(size=(3, 8, 1, 4))
    >>> errors = learn.errors_after_steps(plan, q, k, v).tolist()
    >>> errors[0], errors[1] < errors[0], errors[2]
    (1.0, True, 0.0)
    """
    wanted: Any = plan.attention(q, k, v)[0]
    size = np.linalg.norm(wanted)
    partial = [plan.first_steps(steps).attention(q, k, v)[0] for steps in range(plan.num_steps + 1)]
    return np.array(
        [float(np.linalg.norm(out - wanted) / size) if size else 0.0 for out in partial]
    )


def figure_of_steps(plan: Plan, q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike) -> Figure:
    """errors_after_steps as a picture; arguments as there.

    >>> import numpy as np, ringside as rs
    >>> from ringside import learn
    >>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
    >>> figure = learn.figure_of_steps(plan, *np.random.default_rng(0).normal(size=(3, 8, 1, 4)))
    """
    return figure_of_errors(errors_after_steps(plan, q, k, v))
