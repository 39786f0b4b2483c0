"""The sockets of control: one for each other process of a group, one thread that listens."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from ringside._group import wire
from ringside._group.peer import Peer, Where

BEAT_S = 0.25
FAREWELL_S = 0.5  # for what was said last to be gone


class ControlSockets(ABC):
    """Sends what the others are told and hears what they say; what that means, Control knows."""

    def __init__(self, peers: dict[int, Peer], where: Callable[[], Where]) -> None:
        self.peers, self._where = peers, where
        self.changed = threading.Condition()
        self._closing: float | None = None
        self._thread: threading.Thread | None = None

    def _start(self) -> None:
        self._awake, self._alarm = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._awake, selectors.EVENT_READ, None)
        for peer in self.peers.values():
            peer.connection.setblocking(False)
            self._selector.register(peer.connection, selectors.EVENT_READ, peer)
        self._thread = threading.Thread(target=self._run, name="ringside-control", daemon=True)
        self._thread.start()

    # --- for the thread that calls

    def tell(self, message: wire.Message, peers: Iterable[Peer] | None = None) -> None:
        """Every process that is there, or some.

        What sockets take is on its way at once: this thread may go on with what holds the
        interpreter, as torch does while it ends a graph, and nobody else could send it then.
        """
        encoded = wire.encoded(message)
        with self.changed:
            for peer in self.peers.values() if peers is None else peers:
                peer.unsent += encoded
        self._push()
        if self._unsent():
            self._wake()

    def _leave(self) -> None:
        """Waits a while for what was said to be gone."""
        self._closing = time.monotonic() + FAREWELL_S
        self._wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2 * FAREWELL_S)

    def let_go(self) -> None:
        """In a process that was just forked: what is open is the other one's."""
        self.changed, self._thread = threading.Condition(), None
        if self.peers:
            for connection in (*(p.connection for p in self.peers.values()), self._awake):
                connection.close()
            self._alarm.close()
            self._selector.close()

    def _wake(self) -> None:
        if self._thread is None:
            return
        try:
            self._alarm.send(b"!")
        except OSError:
            pass  # it has left

    # --- for either

    def _push(self) -> None:
        for peer in self.peers.values():
            with self.changed:
                if peer.ended or not peer.unsent:
                    continue
                try:
                    count = peer.connection.send(peer.unsent)
                    del peer.unsent[:count]
                except BlockingIOError:
                    pass
                except OSError:
                    peer.unsent.clear()  # that it has ended is heard by who reads

    # --- for the thread that listens

    def _run(self) -> None:
        try:
            self._listen()
        except Exception as error:
            self._break(error)
            raise

    def _listen(self) -> None:
        next_beat = 0.0
        while not self._has_left():
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + BEAT_S
                self._beat()
            for key, _ in self._selector.select(0.02 if self._unsent() else BEAT_S / 2):
                if key.data is None:
                    self._awake.recv(4096)
                else:
                    self._hear(key.data)
            self._push()
        with self.changed:  # another thread may be about to send
            for peer in self.peers.values():
                peer.connection.close()
        self._selector.close()
        self._awake.close()
        self._alarm.close()

    def _unsent(self) -> bool:
        return any(p.unsent and not p.ended for p in self.peers.values())

    def _has_left(self) -> bool:
        if self._closing is None:
            return False
        return not self._unsent() or time.monotonic() > self._closing

    def _beat(self) -> None:
        message = wire.encoded({"t": "beat", **self._where()})
        with self.changed:
            for peer in self.peers.values():
                if not peer.unsent:  # else it does not listen, and would be told of the past
                    peer.unsent += message

    def _hear(self, peer: Peer) -> None:
        try:
            data = peer.connection.recv(1 << 16)
            if not data:
                raise EOFError("end of stream")
            for message in peer.reader.messages(data):
                self._take(peer, message)
        except BlockingIOError:
            pass
        except (OSError, EOFError, ValueError, KeyError, TypeError, RecursionError) as error:
            self._end(peer, error)

    def _end(self, peer: Peer, error: Exception) -> None:
        self._selector.unregister(peer.connection)
        with self.changed:
            peer.ended = True
            peer.unsent.clear()
            self.changed.notify_all()
        self._miss(peer, error)

    # --- what Control makes of it

    @abstractmethod
    def _take(self, peer: Peer, message: wire.Message) -> None:
        """What a process said."""

    @abstractmethod
    def _miss(self, peer: Peer, error: Exception) -> None:
        """A process whose socket has closed, or that said what cannot be."""

    @abstractmethod
    def _break(self, error: Exception) -> None:
        """What ends the thread that listens."""
