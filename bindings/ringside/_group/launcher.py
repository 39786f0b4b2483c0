"""`ringside run`: so many processes of a script on this host, which find each other.

It makes the address and the key, starts the processes, and ends the others when one fails. Signals
go to all of them, and end those that do not end by themselves; what several write to stderr comes
by lines, with their numbers. For several hosts it is started on each, and told address and key.
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
from dataclasses import dataclass

from ringside._core import InvalidArgument
from ringside._group import host, launched
from ringside._group.told import Told

GRACE_S = 5.0  # between asking a process to end and ending it
SIGNALLED_S = 30.0  # between a signal and ending what is left: it may save its work
BEGAN_S = 5.0  # for the process that others fail because of: it may take longer to end than they
LOOK_EVERY_S = 0.02
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Nodes:
    """The hosts of a job, each with as many processes."""

    count: int = 1
    rank: int | None = None  # of this one
    address: str | None = None  # of that of rank 0
    port: int = 29411


ONE = Nodes()


def run(command: Sequence[str], processes: int, nodes: Nodes = ONE) -> int:
    """Starts the command so many times and waits; the exit code of the first that failed, else 0.

    Args:
        command: program and arguments.
        processes: how many on this host, at least 1.
        nodes: the hosts, where there are others.
    """
    if processes < 1:
        raise InvalidArgument(f"--nproc {processes}; expected at least 1. Say how many")
    common = {"RINGSIDE_SIZE": str(processes * nodes.count), **_meeting(nodes)}
    first = processes * (nodes.rank or 0)
    started: list[subprocess.Popen[bytes]] = []
    told: list[Told] = []
    heard: list[int] = []
    notes = tempfile.TemporaryDirectory()
    common[launched.NOTES] = notes.name
    before = {number: signal.signal(number, lambda n, _: heard.append(n)) for number in FORWARDED}
    try:
        for local in range(processes):
            own = {"RINGSIDE_RANK": str(first + local), "RINGSIDE_LOCAL_RANK": str(local)}
            environment = {**os.environ, **common, **own}
            started.append(_start(command, environment, by_lines=processes * nodes.count > 1))
            if pipe := started[-1].stderr:
                told.append(Told(pipe, first + local))
        failed = _wait(started, heard, notes.name)
        if heard:
            return 128 + heard[0]
        if failed is None:
            return 0
        if told:
            told[failed].finish()
        follows = nodes.count > 1 and launched.failed_by_others(failed, notes.name)
        return _report(failed, started, nodes, " because of another host" if follows else "")
    finally:
        _end(started)
        for each in told:
            each.finish()
        notes.cleanup()
        for number, handler in before.items():
            signal.signal(number, handler)


def _meeting(nodes: Nodes) -> dict[str, str]:
    """The variables by which all processes of all hosts find each other."""
    if nodes.count < 1:
        raise InvalidArgument(f"--nnodes {nodes.count}; expected at least 1. Say how many")
    if nodes.rank not in range(nodes.count) and (nodes.rank is not None or nodes.count > 1):
        got = "no --node-rank" if nodes.rank is None else f"--node-rank {nodes.rank}"
        raise InvalidArgument(
            f"--nnodes {nodes.count} and {got}; expected 0 to {nodes.count - 1}. Give every host "
            "another one"
        )
    if nodes.count == 1:
        where = f"127.0.0.1:{_free_port()}"
        return {"RINGSIDE_RENDEZVOUS": where, "RINGSIDE_KEY": secrets.token_hex(32)}
    key = os.environ.get("RINGSIDE_KEY")
    if nodes.address is None or not key:
        raise InvalidArgument(
            f"--nnodes {nodes.count} without {'--master-addr' if key else 'RINGSIDE_KEY'}; "
            "expected both, alike on all hosts. Name the host of --node-rank 0, and set "
            "RINGSIDE_KEY to a secret text such as `openssl rand -hex 32` prints"
        )
    if not 0 < nodes.port < 65536:
        raise InvalidArgument(f"--master-port {nodes.port}; expected 1 to 65535. Choose a free one")
    return {
        "RINGSIDE_RENDEZVOUS": host.with_port(nodes.address.strip("[]"), nodes.port),
        "RINGSIDE_KEY": key,
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(
    command: Sequence[str], environment: dict[str, str], *, by_lines: bool
) -> subprocess.Popen[bytes]:
    """In a session of its own: it hears signals from here, once."""
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE if by_lines else None,
        start_new_session=True,
    )


def _wait(started: list[subprocess.Popen[bytes]], heard: list[int], notes: str) -> int | None:
    """Until one has failed, or all have ended: which one it was."""
    forwarded, forwarded_at, failed_at = 0, 0.0, 0.0
    while any(process.poll() is None for process in started):
        for number in heard[forwarded:]:
            forwarded += 1
            forwarded_at = forwarded_at or time.monotonic()
            for process in started:
                if process.poll() is None:
                    process.send_signal(number)
        if forwarded and (
            len(heard) > len(set(heard)) or time.monotonic() - forwarded_at > SIGNALLED_S
        ):
            _kill(started, heard[0])
        failed = [i for i, process in enumerate(started) if process.poll()]
        if failed and not heard:
            failed_at = failed_at or time.monotonic()
            began = _that_began(failed, notes)
            if began is not None or time.monotonic() - failed_at > BEGAN_S:
                return failed[0] if began is None else began
        time.sleep(LOOK_EVERY_S)
    failed = [i for i, process in enumerate(started) if process.returncode]
    began = _that_began(failed, notes)
    return began if began is not None or not failed else failed[0]


def _kill(started: list[subprocess.Popen[bytes]], number: int) -> None:
    """Those that a signal has not ended: they ignore it, or are stopped."""
    left = [process for process in started if process.poll() is None]
    if not left:
        return
    print(
        f"ringside run: {len(left)} of {len(started)} processes did not end after "
        f"{_signal(number)}; killing them",
        file=sys.stderr,
    )
    for process in left:
        process.kill()
        process.wait()


def _that_began(failed: list[int], notes: str) -> int | None:
    """The first of them that did not fail because of another one."""
    return next((i for i in failed if not launched.failed_by_others(i, notes)), None)


def _report(local: int, started: list[subprocess.Popen[bytes]], nodes: Nodes, because: str) -> int:
    """Says which process failed; its exit code as a shell gives it."""
    code = started[local].returncode
    number, size = local + len(started) * (nodes.rank or 0), len(started) * nodes.count
    how = f"exited with code {code}" if code > 0 else f"was ended by {_signal(-code)}"
    others = sum(process.poll() is None for process in started)
    rest = f"; ending the other {others}" if others else ""
    here = " on this host" if others and nodes.count > 1 else ""
    print(f"ringside run: process {number} of {size} {how}{because}{rest}{here}", file=sys.stderr)
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
