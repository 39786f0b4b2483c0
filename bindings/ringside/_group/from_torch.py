"""A group over the processes of one of torch.distributed: its own sockets and communicators."""

from __future__ import annotations

import importlib
import os
import secrets
import socket
from dataclasses import replace
from typing import Any

from ringside._core import InvalidArgument, arguments
from ringside._group import host
from ringside._group.failure import RankFailure
from ringside._group.group import Group
from ringside._group.place import place_of
from ringside._group.rendezvous import Meeting


def init_from(
    torch_group: Any = None, *, ranks_per_process: int = 1, timeout_s: float | None = None
) -> Group:
    """Makes a group of the processes of one of torch's, which has to be there already.

    torch's group carries where to meet, once; nothing of it is used afterwards, and its NCCL
    communicators never are.

    Args:
        torch_group: a torch.distributed.ProcessGroup; None is the default group.
        ranks_per_process: of the process of number p the ranks from p times this.
        timeout_s: see ringside.init.

    Raises:
        ValueError: as ringside.init; a process that is not in torch's group.
        RankFailure: as ringside.init; torch's group failed.

    >>> import ringside as rs
    >>> rs.init_from()  # doctest: +SKIP
    Group(rank=0, size=2)
    """
    each = arguments.int32(ranks_per_process, "ranks_per_process")
    if each < 1:
        raise InvalidArgument(f"ranks_per_process={each}; expected at least 1. Leave it out")
    dist = importlib.import_module("torch.distributed")
    process, processes = dist.get_rank(torch_group), dist.get_world_size(torch_group)
    if process < 0:
        raise InvalidArgument(
            "this process is not in torch_group; expected one of its processes. Call "
            "ringside.init_from in those alone"
        )
    try:
        ways, port, key = _told(dist, torch_group, process, processes)
    except RuntimeError as error:
        said = str(error).split("\n")[0]
        why = f"a process of torch's group ended, or did not come to ringside.init_from ({said})"
        raise RankFailure(why) from error
    place = place_of(
        [process * each + i for i in range(each)],
        processes * each,
        ranks_per_process=1,
        address=host.with_port(ways[0], port),
        key=key,
        name="",
        timeout_s=timeout_s,
        environment=os.environ,
    )
    place = replace(place, also=tuple(ways[1:]))
    return Group(place, Meeting(place).connect())


def _told(dist: Any, group: Any, process: int, processes: int) -> tuple[list[str], int, str]:
    """Where to meet, as the first process of torch's group says to all."""
    hosts: list[Any] = [None] * processes
    dist.all_gather_object(hosts, host.network(), group=group)
    first = 0 if group is None else dist.get_global_rank(group, 0)
    told: list[Any] = [_meeting_point(hosts) if process == 0 else None]
    dist.broadcast_object_list(told, src=first, group=group)
    ways, port, key = told[0]
    return ways, port, key


def _meeting_point(hosts: list[str]) -> tuple[list[str], int, str]:
    """Where this host may be reached, a free port, and a key, which tells the right one."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = int(probe.getsockname()[1])
    ways = ["127.0.0.1"]
    if len(set(hosts)) != 1:
        ways = host.ways(os.environ.get("MASTER_ADDR", "localhost"))
    return ways, port, secrets.token_hex(32)
