"""Real processes that make groups in tests: started once, told what to do, killed at will."""

import os
import pickle
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

WORKER = Path(__file__).with_name("group_worker.py")
HELPERS = [str(path) for path in sorted(WORKER.parents[1].iterdir()) if path.is_dir()]
PATIENCE = 60.0  # seconds; far more than anything takes that is right


class Raised(Exception):
    """What a process raised: the name of its type, its text, ranks, call and step."""

    def __init__(self, kind, text, attributes):
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text
        self.ranks, self.call, self.step = (attributes[n] for n in ("ranks", "call", "step"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def meeting():
    """Arguments of rs.init by which processes find each other."""
    return {"address": f"127.0.0.1:{free_port()}", "key": secrets.token_hex(16)}


def wait_for_listener(address):
    """Until a process listens there; it takes this for a stranger."""
    host, port = address.rsplit(":", 1)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            return socket.create_connection((host, int(port))).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise AssertionError(f"nobody listens at {address}")


def environment(**variables):
    """That of this process without any launcher's variables, and these."""
    prefixes = ("RINGSIDE_", "OMPI_", "PMI", "SLURM_", "MPI_", "TORCHELASTIC_")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    own = {k: v for k, v in os.environ.items() if not k.startswith(prefixes) and k not in names}
    paths = [*filter(None, [own.get("PYTHONPATH")]), str(WORKER.parents[1]), *HELPERS]
    own["PYTHONPATH"] = os.pathsep.join(paths)
    return {**own, **{name: str(value) for name, value in variables.items()}}


class Worker:
    """One process; see group_worker.py. `before` is what starts its command, and how."""

    def __init__(self, before=(), **variables):
        self.seconds = 0.0  # that the last answer took
        self.process = subprocess.Popen(
            [*before, sys.executable, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(**variables),
        )

    def tell(self, snippet, **values):
        """Returns at once."""
        pickle.dump((snippet, values), self.process.stdin)
        self.process.stdin.flush()

    def answer(self):
        """Of what it was told first and has not been asked yet; raises what it raised."""
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        assert ready, "a process does not answer"
        how, what, self.seconds = pickle.load(self.process.stdout)
        if how == "raised":
            raise Raised(*what)
        return what

    def error(self):
        """What it raised; a failure of the test where it answered."""
        try:
            answered = self.answer()
        except Raised as raised:
            return raised
        raise AssertionError(f"nothing was raised; the answer is {answered!r}")

    def do(self, snippet, **values):
        self.tell(snippet, **values)
        return self.answer()

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass
        self.process.wait()


class Workers(list):
    """Several processes; ended when the context is left."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for worker in self:
            if worker.process.poll() is None:
                worker.signal(signal.SIGCONT)
            worker.end()

    def all(self, snippet, each=(), **values):
        """Tells all, then hears all; `each` are values of their own."""
        self.tell_all(snippet, each, **values)
        return [worker.answer() for worker in self]

    def tell_all(self, snippet, each=(), **values):
        for i, worker in enumerate(self):
            worker.tell(snippet, **values, **(each[i] if each else {}))

    def errors(self):
        return [worker.error() for worker in self]

    def make_group(self, hosted, name="group", **arguments):
        """rs.init in as many processes as `hosted` lists ranks for; the rest stay out."""
        size = sum(map(len, hosted))
        arguments = {**meeting(), "size": size, **arguments}
        for worker, _ in zip(self, hosted, strict=False):  # a timeout is not for starting Python
            worker.tell("None")
        for worker, _ in zip(self, hosted, strict=False):
            worker.answer()
        snippet = f"{name} = rs.init(rank, **arguments)"
        for worker, ranks in zip(self, hosted, strict=False):
            worker.tell(snippet, rank=list(ranks), arguments=arguments)
        for worker, _ in zip(self, hosted, strict=False):
            worker.answer()


def started(count, before=(), **variables):
    return Workers(Worker(before, **variables) for _ in range(count))


def within(seconds):
    """A deadline as a context: what it holds takes no longer, on processors of its own.

    Where others want them too, by as much more as there are of them.
    """
    return _Within(seconds)


class _Within:
    def __init__(self, seconds):
        self.seconds = seconds

    def __enter__(self):
        self.begin = time.monotonic()

    def __exit__(self, kind, *error):
        took = time.monotonic() - self.begin
        if kind is None:
            most = self.seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
            assert took < most, f"took {took:.2f} s; expected at most {most:.2f}"


def require_failure(error, ranks, *pieces):
    """A RankFailure that names these ranks, with the pieces in its text."""
    assert error.kind == "RankFailure", error
    assert error.ranks == tuple(ranks), error
    assert f"call {error.call}" in error.text
    for piece in pieces:
        assert piece in error.text, error
