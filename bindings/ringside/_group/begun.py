"""The calls that a process of a group has begun, as the others compare them with theirs."""

from __future__ import annotations

from typing import Any

from ringside._group.agreement import KEPT

REFUSED = "refused"  # the kind of a call that a process raised in place of


class Begun:
    """The kinds of the last calls, and which of them the others have not been told.

    One thread adds, another one may read; whoever asks for news, one at a time.

    >>> begun = Begun()
    >>> begun.add(1, "a")
    >>> begun.add(2, "b")
    >>> begun.kind_of(1), begun.kind_of(3), begun.last, begun.news(), begun.news()
    ('a', None, 2, [(1, 'a'), (2, 'b')], [])
    """

    def __init__(self) -> None:
        """None were."""
        self._last = self._told = 0
        self._kinds: dict[int, str] = {}
        self._whats: dict[int, dict[str, Any]] = {}

    def add(self, number: int, kind: str, what: dict[str, Any] | None = None) -> None:
        """The next call, and what all have agreed on for it."""
        self._kinds[number], self._whats[number] = kind, what or {}
        for of_calls in (self._kinds, self._whats):
            of_calls.pop(number - KEPT, None)
        self._last = number

    @property
    def last(self) -> int:
        """The number of the last call; 0 where there was none."""
        return self._last

    def kind_of(self, number: int) -> str | None:
        """None of a call that has not begun, or long ago."""
        return self._kinds.get(number)

    def what_of(self, number: int) -> dict[str, Any]:
        """What all have agreed on for a call; nothing where kind_of knows none."""
        return self._whats.get(number, {})

    def news(self) -> list[tuple[int, str]]:
        """(number, kind) of calls since the last time; those refused are told at once, and why."""
        last = self._last
        numbers = range(max(self._told, last - KEPT) + 1, last + 1)
        self._told = last
        kinds = [(number, self._kinds.get(number, REFUSED)) for number in numbers]
        return [(number, kind) for number, kind in kinds if kind != REFUSED]
