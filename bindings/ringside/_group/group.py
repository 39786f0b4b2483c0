"""ringside.init and the group that it makes."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from ringside import _core
from ringside._group.calls import Calls
from ringside._group.control import Control
from ringside._group.failure import RankFailure, named
from ringside._group.peer import Where
from ringside._group.place import Place, place_of
from ringside._group.rendezvous import Connections, Meeting

_open: weakref.WeakSet[Group] = weakref.WeakSet()


class Group(Calls):
    """Processes that run plans together, each with ranks of its own; ringside.init makes one.

    A context manager: an exception that leaves it tells the others why, and they raise
    RankFailure; leaving it otherwise, also by sys.exit(0), closes it. Calls are made by all
    processes, in the same order, one at a time.

    Attributes:
        ranks: those of the plans that this process hosts.
        size: the number of all.
        timeout_s: how long it waits for a rank that is silent.

    >>> import ringside as rs
    >>> with rs.init(ranks_per_process=2) as group:
    ...     group.ranks, group.size
    ((0, 1), 2)
    """

    def __init__(self, place: Place, met: Connections) -> None:
        """As ringside.init, which is how to make one."""
        super().__init__()
        self.ranks, self.size, self.timeout_s = place.ranks, place.size, place.timeout_s
        self._processes = [tuple(ranks) for ranks in met.processes]
        self._devices: dict[str, Any] = {}  # see ringside._ranks.device, by the exchange asked for
        self._auto: Any = None  # see ringside._ranks.auto
        fds = [(rank, peer, connection.fileno()) for rank, peer, connection in met.links]
        self._links = _core.SocketRanks(list(place.ranks), fds, place.timeout_s)
        for _, _, connection in met.links:
            connection.close()  # the links have duplicates
        self._control = Control(met, self._where, self._abort, self._begun)
        self._settled = 0  # the last call that is known to have ended well on GPUs
        _open.add(self)

    @property
    def rank(self) -> int:
        """The rank that this process hosts; ValueError where it hosts several."""
        if len(self.ranks) != 1:
            raise ValueError(
                f"this process hosts {named(self.ranks)}; expected one rank. Use group.ranks"
            )
        return self.ranks[0]

    def close(self) -> None:
        """Leaves the group; the others may finish the calls that this process has finished.

        Raises:
            RankFailure: where the group has failed and no call has said so, after calls on a GPU
                behind the last synchronize(); their results may be NaN. The group is closed.

        >>> import ringside as rs
        >>> group = rs.init()
        >>> group.close()
        """
        if self._closed:
            return
        was_told = self._control.is_told
        try:
            if self._devices:
                self._settle()  # the others may need what it has enqueued
        except RankFailure:
            pass
        finally:
            self._leave()
        if self._devices and self._settled < self._made and not was_told:
            self._control.raise_failure()

    def _leave(self) -> None:
        self._closed = True
        self._control.close(self._calls)
        self._links.abort("the group was closed")
        for device in list(self._devices.values()):
            device.close()
        _open.discard(self)

    def synchronize(self) -> None:
        """Waits until the calls of this process have ended on its GPU, and knows those of others.

        Results that are read behind it are of the same calls on every rank. Replays of captured
        graphs are not waited for: torch.cuda.synchronize() does that, before.

        Raises:
            RankFailure: where the group has failed, also as ranks make different calls; results of
                calls that had not ended are NaN.

        >>> import ringside as rs
        >>> with rs.init() as group:  # nothing was enqueued
        ...     group.synchronize()
        """
        self._settle()

    def _settle(self) -> None:
        made, devices = self._made, list(self._devices.values())
        for device in devices:
            device.wait()
        self._require_usable()
        if devices:
            self._control.compare(self.timeout_s)
        self._settled = made

    def explain(self) -> str:
        """Who hosts which ranks, and how those on GPUs exchange, in words.

        >>> import ringside as rs
        >>> with rs.init(ranks_per_process=2) as group:
        ...     print(group.explain())
        process 0 (this one) hosts ranks 0, 1.
        Arrays on the host go over TCP sockets.
        Nothing was exchanged between GPUs yet.
        """
        lines = [
            f"process {i}{' (this one)' if ranks == self.ranks else ''} hosts {named(ranks)}."
            for i, ranks in enumerate(self._processes)
        ]
        lines.append("Arrays on the host go over TCP sockets.")
        told = [f'exchange="{asked}": {x.explain()}' for asked, x in self._devices.items()]
        told += self._auto.explain() if self._auto else []
        return "\n".join([*lines, *(told or ["Nothing was exchanged between GPUs yet."])])

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ends_well = isinstance(error, SystemExit) and error.code in (None, 0)
        if error is not None and not ends_well and not self._closed:
            self._fail_by(error)
        self.close()

    def __repr__(self) -> str:
        """What can be seen of it."""
        own = f"rank={self.ranks[0]}" if len(self.ranks) == 1 else f"ranks={self.ranks}"
        state = ", closed" if self._closed else ", failed" if self._control.failure else ""
        return f"Group({own}, size={self.size}{state})"

    def _let_go(self) -> None:
        """In a process that was just forked, which the others do not know."""
        self._closed = self._is_anothers = True
        self._lock = threading.Lock()
        self._control.let_go()

    def _abort(self, why: str) -> None:
        self._links.abort(why)
        for device in list(self._devices.values()):
            device.abort()

    def _where(self) -> Where:
        """For the others: also from the thread that talks to them."""
        call, kind, in_call = self._now
        steps = [step for _, step, _ in self._links.waiting() if step >= 0]
        step = min(steps, default=None) if in_call else None
        for device in list(self._devices.values()):
            step = device.step() if step is None else step
        on_device = bool(self._devices)
        return {"call": call, "kind": kind, "in_call": in_call, "step": step, "enqueues": on_device}


@atexit.register
def _leave_all() -> None:
    """A process that ends leaves its groups, so that the others need not take it for dead."""
    failures = []
    for group in list(_open):
        try:
            group.close()
        except RankFailure as failure:
            failures.append(failure)
    if failures:
        raise failures[0]


def _let_all_go() -> None:
    """A forked process ends and uses nothing of a group; else its parent's death were not seen."""
    for group in list(_open):
        group._let_go()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_all_go)


