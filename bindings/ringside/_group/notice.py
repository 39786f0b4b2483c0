"""What the process of rank 0 posts where the others of its job look, and where that may be."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Notice:
    """Where the process of rank 0 listens; the key, unless all were told one, which then stays."""

    ways: tuple[str, ...]
    port: int
    key: bytes | None

    def encoded(self) -> str:
        """As text; see decoded.

        >>> decoded(Notice(("node0",), 80, None).encoded())
        Notice(ways=('node0',), port=80, key=None)
        """
        key = None if self.key is None else self.key.decode()
        return json.dumps({"ways": self.ways, "port": self.port, "key": key})


def decoded(text: str | bytes) -> Notice | None:
    """A notice, None where that is none.

    >>> decoded("")
    """
    try:
        data = json.loads(text)
        key = None if data["key"] is None else str(data["key"]).encode()
        return Notice(tuple(map(str, data["ways"])), int(data["port"]), key)
    except (ValueError, KeyError, TypeError):
        return None


class Board(Protocol):
    """Where notices of a job are posted; OSError where it cannot be reached."""

    words: str  # where it is, as told in errors
    hint: str  # where nothing is posted, why that may be, and what to do
    is_of_one_host: bool
    outlives_jobs: bool  # what is read may be of a job that has ended

    def ways(self) -> list[str]:
        """By which those that read it may reach this host."""

    def open(self) -> None:
        """Whatever takes long, ahead of the timeout."""

    def post(self, said: Notice, seconds: float) -> None:
        """In place of what is there, within about so many seconds."""

    def read(self, seconds: float) -> Notice | None:
        """What is posted, likewise."""

    def take_down(self) -> None:
        """What was posted."""


def new_key() -> bytes:
    """A random key, as text that travels well."""
    return secrets.token_hex(32).encode()
