"""On what the processes of a group have to agree before the first message of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringside._core import InvalidArgument
from ringside._group.failure import named

KEPT = 4096  # kinds of calls that a group takes for agreed on; the oldest are agreed on again
Told = tuple[Sequence[int], dict[str, Any], str | None]  # ranks, what they would do, their error

FIXES = {
    "plan": "Make the same plan on every rank",
    "dtypes": "Convert to one dtype",
    "head_dims": "Pass arrays of one model",
    "options": "Pass the same options on every rank",
    "keep_kv": "Keep keys and values on every rank, or on none",
    "arrays": "Pass arrays on GPUs, or on the host, on every rank",
    "exchange": "Pass the same exchange on every rank",
}


def refuse_differences(told: Sequence[Told]) -> None:
    """Raises InvalidArgument naming the ranks that refuse a call, or mean another.

    >>> refuse_differences([([0], {"dtypes": "float32"}, None), ([1], {"dtypes": "float32"}, None)])
    """
    for ranks, _, error in told:
        if error is not None:
            raise InvalidArgument(f"{named(ranks)}: {error}")
    if (text := difference(told)) is not None:
        raise InvalidArgument(text)


def difference(told: Sequence[Told]) -> str | None:
    """The first one, in words, with the ranks; None where there is none.

    >>> difference([([0], {"dtypes": "float32"}, None), ([1], {"dtypes": "float64"}, None)])[:47]
    'rank 0: dtypes (float32); rank 1: dtypes (float'
    """
    first = told[0]
    for subject in FIXES:
        others = [t for t in told if t[1].get(subject) != first[1].get(subject)]
        if others:
            return _difference(subject, told, first, others[0])
    return None


def _difference(subject: str, told: Sequence[Told], a: Told, b: Told) -> str:
    def ranks_of(which: Told) -> str:
        same = [t[0] for t in told if t[1].get(subject) == which[1].get(subject)]
        return named([rank for ranks in same for rank in ranks])

    return (
        f"{ranks_of(a)}: {subject} {_words(a, subject)}; {ranks_of(b)}: {subject} "
        f"{_words(b, subject)}; expected the same on every rank. {FIXES[subject]}"
    )


def _words(told: Told, subject: str) -> str:
    value = told[1].get(subject)
    return f"({value})" if isinstance(value, str) else str(value)
