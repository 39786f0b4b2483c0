"""JSON as people hand it in: whatever json would let pass without a word is refused."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any


def parsed(text: str | bytes | bytearray) -> Any:
    """What a text says; ValueError where it says nothing, or one key twice.

    >>> parsed('{"tokens": [5, 7]}')
    {'tokens': [5, 7]}
    >>> parsed('{"tokens": [5], "tokens": [7]}')
    Traceback (most recent call last):
    ValueError: "tokens" stands 2 times in one object; expected once
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("lists or objects lie too deep in each other") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a key that stands twice json would silently keep the last."""
    data = dict(pairs)
    if len(data) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f'"{twice}" stands {counts[twice]} times in one object; expected once')
    return data
