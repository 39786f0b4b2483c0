"""The calls of a group: all processes make the same ones, in one order, once they agree."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from ringside import _core
from ringside._group.agreement import KEPT, refuse_differences
from ringside._group.begun import REFUSED, Begun
from ringside._group.control import Control
from ringside._group.failure import RankFailure, named

Result = TypeVar("Result")
REASON_S = 1.0  # how long a closed socket waits for the reason, which comes on another one


class Calls:
    """What a group does for plans; it says whose ranks are here, and how to reach the others."""

    ranks: tuple[int, ...]
    timeout_s: float
    _control: Control
    _links: _core.SocketRanks
    _closed = _is_anothers = False

    def __init__(self) -> None:
        """None were made."""
        self._calls, self._rounds = 0, 0  # begun; of agreement
        self._made = 0  # the last that was begun and not refused
        self._now = (0, "", False)  # call, its kind, whether it runs: as one, for other threads
        self._begun = Begun()
        self._plans_numbered = 0  # those that are told apart by the order of their first calls
        self._half_of = 0  # the call whose other half, backward, is made next; 0: nobody knows
        self._agreed: dict[str, str] = {}  # the last kinds of calls, and the plan of each
        self._lock = threading.Lock()

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
            self._run_set_up(set_up)
            number, self._calls = self._calls + 1, self._calls + 1
            kind = _digest({"what": what, "form": form})
            self._begin(number, kind, what)
            try:
                self._control.require_all(number)
                self._control.require_nobody_agrees()
                self._control.require_alike(number)
                self._control.raise_failure()
                self._links.start(number, int(kind, 16))
                self._made = number
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

    @contextlib.contextmanager
    def _as_half_of(self, call: int) -> Iterator[None]:
        """Around a backward pass, whose kind then tells of which forward call it is."""
        before, self._half_of = self._half_of, call
        try:
            yield
        finally:
            self._half_of = before

    def _begin(self, number: int, kind: str, what: dict[str, Any] | None = None) -> None:
        self._begun.add(number, kind, what)
        self._now = (number, kind, True)

    def _prepare(
        self,
        what: dict[str, Any],
        error: Exception | None = None,
        set_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Agrees now, or tells the others of an error, which is raised here; see _call."""
        with self._alone():
            self._agree(what, error)
            self._run_set_up(set_up)

    def _run_set_up(self, set_up: Callable[[], None]) -> None:
        try:
            set_up()
        except Exception:
            raise  # the others have heard of it, or have it as well
        except BaseException as interrupt:
            self._fail_by(interrupt)
            raise

    def _has_come_to(self) -> tuple[int, int]:
        """Calls and rounds of agreement, in which the others hear of what is raised."""
        return self._calls, self._rounds

    def _refuse(self, plan: str | None, error: BaseException) -> None:
        """Tells the others of what is raised in place of a call; of which plan, where it is one.

        A plan that is not agreed on yet, they all refuse. Else it counts as a call, which all
        refuse, or the group fails: who goes on to its next call would meet others in this one.
        """
        if self._closed or self._control.failure is not None:
            return
        if not isinstance(error, Exception):
            self._fail_by(error)
        elif plan is not None and not self._has_agreed_on(plan):
            self._prepare({"plan": plan}, error)  # which raises it
        else:
            with self._alone():
                self._calls += 1
                self._begin(self._calls, REFUSED)
                self._now = (self._calls, REFUSED, False)
                self._control.refuse(self._calls, _said(error))

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
        why = f"{named(self.ranks)} raised {_said(error)}"
        self._control.fail(self._control.here(why, self.ranks))
        self._control.is_told = True


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _digest(what: dict[str, Any]) -> str:
    text = json.dumps(what, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()[:16]
