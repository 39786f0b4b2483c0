"""A group's part on the device of this process: links to the others, and the programs of plans."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ringside._arrays import cuda as _cuda
from ringside._core import InvalidArgument
from ringside._group import host
from ringside._group.control import LATE_S
from ringside._group.control_sockets import BEAT_S
from ringside._group.failure import named
from ringside._ranks import nccl
from ringside._ranks.choice import choose, require_shared
from ringside._ranks.together import together

if TYPE_CHECKING:
    from ringside._group.group import Group

KEPT_PROGRAMS = 64  # the oldest are made again
REHEARSALS = 5  # of the messages of a program
WATCH_S = 0.1
GUARD_S = 2.0  # behind the watch, which fails the group first wherever threads of Python run
EXPLAINED = {
    "none": "one process hosts all ranks, and messages are copies on its GPU",
    "peer": "copy engines write into memory of the other processes, which are on this host",
    "nccl": "NCCL, between processes with a GPU each",
}
DRAIN_S = 5.0  # for streams to end after an abort

_stuck: list[Any] = []  # links whose streams never ended: to free them would wait for ever


class DeviceGroup:
    """What the processes of a group have made together for one kind of exchange.

    Attributes:
        exchange: "peer", "nccl" or "none", once it is chosen.
    """

    def __init__(self, group: Group, device: int) -> None:
        self.group, self.device, self.exchange = group, device, ""
        self._programs: dict[str, Any] = {}
        self._links: Any = None
        self._made_last: Any = None  # program
        self._words = host.SHARED
        self._asleep = threading.Event()
        self._seen: tuple[Any, float] = (None, 0.0)  # progress, and since when
        self._looked_at = 0.0

    # --- set up, by all processes together

    def program(self, key: str, make: Callable[[], Any], asked: str) -> Any:
        """The program of a key, made and attached where it is new."""
        if self._links is not None:
            self._refuse_other_calls()
        if key not in self._programs:
            self._set_up(key, make, asked)
            if len(self._programs) > KEPT_PROGRAMS:
                del self._programs[next(iter(self._programs))]
        return self._programs[key]

    def _set_up(self, key: str, make: Callable[[], Any], asked: str) -> None:
        made = self._together(lambda: self._made(make))
        program, self._made_last = self._made_last, None
        if not self.exchange:
            self._connect(asked, made)
        self._make_room(program.workspace_bytes)
        self._attach(key, program)
        self._programs[key] = program
        self._watch()

    def _attach(self, key: str, program: Any) -> None:
        self._together(lambda: program.attach(self._links, int(key[:8], 16) >> 1))

    def attach(self, key: str) -> None:
        """The program of a key to these links, after it was attached to others."""
        self._attach(key, self._programs[key])

    def has(self, key: str) -> bool:
        """Whether there is a program of a key."""
        return key in self._programs

    def rehearsed(self, key: str) -> float:
        """Microseconds that the messages of a program take by themselves, both passes.

        Of the process where they take longest, so that all come to the same.
        """
        program = self._programs[key]
        self._together(lambda: program.make_room_to_rehearse())  # before any waits for another
        told = self._together(lambda: float(program.rehearse(self._links, REHEARSALS)))
        return max(took for _, took in told)

    def drop(self, key: str) -> None:
        """Forgets the program of a key, and after the last one gives the workspace back."""
        self._programs.pop(key, None)
        links = self._links
        if self._programs or links is None:
            return
        self._wait_until_idle()
        self._together(lambda: links.unmap_workspaces())
        self._together(lambda: links.free_workspace())

    def _made(self, make: Callable[[], Any]) -> dict[str, Any]:
        """Makes a program, and what it needs once; tells of both."""
        self._made_last = make()
        if self._links is None:
            self._words = host.SHARED / f"ringside-{secrets.token_hex(8)}"
            self._links = _cuda.cuda_core().DeviceLinks(
                self.device, self._mine, len(self.group._processes), str(self._words)
            )
        return {**about(self.device, self._made_last.family), "words": str(self._words)}

    def _connect(self, asked: str, told: list[tuple[tuple[int, ...], Any]]) -> None:
        try:
            self.exchange = self._meet(asked, told)
        except BaseException:
            self._links = None  # anew at the next attempt
            raise
        finally:
            self._words.unlink(missing_ok=True)  # whoever shares it has opened it

    def _meet(self, asked: str, told: list[tuple[tuple[int, ...], Any]]) -> str:
        chosen = choose(asked, told)
        if chosen == "peer":
            self._together(lambda: require_shared(told))
            paths = [x["words"] for _, x in told]
            self._together(lambda: self._links.meet_peers(paths))
        elif chosen == "nccl":
            library, first = nccl.find().path, self._mine == 0
            made = self._together(lambda: _cuda.cuda_core().nccl_id(library).hex() if first else "")
            unique = bytes.fromhex(made[0][1])
            self._together(lambda: self._links.meet_nccl(library, unique))
        return chosen

    def _make_room(self, count: int) -> None:
        def reserve() -> str:
            grown = self._links.reserve(count)
            shared = grown and self.exchange == "peer"
            return self._links.workspace_handle().hex() if shared else ""

        self._wait_until_idle()
        handles = self._together(reserve)

        def map_all() -> None:
            for process, (_, handle) in enumerate(handles):
                if handle and process != self._mine:
                    self._links.map_workspace(process, bytes.fromhex(handle))

        self._together(map_all)
        self._links.forget_workspace()

    @property
    def _mine(self) -> int:
        return self.group._processes.index(self.group.ranks)

    def _together(self, part: Callable[[], Any]) -> list[tuple[tuple[int, ...], Any]]:
        return together(self.group, part)

    def explain(self) -> str:
        """How it exchanges, and why, in a sentence."""
        if not self.exchange:
            return "not set up yet."
        return f"{EXPLAINED[self.exchange]} (device {self.device} here)."

    # --- calls

    @property
    def links(self) -> Any:
        """Of the C++ half."""
        return self._links

    def step(self) -> int | None:
        """Of the plan, at which messages are on their way; None where no call runs."""
        if self._links is None:
            return None
        started, completed, step, *_ = self._links.progress()
        return step if started != completed and step >= 0 else None

    def wait(self) -> None:
        """Until its calls have ended or the group has failed and they have been given up."""
        if self._links is not None:
            self._wait_until_idle()
            self._refuse_other_calls()

    def _wait_until_idle(self) -> None:
        pause, failed_at = 2e-5, 0.0
        while not self._links.is_idle():
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)
            if self.group._control.failure is not None:
                failed_at = failed_at or time.monotonic()
                if time.monotonic() - failed_at > DRAIN_S:
                    return

    # --- failure

    def abort(self) -> None:
        """Frees the streams that wait for others; from any thread."""
        if self._links is not None:
            self._links.abort()

    def _watch(self) -> None:
        if len(self.group._processes) == 1 or self._asleep.is_set():
            return
        self._links.guard(self.group.timeout_s + GUARD_S)
        if not any(t.name == self._watch_name for t in threading.enumerate()):
            self._looked_at = time.monotonic()
            threading.Thread(target=self._look, name=self._watch_name, daemon=True).start()

    @property
    def _watch_name(self) -> str:
        return f"ringside-watch-{id(self)}"

    def _look(self) -> None:
        """Fails the group where a call stands still for too long, or is another than theirs."""
        control = self.group._control
        while not self._asleep.wait(WATCH_S) and control.failure is None:
            self._refuse_other_calls()
            started, completed, step, *_ = self._links.progress()
            now, progress = time.monotonic(), (started, completed, step)
            was_held, self._looked_at = self._was_held(), now
            if progress != self._seen[0] or started == completed or was_held:
                self._seen = (progress, now)
            elif now - self._seen[1] > self.group.timeout_s:
                self._fail_by_silence()

    def _was_held(self) -> bool:
        """Whether the watch could not look, and no thread hear what others said."""
        return time.monotonic() - self._looked_at > LATE_S

    def _fail_by_silence(self) -> None:
        others = [r for p in self.group._processes for r in p if r not in self.group.ranks]
        control = self.group._control
        control.fail(control.silence(others, self.group.timeout_s, True))

    def _refuse_other_calls(self) -> None:
        """Fails the group where messages came that were none of this process's calls.

        And where the guard has given up a call that stood still: it comes first where the watch was
        kept from looking.
        """
        control = self.group._control
        *_, is_of_another, was_aborted = self._links.progress()
        if control.failure is not None:
            return
        if is_of_another:
            ranks = [r for other in self.group._processes for r in other]
            why = "messages of another call came, as ranks make different calls"
            control.fail(control.here(why, ranks))
        elif was_aborted:
            was_held = self._was_held()
            if control.wait_for_failure(BEAT_S) is not None:
                return  # it lay unread
            if not was_held:
                self._fail_by_silence()
                return
            why = (
                f"{named(self.group.ranks)} neither heard nor answered for "
                f"{self.group.timeout_s:g} s, as something held its Python interpreter while calls "
                "were under way. Drop graphs of torch's behind group.synchronize()"
            )
            control.fail(control.here(why, self.group.ranks))

    def close(self) -> None:
        """Frees what it has."""
        self._asleep.set()
        self._programs.clear()
        if self._words != host.SHARED:
            self._words.unlink(missing_ok=True)  # where it was never shared
        links, self._links = self._links, None
        if links is not None and not links.is_idle():
            _stuck.append(links)


def device_of(group: Group, exchange: str, device: int) -> DeviceGroup:
    """The group's part on a device, for an exchange; a process has one device."""
    found: DeviceGroup = group._devices.setdefault(exchange, DeviceGroup(group, device))
    require_device(found.device, device)
    return found


def require_device(known: int, device: int) -> None:
    """That a process goes on with the device it began with."""
    if known != device:
        raise InvalidArgument(
            f"arrays on device {device}; expected device {known}, as in the calls before. Make "
            "another group for another device"
        )


def about(device: int, family: str) -> dict[str, str]:
    """See choice.Told."""
    found = nccl.find()
    return {
        "host": host.memory(),
        "device": _cuda.cuda_core().device_identity(device),
        "family": family,
        "nccl": found.version,
        "nccl_problem": found.problem,
    }
