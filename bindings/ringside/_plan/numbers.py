"""Plans by number, for who can carry numbers only: an operator of torch's."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

_PLANS: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_NUMBERS = itertools.count(1)


def number(plan: Any) -> int:
    """A number that no other plan had or will have; nothing is kept alive by it."""
    made = next(_NUMBERS)
    _PLANS[made] = plan
    return made


def plan_of(number: int) -> Any:
    """The plan that got a number.

    Raises:
        RuntimeError: it is gone.
    """
    plan = _PLANS.get(number)
    if plan is None:
        raise RuntimeError(
            f"got the number of a plan that is gone, {number}; expected a living one. Keep the "
            "plan for as long as a compiled function or a backward pass may use it"
        )
    return plan
