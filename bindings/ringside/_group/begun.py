"""The calls that a process of a group has begun, as the others compare them with theirs."""

from __future__ import annotations

from ringside._group.agreement import KEPT

REFUSED = "refused"  # the kind of a call that a process raised in place of


class Begun:
    """The kinds of the last calls, and which of them the others have not been told.

    One thread adds, another one may read; whoever asks for news, one at a time.

    >>> begun = Begun()
    >>> begun.add(1, "a")
    >>> begun.add(2, "b")
    >>> begun.kind_of(1), begun.kind_of(3), begun.news(), begun.news()
    ('a', None, [(1, 'a'), (2, 'b')], [])
    """

    def __init__(self) -> None:
        """None were."""
        self._last = self._told = 0
        self._kinds: dict[int, str] = {}

    def add(self, number: int, kind: str) -> None:
        """The next call."""
        self._kinds[number] = kind
        self._kinds.pop(number - KEPT, None)
        self._last = number

    def kind_of(self, number: int) -> str | None:
        """None of a call that has not begun, or long ago."""
        return self._kinds.get(number)

    def news(self) -> list[tuple[int, str]]:
        """(number, kind) of calls since the last time; those refused are told at once, and why."""
        last = self._last
        numbers = range(max(self._told, last - KEPT) + 1, last + 1)
        self._told = last
        kinds = [(number, self._kinds.get(number, REFUSED)) for number in numbers]
        return [(number, kind) for number, kind in kinds if kind != REFUSED]
