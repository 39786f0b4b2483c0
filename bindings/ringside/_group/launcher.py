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
import time
from collections.abc import Sequence

from ringside._core import InvalidArgument

GRACE_S = 5.0  # between asking a process to end and ending it
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
    before = {number: signal.signal(number, lambda n, _: heard.append(n)) for number in FORWARDED}
    try:
        for rank in range(processes):
            own = {"RINGSIDE_RANK": str(rank), "RINGSIDE_LOCAL_RANK": str(rank)}
            started.append(_start(command, {**os.environ, **common, **own}))
        return _wait(started, heard)
    finally:
        _end(started)
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


def _wait(started: list[subprocess.Popen[bytes]], heard: list[int]) -> int:
    forwarded = 0
    while any(process.poll() is None for process in started):
        for number in heard[forwarded:]:
            forwarded += 1
            for process in started:
                if process.poll() is None:
                    process.send_signal(number)
        failed = [i for i, process in enumerate(started) if process.poll()]
        if failed and not heard:
            return _report(failed[0], started)
        time.sleep(LOOK_EVERY_S)
    codes = [process.returncode for process in started]
    if heard:
        return 128 + heard[0]
    failed = [i for i, code in enumerate(codes) if code]
    return _report(failed[0], started) if failed else 0


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