def init(
    rank: int | Sequence[int] | None = None,
    size: int | None = None,
    *,
    ranks_per_process: int = 1,
    address: str | None = None,
    key: str | None = None,
    name: str = "",
    timeout_s: float | None = None,
) -> Group:
    """Meets the other processes that run the ranks of a plan, and returns the group of them.

    What is not said is found in the variables of `ringside run`, torchrun, mpirun (OpenMPI, MPICH)
    or srun; without any of these the process is alone. The variables that a batch script inherits
    are not those of a launcher. On one host processes find each other by a private file; on several
    those of `ringside run` by what it was told, of torchrun by its store, of srun by the first host
    of the step and RINGSIDE_KEY; else one says where to meet.

    Args:
        rank: the rank of the plans that this process hosts, or several, rising.
        size: the number of all ranks, which is the cp_size of the plans.
        ranks_per_process: of a launcher's process of number p the ranks from p times this.
        address: "host:port", where the process of rank 0 listens until all have met; default
            RINGSIDE_RENDEZVOUS.
        key: a secret text that all processes know; default RINGSIDE_KEY, or a random one where
            processes find each other by a file or a store.
        name: tells the group from others of the same job, such as those of every two of its
            processes; alike in all processes of the group.
        timeout_s: how long a silent rank is waited for, here and in calls; default
            RINGSIDE_TIMEOUT_S, or 60.

    Raises:
        ValueError: arguments or variables that do not fit, also between processes: another key,
            another size, a rank twice; a group without a name of some processes of a job.
        RankFailure: ranks that did not come.

    >>> import ringside as rs
    >>> with rs.init() as group:  # no launcher: one process, one rank
    ...     print(group, group.rank)
    Group(rank=0, size=1) 0
    """
    place = place_of(
        rank,
        size,
        ranks_per_process=ranks_per_process,
        address=address,
        key=key,
        name=name,
        timeout_s=timeout_s,
        environment=os.environ,
    )
    return Group(place, Meeting(place).connect())
