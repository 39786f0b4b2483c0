"""Which sizes can be computed here at all, asked before anything is built."""

from __future__ import annotations

import os

INT_MAX = 2**31 - 1  # what the library counts rows, heads and ranks with
BYTES_OF_RANK_AND_STEP = 8 * 13  # a cost's numbers
BYTES_OF_RANK_PAIR = 150  # a plan's steps, messages and tile lists: one for every pair of ranks


def require_between(flag: str, value: int | None, least: int, what: str) -> None:
    """Raises ValueError unless a flag's value is at least `least` and an int; None passes.

    >>> require_between("--cp", 0, 1, "a number of ranks")
    Traceback (most recent call last):
    ValueError: --cp 0; expected a number of ranks, 1 to 2147483647. Pass one in between
    """
    if value is not None and not least <= value <= INT_MAX:
        raise ValueError(
            f"{flag} {value}; expected {what}, {least} to {INT_MAX}. Pass one in between"
        )


def require_memory(needed: int, what: str, fix: str) -> None:
    """Raises ValueError if so many bytes are more than this machine has."""
    if needed > memory():
        raise ValueError(
            f"{what} would take about {gib(needed)}; expected at most {gib(memory())}, what this "
            f"machine has. {fix}"
        )


def require_memory_of_plan(cp_size: int) -> None:
    """Raises ValueError if a plan of so many ranks is more than this machine can hold."""
    needed = BYTES_OF_RANK_PAIR * cp_size**2
    require_memory(needed, f"--cp {cp_size}: a plan of all ranks", "Pass fewer ranks: --cp")


def require_memory_of_cost(cp_size: int) -> None:
    """Raises ValueError if counts of all ranks and steps are more than this machine can hold."""
    what = f"--cp {cp_size}: counts of all ranks and steps"
    require_memory(BYTES_OF_RANK_AND_STEP * cp_size**2, what, "Pass fewer ranks: --cp")


def memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def gib(size: int) -> str:
    """Bytes in words.

    >>> gib(3 * 2**29), gib(2**40)
    ('1.5 GiB', '1,024.0 GiB')
    """
    return f"{size / 2**30:,.1f} GiB"
