"""A process of a group as another one sees it, and where it says that it is."""

from __future__ import annotations

import socket
import time
from typing import Any

from ringside._group import wire

Where = dict[str, Any]  # call, kind, in_call, step, enqueues


class Peer:
    """Another process: what it said, what it has not been told yet."""

    def __init__(self, ranks: tuple[int, ...], connection: socket.socket) -> None:
        self.ranks, self.connection = ranks, connection
        self.reader, self.unsent = wire.Reader(), bytearray()
        self.beat: Where = {}
        self.beat_at = time.monotonic()
        self.values: dict[tuple[str, int], Any] = {}
        self.refused: dict[int, str] = {}  # calls, and what it raised in place of them
        self.ahead: dict[int, str] = {}  # kinds of calls that this process has yet to begin
        self.told_of = 0  # the last call that it told of: of those before, too
        self.answered = 0  # the last question
        self.left_after: int | None = None  # calls, where it said that it leaves
        self.gave_up = False  # as another one left; it had made the calls of that one, too
        self.ended = False
