"""What every run draws: two thirds of the examples anew, by a seed that is told; one third fixed.

The fixed third finds again what it found once, the rest looks where nobody has looked. A run is
repeated by RINGSIDE_SEED=... or --hypothesis-seed=...; the C++ tests know RINGSIDE_SEED, too.
"""

from __future__ import annotations

import os
import random
from typing import Any

from hypothesis import settings

FIXED_SHARE = 3  # one example of so many
VARIABLE = "RINGSIDE_SEED"


def seed_from(text: str | None) -> int:
    """The number that RINGSIDE_SEED holds, or a new one where it is not set.

    >>> seed_from("17")
    17
    """
    if text is None:
        return random.SystemRandom().getrandbits(32)
    if not (text.isascii() and text.isdigit() and int(text) < 2**32):
        raise ValueError(f'{VARIABLE}="{text}"; expected an integer from 0 to 4294967295')
    return int(text)


def seed_of_run(option: Any) -> Any:
    """Of --hypothesis-seed, where that is given, or else as seed_from says."""
    return seed_from(os.environ.get(VARIABLE)) if option in (None, "") else option


def words(seed: Any) -> str:
    """How to repeat a run.

    >>> words(17)
    'RINGSIDE_SEED=17 draws the same cases again'
    """
    return f"{VARIABLE}={seed} draws the same cases again"


def parts_of(given: settings) -> list[settings]:
    """The settings of a test, split: the fixed examples and those drawn anew.

    >>> [(x.max_examples, x.derandomize) for x in parts_of(settings(max_examples=60))]
    [(20, True), (40, False)]
    """
    fixed = max(1, given.max_examples // FIXED_SHARE)
    anew = max(1, given.max_examples - fixed)
    return [
        settings(given, max_examples=fixed, derandomize=True, database=None),
        settings(given, max_examples=anew, derandomize=False),
    ]


def run_in_parts(test: Any, call: Any) -> None:
    """Calls a Hypothesis test once for each part of its settings.

    Hypothesis reads the settings of a test where @settings leaves them, each time it runs.
    """
    fn = getattr(test, "__func__", test)
    given = fn._hypothesis_internal_use_settings
    try:
        for part in parts_of(given):
            fn._hypothesis_internal_use_settings = part
            call()
    finally:
        fn._hypothesis_internal_use_settings = given
