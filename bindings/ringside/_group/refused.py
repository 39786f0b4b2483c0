"""A call that one process refuses: the others hear of it, so that none computes with later rows."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from ringside._group.group import Group

Call = TypeVar("Call", bound=Callable[..., Any])


@contextlib.contextmanager
def telling(plan: Any, group: Any) -> Iterator[None]:
    """Around a call of ranks: what it raises before the others can hear of it, they are told."""
    if not isinstance(group, Group):
        yield
        return
    before = group._has_come_to()
    try:
        yield
    except BaseException as error:
        if group._has_come_to() == before:
            named = getattr(plan, "_fingerprint_in", None)
            group._refuse(named and named(group), error)
        raise


def tells_refusals(call: Call) -> Call:
    """Goes around a method of a plan that makes a call of `group`; see telling.

    >>> @tells_refusals
    ... def rows_of(plan, x, *, group): return x
    >>> rows_of(None, 3, group=None)
    3
    """

    @functools.wraps(call)
    def made(plan: Any, *args: Any, **kwargs: Any) -> Any:
        with telling(plan, kwargs.get("group")):
            return call(plan, *args, **kwargs)

    return cast(Call, made)
