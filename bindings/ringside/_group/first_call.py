"""How a process finds that of rank 0, which may not have started yet, and what that tells of both.

It listens at the address by which it came there: that is on the network that all were told to use.
Who came over the loopback is on the host of rank 0, and others find it where they found rank 0.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from ringside._core import InvalidArgument
from ringside._group import host, wire
from ringside._group.door import AGAIN_AFTER_S, CHALLENGE_S, EVERYWHERE, Address, Door
from ringside._group.failure import RankFailure, named
from ringside._group.place import Place

TRY_S = 2.0  # for each of several addresses


def call_first(place: Place, door: Door) -> socket.socket:
    """A connection to the process of rank 0; the door gets the key."""
    while True:
        told, door.key, problems = _told(place, door)
        others = []  # who hold another key
        for address in told:
            try:
                return door.call(address, CHALLENGE_S if len(told) == 1 else TRY_S)
            except wire.WrongKey:
                problems.append(f"{_words(address)}: another key")
                others.append(address)
            except (OSError, EOFError) as error:
                problems.append(f"{_words(address)}: {error}")
        if others and _is_rank_0(told, place):
            raise _wrong_key(place, others[0])
        if door.left() <= 0:
            why = "; ".join(problems)
            raise RankFailure(f"rank 0 was not there within {place.timeout_s:g} s ({why})", [0])
        time.sleep(AGAIN_AFTER_S)


def where_to_listen(first: socket.socket, place: Place) -> tuple[str, str]:
    """An address, and what others call it: nothing where they find it as they found rank 0."""
    own, theirs = first.getsockname()[0], first.getpeername()[0]
    if not host.is_loopback(own):
        return own, own
    if place.board is not None:
        is_one_host = place.board.is_of_one_host
    else:
        is_one_host = place.address is None or host.is_loopback(place.address[0])
    return (theirs if is_one_host else EVERYWHERE), ""


def _told(place: Place, door: Door) -> tuple[list[Address], bytes, list[str]]:
    """Where rank 0 may be, the key, and why nobody knows."""
    if place.address is not None:
        where, port = place.address
        return [(x, port) for x in (where, *place.also)], place.key, []
    assert place.board is not None
    try:
        found = place.board.read(door.left())
    except OSError as error:
        return [], b"", [str(error)]
    if found is None:
        return [], b"", [place.board.hint]
    if (found.key is None) == bool(place.key):
        return [(x, found.port) for x in found.ways], found.key or place.key, []
    differs = _one_has_a_key(place)
    if place.board.outlives_jobs:
        return [], b"", [differs]
    raise InvalidArgument(differs)


def _is_rank_0(told: Sequence[Address], place: Place) -> bool:
    """Whether it is rank 0 that was found to hold another key, and not somebody else there.

    One of several addresses may be somebody else's, and a notice left over.
    """
    if place.board is None:
        return len(told) == 1
    return bool(place.key) and not place.board.outlives_jobs


def _words(address: Address) -> str:
    return f"{host.with_port(*address)}{host.meaning(address[0])}"


def _one_has_a_key(place: Place) -> str:
    who = [named(place.ranks), "rank 0"]
    has, has_not = who if place.key else reversed(who)
    return (
        f"{has} was given a key and {has_not} none; expected both or none. Pass the same key, or "
        "set RINGSIDE_KEY to the same text, in all processes"
    )


def _wrong_key(place: Place, address: Address) -> InvalidArgument:
    return InvalidArgument(
        f"whoever listens at {_words(address)} holds another key than {named(place.ranks)}; "
        "expected one key. Pass the same key, or set RINGSIDE_KEY to the same text, in all "
        "processes"
    )
