"""Sockets of a process while a group meets: it listens, calls, and lets in who holds the key."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import time
from collections.abc import Iterable
from typing import Any

from ringside._core import InvalidArgument
from ringside._group import host, wire
from ringside._group.failure import RankFailure, named

Address = tuple[str, int]
EVERYWHERE = ""  # as an address to listen at: all of this host
BACKLOG = 128
PEEK = 1 << 18
FAREWELL_S = 0.5  # for the others to hear why
AGAIN_AFTER_S = 0.05
CHALLENGE_S = 10.0  # for the other end to answer
LEAST_S = 0.2  # of that, at the deadline
LOOK_EVERY_S = 0.2  # whether those that have come are still there
STRANGER_S = 2.0  # for who comes to prove that it belongs here
GREETING_S = 2.5  # for the first word of who listens, who may have a stranger there


class Door:
    """All that is opened until a deadline, behind one key."""

    def __init__(self, key: bytes, timeout_s: float) -> None:
        self.key, self.timeout_s = key, timeout_s
        self.deadline = time.monotonic() + timeout_s
        self.wrong_keys = 0  # of those that came
        self.opened: list[socket.socket] = []

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def close_all(self) -> None:
        """So that the others hear that nothing comes of it."""
        for connection in self.opened:
            connection.close()

    def listener(self, address: Address) -> socket.socket:
        """One at this address, as soon as it is free."""
        while True:
            try:
                return _listening(address)
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    raise InvalidArgument(
                        f"{address[0]} is no address of this host, which hosts rank 0; expected "
                        f"one of {', '.join(host.addresses()) or '127.0.0.1'}. Set it so, or "
                        "start rank 0 on the host that has it"
                    ) from None
                if self.left() <= 0:
                    raise InvalidArgument(
                        f"{host.with_port(*address)} cannot be listened at ({error}); expected "
                        "a free port of this host, which hosts rank 0. Choose another"
                    ) from None
                time.sleep(AGAIN_AFTER_S)

    def call(self, address: Address, most_s: float = CHALLENGE_S) -> socket.socket:
        """A connection to someone who holds the key; raises WrongKey."""
        seconds = min(most_s, max(self.left(), LEAST_S))
        connection = socket.create_connection(address, timeout=seconds)
        try:
            _send_at_once(connection)
            wire.challenge_as_client(connection, self.key)
        except BaseException:
            connection.close()
            raise
        self.opened.append(connection)
        return connection

    def admit(
        self,
        listener: socket.socket,
        missing: Iterable[int],
        others: Iterable[socket.socket] = (),
    ) -> tuple[socket.socket, dict[str, Any]] | None:
        """Who comes next and what it says.

        None for a stranger, and as soon as one of the others has ended or given up. Raises
        RankFailure naming the missing ranks at the deadline.
        """
        while True:
            listener.settimeout(min(max(self.left(), 0.001), LOOK_EVERY_S))
            try:
                connection, _ = listener.accept()
                break
            except TimeoutError:
                if any(has_ended(other) or given_up(other) for other in others):
                    return None
                self._require_time(missing)
        try:
            _send_at_once(connection)
            connection.settimeout(STRANGER_S)
            wire.challenge_as_server(connection, self.key)
            hello = wire.receive(connection)
        except (OSError, EOFError, ValueError, wire.WrongKey) as error:
            self.wrong_keys += isinstance(error, wire.WrongKey)
            connection.close()
            return None
        self.opened.append(connection)
        return connection, hello

    def _require_time(self, missing: Iterable[int]) -> None:
        if self.left() > 0:
            return
        strangers = f"; {self.wrong_keys} came with another key" if self.wrong_keys else ""
        ranks = sorted(missing)
        raise RankFailure(
            f"{named(ranks)} did not come within {self.timeout_s:g} s{strangers}", ranks
        )


def is_silent(address: Address) -> bool:
    """Whether who listens there does not run, or is cut off; not where nobody listens any more."""
    try:
        with socket.create_connection(address, timeout=GREETING_S) as connection:
            connection.recv(1)
    except TimeoutError:
        return True
    except OSError:
        pass
    return False


def has_ended(connection: socket.socket) -> bool:
    """Whether the other end has closed; what it has said stays to be heard."""
    return _waiting(connection) == b""


def given_up(connection: socket.socket) -> RankFailure | None:
    """The failure that the other end tells of, of what nobody has taken yet; it stays there."""
    try:
        for said in wire.Reader().messages(_waiting(connection) or b""):
            if said["t"] == "abort":
                return RankFailure(str(said["why"]), said["ranks"])
    except (EOFError, ValueError, KeyError):
        pass  # no words of a process that has met all
    return None


def take_leave(connections: Iterable[socket.socket]) -> None:
    """Lets the others hear all that was said: to close what has not been read would undo it."""
    left, until = list(connections), time.monotonic() + FAREWELL_S
    for connection in left:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
    while left and time.monotonic() < until:
        for connection in select.select(left, [], [], AGAIN_AFTER_S)[0]:
            try:
                is_over = not connection.recv(PEEK)
            except OSError:
                is_over = True
            if is_over:
                left.remove(connection)


def _waiting(connection: socket.socket) -> bytes | None:
    """What there is to be heard: nothing at the end, None where that has yet to come."""
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    try:
        return connection.recv(PEEK, socket.MSG_PEEK) if poller.poll(0) else None
    except OSError:
        return b""


def _send_at_once(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _listening(address: Address) -> socket.socket:
    """At an address, or, where that is a name, at all of this host's: it may mean another to it."""
    where, port = address
    if where == "localhost":
        where = "127.0.0.1"
    if host.is_name(where):
        return _listening_everywhere(port)
    family = socket.AF_INET6 if ":" in where else socket.AF_INET
    return socket.create_server((where, port), family=family, backlog=BACKLOG)


def _listening_everywhere(port: int) -> socket.socket:
    """At all addresses of both families, where the system has both."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
        )
    return socket.create_server(("", port), backlog=BACKLOG)
