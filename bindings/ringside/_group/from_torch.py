"""A group over the processes of one of torch.distributed: its own sockets and communicators."""

from __future__ import annotations

import importlib
import secrets
import socket
from typing import Any

from ringside._core import InvalidArgument, arguments
from ringside._group.group import Group, init


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
        ValueError, RankFailure: as ringside.init.

    >>> import ringside as rs
    >>> rs.init_from()  # doctest: +SKIP
    Group(rank=0, size=2)
    """
    each = arguments.int32(ranks_per_process, "ranks_per_process")
    if each < 1:
        raise InvalidArgument(f"ranks_per_process={each}; expected at least 1. Leave it out")
    dist = importlib.import_module("torch.distributed")
    process, processes = dist.get_rank(torch_group), dist.get_world_size(torch_group)
    hosts: list[Any] = [None] * processes
    dist.all_gather_object(hosts, socket.gethostname(), group=torch_group)
    first = 0 if torch_group is None else dist.get_global_rank(torch_group, 0)
    told = [_meeting_point(hosts) if process == 0 else None]
    dist.broadcast_object_list(told, src=first, group=torch_group)
    address, key = told[0]
    return init(
        [process * each + i for i in range(each)],
        processes * each,
        address=address,
        key=key,
        timeout_s=timeout_s,
    )


def _meeting_point(hosts: list[str]) -> tuple[str, str]:
    """An address of this host, and a key."""
    host = "127.0.0.1" if len(set(hosts)) == 1 else hosts[0]
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    return f"{host}:{port}", secrets.token_hex(32)
