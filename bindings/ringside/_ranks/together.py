"""What all processes of a group do together outside of calls: each its part, and one answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ringside._core import InvalidArgument
from ringside._group.failure import named

if TYPE_CHECKING:
    from ringside._group.group import Group


def together(group: Group, part: Callable[[], Any]) -> list[tuple[tuple[int, ...], Any]]:
    """Every process does its part; (ranks, value) of each, or the error of one in all."""
    value, error = None, None
    try:
        value = part()
    except Exception as raised:
        error = raised
    except BaseException as interrupt:  # the others wait for this part
        group._fail_by(interrupt)
        raise
    told = group._tell_all({"value": value, "error": error and str(error)})
    if error is not None:
        raise error
    for ranks, x in told:
        if x["error"] is not None:
            raise InvalidArgument(f"{named(ranks)}: {x['error']}")
    return [(ranks, x["value"]) for ranks, x in told]
