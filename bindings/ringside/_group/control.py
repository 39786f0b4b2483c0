"""What processes tell each other beside arrays: they agree, beat and abort.

A beat says where a process is: which call, of which kind, at which step. So whoever waits in vain
knows who is silent, and two processes in different calls see it soon: with the beat go the kinds of
all calls since the one before, as those on a GPU are only enqueued. A process that ends closes its
socket, which the others hear; one that means to leave says so first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from ringside._group import wire
from ringside._group.agreement import KEPT, difference
from ringside._group.begun import REFUSED, Begun
from ringside._group.control_sockets import BEAT_S, ControlSockets
from ringside._group.failure import RankFailure, named
from ringside._group.launched import note_failed_by_others
from ringside._group.peer import Peer, Where
from ringside._group.rendezvous import Connections

LATE_S = 1.5  # a process whose last beat is older does not run


class Control(ControlSockets):
    """What this process hears of the others, and tells them."""

    def __init__(
        self,
        met: Connections,
        where: Callable[[], Where],
        on_failure: Callable[[str], None],
        begun: Begun,
    ) -> None:
        super().__init__({p: Peer(met.processes[p], s) for p, s in met.controls.items()}, where)
        self.ranks, self._on_failure = met.processes[met.mine], on_failure
        self._begun, self._asked = begun, 0
        self._refused: dict[int, str] = {}  # by this process
        self.failure: RankFailure | None = None
        self.is_told = False  # the failure, or the error behind it, to who calls
        if self.peers:
            self._start()

    # --- for the thread that calls

    def gather(self, tag: str, number: int, value: Any, timeout_s: float) -> list[tuple[Any, ...]]:
        """(ranks, value) of every process, by rank: the same list in all of them."""
        self.tell({"t": "value", "tag": tag, "number": number, "value": value})
        key = (tag, number)
        self._wait_for_all(lambda peer: key in peer.values, timeout_s)
        gathered = [(p.ranks, p.values.pop(key)) for p in self.peers.values()]
        return sorted([(self.ranks, value), *gathered], key=lambda x: x[0])

    def compare(self, timeout_s: float) -> None:
        """Raises where a process that is there has begun another call than this one, or refused it.

        Who has told of as many calls as this process has begun is not asked: it may have gone on
        to what holds its interpreter until calls have ended that this process has yet to make.
        Others answer at once, also amid a call; what they begin later is compared then.
        """
        with self.changed:
            self._asked += 1
            self._tell_news()
            asked, begun = self._asked, self._begun.last
            behind = [p for p in self.peers.values() if p.told_of < begun]
            self.tell({"t": "ask", "number": asked}, behind)

        def is_done(peer: Peer) -> bool:
            is_compared = peer.told_of >= begun or peer.answered >= asked
            return is_compared or peer.left_after is not None or peer.ended

        self._wait_for_all(is_done, timeout_s)
        self.raise_failure()

    def _wait_for_all(self, has_come: Callable[[Peer], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        with self.changed:
            while missing := [p for p in self.peers.values() if not has_come(p)]:
                self.raise_failure()
                began = time.monotonic()
                if began > deadline:
                    break
                self.changed.wait(BEAT_S)
                over = time.monotonic() - began - BEAT_S
                if over > LATE_S:  # nor did the thread run that hears
                    deadline += over
        if missing:
            self.fail(self.silence([r for p in missing for r in p.ranks], timeout_s))
            raise self.own_failure()

    def require_all(self, call: int) -> None:
        """Fails where a process has left before a call."""
        for peer in self.peers.values():
            if peer.left_after is not None and peer.left_after < call:
                why = f"{named(peer.ranks)} left the group before call {call}"
                self.fail(self.here(why, peer.ranks), left_after=peer.left_after)

    def require_nobody_agrees(self) -> None:
        """Fails where a process wants to agree on a call that this one takes for agreed on."""
        for peer in self.peers.values():
            for (tag, _), value in list(peer.values.items()):
                if tag == "agree":
                    self._compare(peer, value, agrees=True)

    def refuse(self, call: int, why: str) -> None:
        """Tells of a call that this process raised in place of; fails where others make it."""
        _note(self._refused, call, why)
        self.tell({"t": "refused", "call": call, "kind": REFUSED, "why": why})
        self.require_nobody_agrees()
        self.require_alike(call)

    def require_alike(self, call: int) -> None:
        """Fails where a process came to another call than this one, or raised, before this one."""
        for peer in self.peers.values():
            with self.changed:
                kind = REFUSED if call in peer.refused else peer.ahead.pop(call, None)
            if kind is not None:
                self._compare(peer, {"call": call, "kind": kind})

    def silence(
        self, awaited: Iterable[int], seconds: float, enqueued: bool = False
    ) -> RankFailure:
        """Who it is that does not answer: who does not beat, else who has not come to this call.

        Whoever is awaited may itself wait for another one; but not for its part of an agreement.
        A call that is `enqueued` goes on when it no longer runs on the host.
        """
        here, now = self._where(), time.monotonic()
        stopped = [r for p in self.peers.values() if now - p.beat_at > LATE_S for r in p.ranks]
        late = [
            r
            for p in self.peers.values()
            if (here["in_call"] or enqueued) and p.beat.get("call", 0) < here["call"]
            for r in p.ranks
        ]
        ranks = sorted(stopped or late or awaited)
        does = "no sign of life" if stopped else "nothing of this call"
        return self.here(f"{named(ranks)} gave {does} for {seconds:g} s", ranks)

    def here(self, why: str, ranks: Iterable[int]) -> RankFailure:
        """A failure with this process's place in it."""
        where = self._where()
        return RankFailure(why, ranks, where["call"], where["step"])

    def fail(self, failure: RankFailure, left_after: int | None = None) -> None:
        """The first failure is that of the group; ends what runs and tells the others.

        All tell all: who only closed its sockets would be taken for the one that failed. Where a
        process left after so many calls, the others may finish these.
        """
        with self.changed:
            if self.failure is not None:
                return
            self.failure = failure
            self.changed.notify_all()
        told = {"t": "abort", "why": failure.why, "ranks": failure.ranks, "left": left_after}
        self.tell(told)
        self._on_failure(str(failure))

    def wait_for_failure(self, seconds: float) -> RankFailure | None:
        """What another process has to say of what is wrong, if it says so soon."""
        with self.changed:
            self.changed.wait_for(lambda: self.failure is not None, seconds)
            return self.failure

    def own_failure(self) -> RankFailure:
        """That of the group as a new exception, so that each raise has a traceback of its own."""
        assert self.failure is not None
        self.is_told = True
        note_failed_by_others()
        return RankFailure(*self.failure.arguments())

    def raise_failure(self) -> None:
        """Where there is one."""
        if self.failure is not None:
            raise self.own_failure()

    def close(self, calls: int) -> None:
        """Says how many calls were made, and leaves."""
        if self._closing is not None:
            return
        if self.failure is None:
            self.tell({"t": "bye", "calls": calls})
        self._leave()
        last = self._where()
        self._where, self._on_failure = (lambda: last), (lambda why: None)  # the group may go, too

    # --- for either thread

    def _tell_news(self) -> None:
        with self.changed:
            if news := self._begun.news():
                self.tell({"t": "begun", "calls": news})

    # --- for the thread that listens

    def _beat(self) -> None:
        super()._beat()  # which only those hear who have heard all before
        self._tell_news()

    def _break(self, error: Exception) -> None:
        self.fail(self.here(f"the control thread of {named(self.ranks)}: {error!r}", self.ranks))

    def _miss(self, peer: Peer, error: Exception) -> None:
        if peer.left_after is None and not peer.gave_up and self._closing is None:
            self.fail(self.here(f"{named(peer.ranks)} ended ({error})", peer.ranks))

    def _take(self, peer: Peer, message: wire.Message) -> None:
        kind = message["t"]
        if kind == "beat":
            peer.beat, peer.beat_at = message, time.monotonic()
            self._compare(peer, message)
        elif kind == "value":
            with self.changed:
                peer.values[message["tag"], int(message["number"])] = message["value"]
                self.changed.notify_all()
            if message["tag"] == "agree":
                self._compare(peer, message["value"], agrees=True)
        elif kind == "begun":
            for call, kind_of_call in message["calls"]:
                self._take_begun(peer, int(call), str(kind_of_call))
                with self.changed:  # behind the comparison
                    peer.told_of = int(call)
                    self.changed.notify_all()
        elif kind == "ask":
            self.tell({"t": "answer", "number": message["number"]}, [peer])
        elif kind == "answer":
            with self.changed:
                peer.answered = int(message["number"])
                self.changed.notify_all()
        elif kind == "refused":
            _note(peer.refused, int(message["call"]), str(message["why"]))
            self._compare(peer, message)
        elif kind == "abort":
            self._take_abort(peer, message)
        elif kind == "bye":
            with self.changed:
                peer.left_after = int(message["calls"])
                self.changed.notify_all()
            self.require_all(self._where()["call"])

    def _take_begun(self, peer: Peer, call: int, kind: str) -> None:
        with self.changed:
            if self._begun.kind_of(call) is None:
                peer.ahead[call] = kind
                return
        self._compare(peer, {"call": call, "kind": kind})

    def _take_abort(self, peer: Peer, message: wire.Message) -> None:
        """At once, but where one left: this process may have a call to finish that all others have.

        Not on a device, where who gave up has ended what was enqueued.
        """
        left, ranks = message.get("left"), tuple(message["ranks"])
        leaver = next((p for p in self.peers.values() if p.ranks == ranks), None)
        if left is None or leaver is None or self._where().get("enqueues"):
            self.fail(self.here(str(message["why"]), ranks))
            return
        peer.gave_up, leaver.left_after = True, int(left)
        self.require_all(self._where()["call"])

    def _compare(self, peer: Peer, theirs: Where, agrees: bool = False) -> None:
        """Another call, or a call that has yet to be agreed on, under the number of one of mine."""
        mine = self._begun.kind_of(int(theirs["call"]))
        if mine is None or theirs["kind"] == mine or not (theirs["kind"] or agrees):
            return
        if REFUSED in (mine, theirs["kind"]):
            self._fail_by_refusal(peer, int(theirs["call"]), mine == REFUSED)
            return
        agreed = [(x, what, None) for x, what in self._whats(peer, theirs)]
        text = (
            f"{named(peer.ranks)} and {named(self.ranks)} make different calls; "
            "expected the same calls in the same order on every rank"
        )
        if (differs := difference(agreed)) is not None:
            text += f". Here {differs}"
        self.fail(self.here(text, sorted({*peer.ranks, *self.ranks})))

    def _whats(self, peer: Peer, theirs: Where) -> list[tuple[tuple[int, ...], dict[str, Any]]]:
        """What is to be agreed on for both calls, where the other one says it, by rank."""
        mine = self._begun.what_of(int(theirs["call"]))
        both = [(self.ranks, mine), (peer.ranks, theirs.get("what", mine))]
        return sorted(both, key=lambda x: x[0])

    def _fail_by_refusal(self, peer: Peer, call: int, is_mine: bool) -> None:
        one, other = (self, peer) if is_mine else (peer, self)
        why = (self._refused if is_mine else peer.refused).get(call, "an error")
        self.fail(
            self.here(
                f"{named(one.ranks)} made no call {call}, which {named(other.ranks)} made; "
                f"expected all ranks to make it. It raised {why}",
                one.ranks,
            )
        )


def _note(refused: dict[int, str], call: int, why: str) -> None:
    """Of the last calls."""
    refused[call] = why
    if len(refused) > KEPT:
        del refused[next(iter(refused))]
