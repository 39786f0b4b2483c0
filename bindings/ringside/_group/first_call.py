"""How a process finds that of rank 0, which may not have started yet, and what that tells of both.

It listens at the address by which it came there: that is on the network that all were told to use.
Who came over the loopback is on the host of rank 0, and others find it where they found rank 0.
"""

from __future__ import annotations

import socket
import time

from ringside._core import InvalidArgument
from ringside._group import host, meeting_file, wire
from ringside._group.door import AGAIN_AFTER_S, CHALLENGE_S, EVERYWHERE, Address, Door
from ringside._group.failure import RankFailure, named
from ringside._group.place import Place

TRY_S = 2.0  # for each of several addresses
UNTOLD = (
    "no file of this host says where; set RINGSIDE_RENDEZVOUS and RINGSIDE_KEY for ranks in "
    "containers of their own"
)


def call_first(place: Place, door: Door) -> socket.socket:
    """A connection to the process of rank 0; the door gets the key."""
    while True:
        told, door.key = _told(place)
        problems = [UNTOLD] if not told else []
        for address in told:
            try:
                return door.call(address, CHALLENGE_S if len(told) == 1 else TRY_S)
            except wire.WrongKey:
                problems.append(f"{_words(address)}: another key")
                if place.address is not None and len(told) == 1:
                    raise _wrong_key(place, address) from None
            except (OSError, EOFError) as error:
                problems.append(f"{_words(address)}: {error}")
        if door.left() <= 0:
            why = "; ".join(problems)
            raise RankFailure(f"rank 0 was not there within {place.timeout_s:g} s ({why})", [0])
        time.sleep(AGAIN_AFTER_S)


def where_to_listen(first: socket.socket, place: Place) -> tuple[str, str]:
    """An address, and what others call it: nothing where they find it as they found rank 0."""
    own, theirs = first.getsockname()[0], first.getpeername()[0]
    if not host.is_loopback(own):
        return own, own
    is_one_host = place.address is None or host.is_loopback(place.address[0])
    return (theirs if is_one_host else EVERYWHERE), ""


def _told(place: Place) -> tuple[list[Address], bytes]:
    """Where rank 0 may be, and the key."""
    if place.address is not None:
        where, port = place.address
        return [(x, port) for x in (where, *place.also)], place.key
    assert place.job is not None
    found = meeting_file.read(meeting_file.path_of(place.job))
    return ([found[0]], found[1]) if found else ([], b"")


def _words(address: Address) -> str:
    return f"{host.with_port(*address)}{host.meaning(address[0])}"


def _wrong_key(place: Place, address: Address) -> InvalidArgument:
    return InvalidArgument(
        f"whoever listens at {_words(address)} holds another key than {named(place.ranks)}; "
        "expected one key. Pass the same key, or set RINGSIDE_KEY to the same text, in all "
        "processes"
    )
