"""What ringside.init was told, by arguments or by the environment, as one value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ringside._core import InvalidArgument, arguments
from ringside._group import launch
from ringside._group.launch import Environment
from ringside._group.meeting_file import MeetingFile
from ringside._group.notice import Board
from ringside._group.torch_store import TorchStore

DEFAULT_TIMEOUT_S = 60.0
PASSED_ON = {  # by launcher: how its processes on other hosts get these, or do without
    "torchrun": " for each torchrun, or make torch's group and call ringside.init_from()",
    "mpirun (OpenMPI)": ", and pass them on: mpirun -x RINGSIDE_RENDEZVOUS -x RINGSIDE_KEY",
}


@dataclass(frozen=True)
class Place:
    """Where a process stands in its group, and how it finds the others."""

    ranks: tuple[int, ...]
    size: int
    timeout_s: float
    address: tuple[str, int] | None = None
    key: bytes = b""
    board: Board | None = None  # instead of an address: where rank 0 posts one
    name: str = ""  # of the group: processes of others may come to the same place
    processes: int = 0  # of the job, where all of them meet in one place: no fewer make a group
    also: tuple[str, ...] = ()  # where else the host of rank 0 may be found, at the same port

    @property
    def is_alone(self) -> bool:
        """Whether no other process hosts a rank."""
        return len(self.ranks) == self.size


def place_of(
    rank: int | Sequence[int] | None,
    size: int | None,
    *,
    ranks_per_process: int,
    address: str | None,
    key: str | None,
    name: str,
    timeout_s: float | None,
    environment: Environment,
) -> Place:
    """Arguments first, then the environment, else one process with all ranks."""
    seconds = _timeout(timeout_s, environment)
    meets_at = None if address is None else _host_and_port(address)
    secret = None if key is None else arguments.text(key, "key")
    group = arguments.text(name, "name")
    launched = launch.found(environment)
    each = arguments.int32(ranks_per_process, "ranks_per_process")
    if each < 1:
        raise InvalidArgument(f"ranks_per_process={each}; expected at least 1. Leave it out")
    if (rank is None) != (size is None):
        raise InvalidArgument("rank without size, or size without rank; expected both or none")
    if rank is not None and size is not None:
        if each != 1:
            raise InvalidArgument(
                f"ranks_per_process={each} beside rank; expected one of them. Pass the list of all "
                "ranks that this process hosts as rank"
            )
        ranks, count = _given(rank, size)
    else:
        process, processes = (launched.rank, launched.size) if launched else (0, 1)
        ranks = tuple(range(process * each, process * each + each))
        count = processes * each
    together = launched.size if launched and address is None and not group else 0
    alone = Place(ranks, count, seconds, name=group, processes=together)
    return alone if alone.is_alone else _meeting(alone, meets_at, secret, launched, environment)


def _given(rank: int | Sequence[int], size: int) -> tuple[tuple[int, ...], int]:
    count = arguments.int32(size, "size")
    if isinstance(rank, Sequence) and not isinstance(rank, str | bytes):
        ranks = tuple(arguments.int32(x, "rank") for x in rank)
    else:
        ranks = (arguments.int32(rank, "rank"),)
    if not ranks or list(ranks) != sorted(set(ranks)):
        raise InvalidArgument(f"rank={list(ranks)}; expected one rank, or several that rise")
    if ranks[0] < 0 or ranks[-1] >= count:
        raise InvalidArgument(f"rank={list(ranks)}; expected 0 to size-1, and size is {count}")
    return ranks, count


def _timeout(timeout_s: float | None, environment: Environment) -> float:
    if timeout_s is not None:
        return _seconds(arguments.real(timeout_s, "timeout_s"), "timeout_s", timeout_s)
    text = environment.get("RINGSIDE_TIMEOUT_S")
    if text is None:
        return DEFAULT_TIMEOUT_S
    try:
        return _seconds(float(text), "RINGSIDE_TIMEOUT_S", text)
    except ValueError:
        return _seconds(math.nan, "RINGSIDE_TIMEOUT_S", text)


def _seconds(seconds: float, name: str, got: object) -> float:
    if not 0 < seconds <= 1e6:
        raise InvalidArgument(f"{name}={got!r}; expected seconds, more than 0 and at most 1e6")
    return seconds


def _meeting(
    place: Place,
    address: tuple[str, int] | None,
    key: str | None,
    launched: launch.Launch | None,
    environment: Environment,
) -> Place:
    told = environment.get("RINGSIDE_RENDEZVOUS")
    if address is None and told is not None:
        address = _host_and_port(told)
    key = environment.get("RINGSIDE_KEY") if key is None else key
    if address is not None:
        if not key:
            raise InvalidArgument(
                "an address without a key; expected both, alike in all processes. Pass key=, or "
                "set RINGSIDE_KEY to a secret text such as secrets.token_hex() makes"
            )
        return replace(place, address=address, key=key.encode())
    place = replace(place, key=(key or "").encode())
    if launched is not None and launched.job is not None:
        return replace(place, board=MeetingFile(f"{launched.job}|{place.name}"))
    if launched is not None and launched.store is not None:
        return replace(place, board=TorchStore(launched.store, launched.run, place.name))
    if launched is not None and launched.address is not None:
        if not key:
            raise InvalidArgument(
                f"{launched.launcher} on several hosts and no key; expected one. Set "
                'RINGSIDE_KEY before: export RINGSIDE_KEY="$(openssl rand -hex 32)"'
            )
        return replace(place, address=launched.address)
    raise InvalidArgument(
        f"{place.size} ranks, of which this process hosts {len(place.ranks)}, and no address to "
        "meet the others at; expected one, except on a single host under a launcher. Set "
        "RINGSIDE_RENDEZVOUS=host:port (a free port of the host of rank 0) and RINGSIDE_KEY"
        f"{'' if launched is None else PASSED_ON.get(launched.launcher, '')}"
    )


def _host_and_port(address: str) -> tuple[str, int]:
    where, _, port = arguments.text(address, "address").rpartition(":")
    if not where or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidArgument(
            f'address="{address}"; expected "host:port", a free port of the host of rank 0'
        )
    if ":" in where and where[:1] + where[-1:] != "[]":
        raise InvalidArgument(
            f'address="{address}"; expected an address of IPv6 in brackets. Write '
            f'"[{where}]:{port}"'
        )
    where = where.strip("[]")
    if where.lower().startswith("fe80:"):
        raise InvalidArgument(
            f'address="{address}", which each host knows on its own cable only; expected one that '
            "all hosts know. Use a name of the host of rank 0, or another of its addresses"
        )
    return where, int(port)
