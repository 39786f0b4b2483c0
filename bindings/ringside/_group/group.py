"""ringside.init and the group that it makes."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from ringside import _core
from ringside._group.agreement import KEPT, refuse_differences
from ringside._group.control import Control, Where
from ringside._group.failure import RankFailure, named
from ringside._group.place import Place, place_of
from ringside._group.rendezvous import Connections, Meeting

Result = TypeVar("Result")
REASON_S = 1.0  # how long a closed socket waits for the reason, which comes on another one

_open: weakref.WeakSet[Group] = weakref.WeakSet()


class Group:
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
        self.ranks, self.size, self.timeout_s = place.ranks, place.size, place.timeout_s
        self._calls, self._rounds = 0, 0  # begun; of agreement
        self._now = (0, "", False)  # call, its kind, whether it runs: as one, for other threads
        self._kinds: dict[int, str] = {}  # of the last calls
        self._processes = [tuple(ranks) for ranks in met.processes]
        self._devices: dict[str, Any] = {}  # see ringside._ranks.device, by the exchange asked for
        self._auto: Any = None  # see ringside._ranks.auto
        self._plans_numbered = 0  # those that are told apart by the order of their first calls
        self._agreed: dict[str, str] = {}  # the last kinds of calls, and the plan of each
        self._lock = threading.Lock()
        self._closed = self._is_anothers = False
        fds = [(rank, peer, connection.fileno()) for rank, peer, connection in met.links]
        self._links = _core.SocketRanks(list(place.ranks), fds, place.timeout_s)
        for _, _, connection in met.links:
            connection.close()  # the links have duplicates
        self._control = Control(met, self._where, self._abort, self._kinds.get)
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

        >>> import ringside as rs
        >>> group = rs.init()
        >>> group.close()
        """
        if self._closed:
            return
        self._closed = True
        for device in list(self._devices.values()):
            device.wait()  # the others may need what it has enqueued
        self._control.close(self._calls)
        self._links.abort("the group was closed")
        for device in list(self._devices.values()):
            device.close()
        _open.discard(self)

    def synchronize(self) -> None:
        """Waits until the calls of this process have ended on its GPU.

        Raises:
            RankFailure: where the group has failed; results of calls that had not ended are NaN.

        >>> import ringside as rs
        >>> with rs.init() as group:  # nothing was enqueued
        ...     group.synchronize()
        """
        for device in list(self._devices.values()):
            device.wait()
        self._require_usable()

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

    # --- for plans

    def _call(
        self,
        what: dict[str, Any],
        form: str,
        run: Callable[[_core.SocketRanks, Callable[[Any], list[Any]]], Result],
        set_up: Callable[[], None] = lambda: None,
    ) -> Result:
        """One call of all processes.

        Args:
            what: on which all have to agree before the first call of its kind.
            form: of the call, in which it may differ from others of the kind.
            run: does it; it may gather a value from all processes.
            set_up: what all do together before, once they agree; see _tell_all.
        """
        with self._alone():
            self._agree(what)
            set_up()
            number, self._calls = self._calls + 1, self._calls + 1
            kind = _digest({"what": what, "form": form})
            self._begin(number, kind)
            try:
                self._control.require_all(number)
                self._control.require_nobody_agrees()
                self._control.raise_failure()
                self._links.start(number, int(kind, 16))
                result = run(self._links, lambda value: self._gather("value", number, value))
                self._control.raise_failure()  # nothing of a call that another process gave up
                return result
            except RankFailure:
                raise
            except (_core.PeerError, _core.Aborted) as error:
                self._raise_missing(error)
            except BaseException as error:
                self._fail_by(error)
                raise
            finally:
                self._now = (number, kind, False)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuses two threads at once: no order of their calls would be that of other ranks."""
        if not self._lock.acquire(blocking=not self._control.peers):
            error = _core.InvalidArgument(
                "another thread is in a call of this group; expected one call at a time, as all "
                'ranks have to make the same in one order. Make a group for each thread: name="..."'
            )
            self._fail_by(error)
            raise error
        try:
            yield
        finally:
            self._lock.release()

    def _begin(self, number: int, kind: str) -> None:
        self._now = (number, kind, True)
        self._kinds[number] = kind
        self._kinds.pop(number - KEPT, None)

    def _prepare(
        self,
        what: dict[str, Any],
        error: Exception | None = None,
        set_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Agrees now, or tells the others of an error, which is raised here; see _call."""
        with self._alone():
            self._agree(what, error)
            set_up()

    def _tell_all(self, value: Any) -> list[Any]:
        """(ranks, value) of every process, outside of calls; all of them come to it."""
        self._rounds += 1
        try:
            return self._gather("set up", self._rounds, value)
        except RankFailure:
            raise
        except BaseException as interrupt:
            self._fail_by(interrupt)
            raise

    def _agree(self, what: dict[str, Any], error: Exception | None = None) -> None:
        """Once for each kind; raises in every process where they differ, or one has an error."""
        self._require_usable()
        kind = _digest(what)
        if error is None and kind in self._agreed:
            return
        self._rounds += 1
        call = self._calls + 1
        self._now = (call, "", False)
        try:
            self._control.require_all(call)
            said = {"call": call, "kind": "", "what": what, "error": error and str(error)}
            told = self._gather("agree", self._rounds, said)
        except RankFailure:
            raise
        except BaseException as interrupt:  # the others have been told half of it
            self._fail_by(interrupt)
            raise
        finally:
            self._now = (self._calls, "", False)
        if error is not None:
            raise error
        refuse_differences([(ranks, x["what"], x["error"]) for ranks, x in told])
        self._agreed[kind] = what["plan"]
        if len(self._agreed) > KEPT:
            del self._agreed[next(iter(self._agreed))]

    def _has_agreed_on(self, plan: str) -> bool:
        """Whether it takes calls of a plan for agreed on."""
        return plan in self._agreed.values()

    def _number_plan(self) -> int:
        """The next number, in a call of all processes."""
        self._plans_numbered += 1
        return self._plans_numbered

    def _gather(self, tag: str, number: int, value: Any) -> list[Any]:
        return self._control.gather(tag, number, value, self.timeout_s)

    def _let_go(self) -> None:
        """In a process that was just forked, which the others do not know."""
        self._closed = self._is_anothers = True
        self._lock = threading.Lock()
        self._control.let_go()

    def _require_usable(self) -> None:
        if self._is_anothers:
            raise _core.InvalidArgument(
                "the group is of the process which this one was forked from; expected one of its "
                "own. Make another with ringside.init"
            )
        if self._closed:
            raise _core.InvalidArgument(
                "the group is closed; expected an open one. Make another with ringside.init"
            )
        self._control.raise_failure()

    def _raise_missing(self, error: Exception) -> NoReturn:
        """What the others say is wrong, else what the sockets say."""
        ranks, is_silent = self._links.lost or ((), False)
        if is_silent:
            self._control.fail(self._control.silence(ranks, self.timeout_s))
        elif self._control.wait_for_failure(REASON_S) is None:
            self._control.fail(self._control.here(str(error), ranks))
        raise self._control.own_failure()

    def _fail_by(self, error: BaseException) -> None:
        """Tells the others what this process raised."""
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        self._control.fail(self._control.here(f"{named(self.ranks)} raised {said}", self.ranks))

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
        return {"call": call, "kind": kind, "in_call": in_call, "step": step}


def _digest(what: dict[str, Any]) -> str:
    text = json.dumps(what, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()[:16]


@atexit.register
def _leave_all() -> None:
    """A process that ends leaves its groups, so that the others need not take it for dead."""
    for group in list(_open):
        group.close()


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
