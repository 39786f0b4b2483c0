"""One drawn case, looked at in each of several ways: to draw it takes longer than to look at it."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import note
from ringside.testing import Case

RUNS = {"definition": Case.by_definition, "plan": Case.by_plan}


def each_of(name: str, ways: dict[str, Any] | Iterable[Any]) -> Callable[[Any], Any]:
    """Below @given: the test takes an argument more, which has each of these values in turn.

    >>> @each_of("number", [1, 2])
    ... def show(number, case):
    ...     return print(case, number)
    >>> show(case="a")
    a 1
    a 2
    """
    labelled = ways if isinstance(ways, dict) else {str(way): way for way in ways}

    def decorate(test: Any) -> Any:
        whole = inspect.signature(test)
        drawn = whole.replace(parameters=[x for x in whole.parameters.values() if x.name != name])

        @functools.wraps(test)
        def each(*args: Any, **keywords: Any) -> None:
            given = drawn.bind(*args, **keywords).arguments
            for label, way in labelled.items():
                try:
                    test(**given, **{name: way})
                except Exception:
                    note(f"{name}: {label}")
                    raise

        each.__signature__ = drawn  # type: ignore[attr-defined]
        return each

    return decorate


both_ways = each_of("run", RUNS)
"""By the definition, and by a plan."""
