"""How the processes of a group exchange on their devices: one answer for all, or one refusal.

A function of what every process tells of itself, so that all come to the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict

from ringside._core import InvalidArgument, Unsupported, arguments
from ringside._group.failure import named

EXCHANGES = ("auto", "nccl", "peer")


class Told(TypedDict):
    """What a process tells of itself."""

    host: str  # alike where memory can be shared, as far as that can be told
    device: str  # alike where it is the same one
    family: str  # of kernels
    nccl: str  # version
    nccl_problem: str


Everybody = Sequence[tuple[tuple[int, ...], Any]]  # ranks, Told


def check_exchange(exchange: str) -> str:
    """One of EXCHANGES.

    >>> check_exchange("peer")
    'peer'
    """
    if arguments.text(exchange, "exchange") not in EXCHANGES:
        raise InvalidArgument(f'exchange="{exchange}"; expected one of {", ".join(EXCHANGES)}')
    return exchange


def choose(exchange: str, told: Everybody) -> str:
    """ "nccl" or "peer", or "none" for one process alone; raises the same in every process.

    "auto" is for whom nothing was measured: peer memory where all are on one host.
    """
    if len(told) == 1:
        return "none"
    _require_equal(told, "family", "kernels", "Run on devices of one kind")
    hosts = _ranks_by(told, "host")
    if exchange == "nccl" or (exchange == "auto" and len(hosts) > 1):
        _require_nccl(told)
        return "nccl"
    if len(hosts) > 1:
        where = "; ".join(f"{named(ranks)} on another" for ranks in list(hosts.values())[1:])
        raise Unsupported(
            f'exchange="peer" between hosts: {named(next(iter(hosts.values())))} on one, {where}. '
            'Nearest supported: exchange="nccl"'
        )
    return "peer"


def require_shared(told: Everybody) -> None:
    """That the files in memory of all others are here: copies of one machine look like one host.

    Args:
        told: with the path of such a file as `words`.
    """
    for ranks, x in told:
        if not Path(x["words"]).exists():
            raise Unsupported(
                f'exchange="peer" with {named(ranks)}, whose files in memory ({x["words"]}) are '
                'not on this host. Nearest supported: exchange="nccl"'
            )


def fitting(told: Everybody) -> tuple[list[str], dict[str, str]]:
    """Which exchanges several processes may use, and why not the others."""
    _require_equal(told, "family", "kernels", "Run on devices of one kind")
    fit, against = [], {}
    for exchange in ("peer", "nccl"):
        try:
            fit.append(choose(exchange, told))
        except (Unsupported, InvalidArgument) as error:
            against[exchange] = str(error)
    return fit, against


def _require_nccl(told: Everybody) -> None:
    is_one_host = len(_ranks_by(told, "host")) == 1
    nearest = 'exchange="peer"' if is_one_host else "arrays on the host (CPU, sockets)"
    for ranks, x in told:
        if x["nccl_problem"]:
            raise Unsupported(
                f'exchange="nccl" on {named(ranks)}: {x["nccl_problem"]}. Nearest supported: '
                f"{nearest}"
            )
    _require_equal(told, "nccl", "NCCL", "Install one version of nvidia-nccl")
    for ranks in _ranks_by(told, "host", "device").values():
        if sum(process <= ranks for process in ({*r} for r, _ in told)) > 1:
            raise Unsupported(
                f'exchange="nccl" with {named(ranks)} in processes of one GPU, which NCCL refuses. '
                'Nearest supported: exchange="peer", or one process for the GPU, which hosts '
                "several ranks"
            )


def _ranks_by(told: Everybody, *keys: str) -> dict[tuple[str, ...], set[int]]:
    found: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for ranks, x in told:
        found[tuple(x[key] for key in keys)].update(ranks)
    return found


def _require_equal(told: Everybody, key: str, what: str, fix: str) -> None:
    found = _ranks_by(told, key)
    if len(found) > 1:
        raise InvalidArgument(f"{_listed(found, what)}; expected the same on every rank. {fix}")


def _listed(found: dict[tuple[str, ...], set[int]], what: str) -> str:
    parts: Iterable[str] = (f"{named(ranks)}: {what} {key[0]}" for key, ranks in found.items())
    return "; ".join(parts)
