"""Where the processes of a torchrun over several hosts meet: in the store that its agent serves.

It is at MASTER_ADDR and MASTER_PORT before they start, and torch's own groups meet there, too. It
asks nobody who he is: whoever reaches it reads the key, unless all were given one by RINGSIDE_KEY.
"""

from __future__ import annotations

import contextlib
import importlib
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from ringside._core import InvalidArgument
from ringside._group import host, notice
from ringside._group.notice import Notice

Result = TypeVar("Result")
ANSWER_S = 30.0  # for the store to do one thing: torch asks for the name of who connects, each time
LEAST_S = 0.5  # of that, at the deadline
INSTEAD = "set RINGSIDE_RENDEZVOUS and RINGSIDE_KEY for each torchrun"


class TorchStore:
    """A name in the store of a torchrun; a ringside._group.notice.Board."""

    is_of_one_host = outlives_jobs = False

    def __init__(self, address: tuple[str, int], run: str, group: str = "") -> None:
        self.address, self.name, self._store = address, f"ringside/{run}/{group}", None
        self.words = f"torchrun's store at {host.with_port(*address)}{host.meaning(address[0])}"
        self.hint = f"{self.words} does not say where: the process of rank 0 made no such group"

    def ways(self) -> list[str]:
        """Which need not be that of the store: rank 0 may be on another host."""
        return host.ways(self.address[0])

    def open(self) -> None:
        """Imports torch."""
        try:
            self._torch = importlib.import_module("torch.distributed")
            self._torch.TCPStore  # noqa: B018  # which torch may have been built without
        except (ImportError, AttributeError) as error:
            raise InvalidArgument(
                f"ranks on several hosts of a torchrun, and no torch.distributed here ({error}); "
                f"expected it, to meet at torchrun's store. Install torch, or {INSTEAD}"
            ) from None

    def post(self, said: Notice, seconds: float) -> None:
        """Under the name of the job."""
        self._do(lambda store: store.set(self.name, said.encoded()), seconds)

    def read(self, seconds: float) -> Notice | None:
        """What stands there."""

        def read(store: Any) -> Notice | None:
            return notice.decoded(store.get(self.name)) if store.check([self.name]) else None

        return self._do(read, seconds)

    def take_down(self) -> None:
        """Leaves the name, with nothing in it: who reads it never waits."""
        with contextlib.suppress(OSError):
            self._do(lambda store: store.set(self.name, "none"), LEAST_S)

    def _do(self, what: Callable[[Any], Result], seconds: float) -> Result:
        """With the store, which has no timeout of its own where somebody else listens there."""
        results: list[Result] = []
        errors: list[Exception] = []

        def do() -> None:
            try:
                store, self._store = self._store or self._connected(), None
                results.append(what(store))
                self._store = store  # else it may be in the middle of an answer
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=do, name="ringside-torch-store", daemon=True)
        thread.start()
        thread.join(min(ANSWER_S, max(seconds, LEAST_S)))
        if not results:
            said = str(errors[0]).split("\n")[0] if errors else "timed out"
            raise OSError(f"{self.words}: {said}")
        return results[0]

    def _connected(self) -> Any:
        socket.create_connection(self.address, timeout=ANSWER_S).close()  # torch would be loud
        return self._torch.TCPStore(
            *self.address,
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(seconds=ANSWER_S),
        )
