"""`ringside run`: so many processes of a script on this host, which find each other.

It makes the address and the key, starts the processes, and ends the others when one fails. Signals
go to all of them.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from ringside._core import InvalidArgument
from ringside._group import launched

GRACE_S = 5.0  # between asking a process to end and ending it
BEGAN_S = 2.0  # for the process that others fail because of: it may take longer to end than they
LOOK_EVERY_S = 0.02
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(command: Sequence[str], processes: int) -> int:
    """Starts the command so many times and waits; the exit code of the first that failed, else 0.

    Args:
        command: program and arguments.
        processes: how many, at least 1.
    """
    if processes < 1:
        raise InvalidArgument(f"--nproc {processes}; expected at least 1. Say how many")
    common = {
        "RINGSIDE_SIZE": str(processes),
        "RINGSIDE_RENDEZVOUS": f"127.0.0.1:{_free_port()}",
        "RINGSIDE_KEY": secrets.token_hex(32),
    }
    started: list[subprocess.Popen[bytes]] = []
    heard: list[int] = []
    notes = tempfile.TemporaryDirectory()
    common[launched.NOTES] = notes.name
    before = {number: signal.signal(number, lambda n, _: heard.append(n)) for number in FORWARDED}
    try:
        for rank in range(processes):
            own = {"RINGSIDE_RANK": str(rank), "RINGSIDE_LOCAL_RANK": str(rank)}
            started.append(_start(command, {**os.environ, **common, **own}))
        return _wait(started, heard, notes.name)
    finally:
        _end(started)
        notes.cleanup()
        for number, handler in before.items():
            signal.signal(number, handler)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """In a session of its own: it hears signals from here, once."""
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )


def _wait(started: list[subprocess.Popen[bytes]], heard: list[int], notes: str) -> int:
    forwarded, failed_at = 0, 0.0
    while any(process.poll() is None for process in started):
        for number in heard[forwarded:]:
            forwarded += 1
            for process in started:
                if process.poll() is None:
                    process.send_signal(number)
        failed = [i for i, process in enumerate(started) if process.poll()]
        if failed and not heard:
            failed_at = failed_at or time.monotonic()
            began = _that_began(failed, notes)
            if began is not None or time.monotonic() - failed_at > BEGAN_S:
                return _report(failed[0] if began is None else began, started)
        time.sleep(LOOK_EVERY_S)
    if heard:
        return 128 + heard[0]
    failed = [i for i, process in enumerate(started) if process.returncode]
    began = _that_began(failed, notes)
    return _report(failed[0] if began is None else began, started) if failed else 0


def _that_began(failed: list[int], notes: str) -> int | None:
    """The first of them that did not fail because of another one."""
    return next((i for i in failed if not launched.failed_by_others(i, notes)), None)


def _report(rank: int, started: list[subprocess.Popen[bytes]]) -> int:
    """Says which process failed; its exit code as a shell gives it."""
    code = started[rank].returncode
    how = f"exited with code {code}" if code > 0 else f"was ended by {_signal(-code)}"
    others = sum(process.poll() is None for process in started)
    rest = f"; ending the other {others}" if others else ""
    print(f"ringside run: process {rank} of {len(started)} {how}{rest}", file=sys.stderr)
    return code if code > 0 else 128 - code


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    """Asks those that still run to end, then ends them."""
    deadline = time.monotonic() + GRACE_S
    for process in started:
        if process.poll() is None:
            process.terminate()
    for process in started:
        try:
            process.wait(max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
