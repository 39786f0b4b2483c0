"""How the processes of a group find each other and get connected, each with each.

The process of rank 0 listens where all were told; the others come there, say which ranks they host
and where they listen themselves, and get the list of all. Then each connects to those before it in
that list: one socket for control, one for every pair of ranks.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from ringside._core import InvalidArgument, __version__
from ringside._group import host, wire
from ringside._group.door import (
    AGAIN_AFTER_S,
    CHALLENGE_S,
    EVERYWHERE,
    LEAST_S,
    Address,
    Door,
    given_up,
    has_ended,
    is_silent,
    take_leave,
)
from ringside._group.failure import RankFailure, named
from ringside._group.first_call import call_first, where_to_listen
from ringside._group.notice import Board, Notice, new_key
from ringside._group.place import Place

REASON_S = 1.0  # how long who finds a process gone waits to hear why
Guests = dict[tuple[int, ...], tuple[socket.socket, Address]]  # by their ranks; where they listen


@dataclass
class Connections:
    """What a process holds when all have met."""

    processes: list[tuple[int, ...]]  # the ranks of each, by their first
    mine: int  # which of them this is
    controls: dict[int, socket.socket] = field(default_factory=dict)  # by process
    links: list[tuple[int, int, socket.socket]] = field(default_factory=list)  # (rank, peer, .)


class Meeting:
    """One attempt to meet, until a deadline."""

    def __init__(self, place: Place) -> None:
        if place.board is not None:
            place.board.open()
        self.place, self.door = place, Door(place.key, place.timeout_s)
        self.controls: dict[int, socket.socket] = {}  # once all have come; see Connections
        self.addresses: dict[int, Address] = {}  # where the other processes listen until all met

    def connect(self) -> Connections:
        """All connections of this process; raises RankFailure where some rank does not come."""
        if self.place.is_alone:
            return Connections([self.place.ranks], 0)
        try:
            return self._as_host() if 0 in self.place.ranks else self._as_guest()
        except RankFailure as failure:
            self._tell_all(failure)
            self.door.close_all()
            raise
        except BaseException:
            self.door.close_all()
            raise

    def _tell_all(self, failure: RankFailure) -> None:
        """As ringside._group.control does, which may run in others already."""
        for control in self.controls.values():
            with contextlib.suppress(OSError):
                wire.send(control, {"t": "abort", "why": failure.why, "ranks": failure.ranks})
        take_leave(self.controls.values())

    # --- the process of rank 0

    def _as_host(self) -> Connections:
        guests: Guests = {}
        with self._announced() as listener:
            try:
                while len(self._here(guests)) < self.place.size:
                    self._admit(listener, guests)
            except RankFailure as failure:
                for ranks in guests:
                    self._send(guests, ranks, {"missing": failure.ranks, "why": failure.why})
                raise
            processes = sorted([self.place.ranks, *guests])
            if len(processes) < self.place.processes:
                self._refuse(guests, self._some_of_a_job(processes))
            listening = [None, *(guests[ranks][1] for ranks in processes[1:])]
            met = Connections(processes, 0, self.controls)
            for process, ranks in enumerate(processes[1:], 1):
                where, port = guests[ranks][1]
                self.addresses[process] = where or guests[ranks][0].getpeername()[0], port
            for process, ranks in enumerate(processes[1:], 1):
                met.controls[process] = guests[ranks][0]
                table = {"processes": processes, "listening": listening, "mine": process}
                self._send(guests, ranks, table)
            self._accept_links(listener, met)
        return met

    @contextlib.contextmanager
    def _announced(self) -> Iterator[socket.socket]:
        """A listener where the others look for one."""
        board = self.place.board
        if self.place.address is not None:
            where, port = self.place.address
            with self.door.listener((EVERYWHERE if self.place.also else where, port)) as listener:
                yield listener
            return
        assert board is not None
        where = "127.0.0.1" if board.is_of_one_host else EVERYWHERE
        with self.door.listener((where, 0)) as listener:
            self.door.key = self.place.key or new_key()
            try:
                self._post(board, listener.getsockname()[1])
                yield listener
            finally:
                board.take_down()

    def _post(self, board: Board, port: int) -> None:
        """Where the others look, as soon as that can be reached."""
        key = None if self.place.key else self.door.key
        while True:
            try:
                return board.post(Notice(tuple(board.ways()), port, key), self.door.left())
            except OSError as error:
                if self.door.left() <= 0:
                    raise InvalidArgument(
                        f"{error}, tried for {self.place.timeout_s:g} s; expected to be let in "
                        "there, to tell the others where rank 0 is. Set RINGSIDE_RENDEZVOUS=host:"
                        "port (a free port of this host) and RINGSIDE_KEY in all processes"
                    ) from None
                time.sleep(AGAIN_AFTER_S)

    def _admit(self, listener: socket.socket, guests: Guests) -> None:
        missing = set(range(self.place.size)) - set(self._here(guests))
        come = self.door.admit(listener, missing)
        if come is None:
            return
        connection, hello = come
        if "ranks" not in hello:  # of a group that met here before, and has failed
            connection.close()
            return
        if hello["version"] == __version__ and hello["name"] != self.place.name:
            wire.send(connection, {"again": True})  # the group of that name is not here yet
            connection.close()
            return
        ranks = tuple(hello["ranks"])
        wrong = self._misfit(hello, ranks, self._here(guests))
        if wrong:
            guests[(-1,)] = connection, ("", 0)
            self._refuse(guests, wrong)
        guests[ranks] = connection, (hello["host"], hello["port"])

    def _refuse(self, guests: Guests, why: str) -> NoReturn:
        for ranks in guests:
            self._send(guests, ranks, {"refused": why})
        raise InvalidArgument(why)

    def _some_of_a_job(self, processes: list[tuple[int, ...]]) -> str:
        return (
            f"a group of {len(processes)} processes of a job of {self.place.processes}; expected "
            "a name, as others of the job may make a group like this one at the same place. Pass "
            'name="..." to ringside.init, alike in the processes of each group'
        )

    def _here(self, guests: Guests) -> list[int]:
        """The ranks that have come; guests that have ended may come again."""
        for ranks in [ranks for ranks, (guest, _) in guests.items() if has_ended(guest)]:
            del guests[ranks]
        return [*self.place.ranks, *(rank for ranks in guests for rank in ranks)]

    def _send(self, guests: Guests, ranks: tuple[int, ...], message: wire.Message) -> None:
        try:
            wire.send(guests[ranks][0], message)
        except OSError:
            pass  # that it has ended is seen when its links are waited for

    def _misfit(self, hello: wire.Message, ranks: tuple[int, ...], here: list[int]) -> str:
        me = named(self.place.ranks)
        if hello["version"] != __version__:
            return (
                f"ringside {hello['version']} of {named(ranks)} and {__version__} of {me}; "
                "expected one version. Install the same everywhere"
            )
        if hello["size"] != self.place.size:
            return (
                f"size={hello['size']} of {named(ranks)} and size={self.place.size} of {me}; "
                "expected one size. Pass the same to ringside.init"
            )
        if twice := sorted(set(ranks) & set(here)):
            return (
                f"two processes host {named(twice)}; expected each rank in one. Give every "
                "process ranks of its own"
            )
        return ""

    # --- the others

    def _as_guest(self) -> Connections:
        while True:
            first = call_first(self.place, self.door)
            first.settimeout(self.door.left() + CHALLENGE_S)
            bound, announced = where_to_listen(first, self.place)
            with self.door.listener((bound, 0)) as listener:
                table = self._join(first, (announced, listener.getsockname()[1]))
                if "again" not in table:
                    return self._connected(first, listener, table)
            first.close()
            if self.door.left() <= 0:
                why = (
                    f"rank 0 was not there within {self.place.timeout_s:g} s; another group of "
                    "the same key met at its place"
                )
                raise RankFailure(why, [0])
            time.sleep(AGAIN_AFTER_S)

    def _join(self, first: socket.socket, listening: Address) -> wire.Message:
        """What the process of rank 0 answers once all have come."""
        hello = {"ranks": self.place.ranks, "size": self.place.size, "version": __version__}
        hello["name"] = self.place.name
        try:
            wire.send(first, {**hello, "host": listening[0], "port": listening[1]})
            if not self._hears_or_may_yet(first):
                raise TimeoutError
            table = wire.receive(first)
        except TimeoutError:
            why = f"rank 0 said nothing within {self.place.timeout_s:g} s while the group met"
            raise RankFailure(why, [0]) from None
        except (OSError, EOFError) as error:
            raise RankFailure(f"rank 0 ended while the group met ({error})", [0]) from None
        if "refused" in table:
            raise InvalidArgument(table["refused"])
        if "missing" in table:
            raise RankFailure(table["why"], table["missing"])
        return table

    def _hears_or_may_yet(self, first: socket.socket) -> bool:
        """Whether rank 0 has answered in time, or at least runs: it may have begun later."""
        heard, _, _ = select.select([first], [], [], max(self.door.left(), LEAST_S))
        return bool(heard) or not is_silent(first.getpeername()[:2])

    def _connected(
        self, first: socket.socket, listener: socket.socket, table: wire.Message
    ) -> Connections:
        processes = [tuple(ranks) for ranks in table["processes"]]
        met = Connections(processes, table["mine"], self.controls)
        met.controls[0] = first
        of_first = first.getpeername()[:2]
        for process, listening in enumerate(table["listening"]):
            where, port = of_first if process == 0 else listening
            self.addresses[process] = where or of_first[0], port
        for other in range(met.mine):
            self._make_links(self.addresses[other], other, met)
        self._accept_links(listener, met)
        return met

    # --- both

    def _make_links(self, address: Address, other: int, met: Connections) -> None:
        """To a process that is before this one in the list."""
        ranks = met.processes[other]
        pairs: list[tuple[int | None, int | None]] = [
            (rank, peer) for rank in self.place.ranks for peer in ranks
        ]
        if other != 0:
            pairs.insert(0, (None, None))
        for rank, peer in pairs:
            try:
                connection = self.door.call(address)
                wire.send(connection, {"process": met.mine, "rank": rank, "peer": peer})
            except (OSError, EOFError, wire.WrongKey) as error:
                if failure := self._heard():
                    raise failure from None
                silent = (
                    self._first_silent(range(other)) if isinstance(error, TimeoutError) else None
                )
                if silent is not None:
                    ranks, address = met.processes[silent], self.addresses[silent]
                raise RankFailure(
                    f"{named(ranks)} did not answer {named(self.place.ranks)} at "
                    f"{host.with_port(*address)} while the group met ({error}); expected that "
                    "every host reaches every other, at any port. See whether they ended, and "
                    "what lies between the hosts",
                    ranks,
                ) from None
            self._keep(connection, other, rank, peer, met)

    def _first_silent(self, processes: Iterable[int]) -> int | None:
        """Who does not run, or is cut off: others wait for one before them, and are silent, too."""
        return next((p for p in processes if is_silent(self.addresses[p])), None)

    def _heard(self, seconds: float = REASON_S) -> RankFailure | None:
        """The failure that another process tells of, if it does so soon."""
        until = time.monotonic() + seconds
        while True:
            failure = next(filter(None, map(given_up, self.controls.values())), None)
            if failure is not None or time.monotonic() >= until:
                return failure
            time.sleep(AGAIN_AFTER_S)

    def _accept_links(self, listener: socket.socket, met: Connections) -> None:
        """From the processes that are after this one in the list."""
        later = {p: len(ranks) for p, ranks in enumerate(met.processes) if p > met.mine}
        wanted = {p: count * len(self.place.ranks) for p, count in later.items()}
        if met.mine != 0:
            wanted = {p: count + 1 for p, count in wanted.items()}  # control
        while any(wanted.values()):
            missing = {r for p, count in wanted.items() if count for r in met.processes[p]}
            try:
                come = self.door.admit(listener, missing, met.controls.values())
            except RankFailure:
                others = [p for p in range(len(met.processes)) if p != met.mine]
                silent = self._first_silent(others)
                if silent is None:
                    raise
                ranks = met.processes[silent]
                why = f"{named(ranks)} said nothing within {self.place.timeout_s:g} s while all met"
                raise RankFailure(why, ranks) from None
            if failure := self._heard(0.0):
                raise failure
            for p in [p for p, control in met.controls.items() if has_ended(control)]:
                ranks = met.processes[p]
                raise RankFailure(f"{named(ranks)} ended while the group met", ranks)
            if come is not None and "ranks" in come[1]:  # for the next group, too early
                wire.send(come[0], {"again": True})
                come[0].close()
            elif come is not None:
                connection, hello = come
                self._keep(connection, hello["process"], hello["peer"], hello["rank"], met)
                wanted[hello["process"]] -= 1

    def _keep(
        self,
        connection: socket.socket,
        process: int,
        rank: int | None,
        peer: int | None,
        met: Connections,
    ) -> None:
        connection.settimeout(None)
        if rank is None or peer is None:
            met.controls[process] = connection
        else:
            met.links.append((rank, peer, connection))
