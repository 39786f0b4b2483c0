"""A context-parallel function of torch tensors, one process a rank, for check_context_parallel.

The processes meet once, over gloo or, with a GPU each, over NCCL, and then run case after case. One
that raises, dies or is silent for too long is named; all of them are ended then, and the next case
starts new ones. (One that is alone on a CPU and raises goes on: nobody waits for it.) Needs torch.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import re
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy.typing as npt

import ringside as rs
from ringside.testing._rank_process import ARRAYS, serve

__all__ = ["ProcessPerRank", "RankError"]

Array = npt.NDArray[Any]
AT_FIRST_BACKWARD = ("torch.fx.experimental.symbolic_shapes",)  # torch imports it then, in seconds
DEVICES = ("cpu", "cuda")
OF_CUDA = re.compile("cuda|cudnn|nccl|xla|jaxruntime", re.IGNORECASE)
OF_A_LOST_PEER = re.compile(
    "connection (reset|closed|refused|aborted)|closed by peer|broken pipe|remote (process|worker)",
    re.IGNORECASE,
)
PEER_S = 5.0  # how much later than those that talked to it a process may be seen to have ended
START_S = 120.0  # Python and torch take seconds, on a busy machine many


class RankError(RuntimeError):
    """A rank raised, died or was silent.

    Attributes:
        ranks: which.
        how: "raised", "ended" or "silent".
    """

    def __init__(self, ranks: list[int], what: str, how: str) -> None:
        super().__init__(f"{_ranks(ranks)} {what}")
        self.ranks, self.how = ranks, how


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


class ProcessPerRank:
    """What check_context_parallel takes, made of a function that runs on every rank.

    Args:
        fn: "module:function", imported in every process: fn(q, k, v, *, plan, softmax_scale, ...)
            of the rank's own rows, torch tensors, after torch.distributed.init_process_group;
            returns out, or (out, lse), which torch can differentiate with respect to q, k, v
            and a sink, which comes as a tensor [num_heads]. It may be set anew between two cases.
        size: how many ranks; a case of another cp_size raises Unsupported.
        setup: "module:function" that each process calls once, before anything else; None for none.
        timeout_s: seconds that a case may take.
        arrays: "torch", or "jax" for one rank: fn gets JAX arrays, and jax.vjp differentiates it.
        preload: modules that are imported once, before the processes are made.
        given: what setup is called with.
        device: "cpu", or "cuda": tensors are on the rank's own GPU, the group is of NCCL.

    It is a context manager, which ends the processes.

    >>> from ringside.testing.processes import ProcessPerRank
    >>> with ProcessPerRank("mypackage.ring:attend", size=2) as ring:
    ...     ring.size, ring.started  # processes start with the first case
    (2, 0)
    """

    def __init__(
        self,
        fn: str,
        size: int,
        *,
        setup: str | None = None,
        timeout_s: float = 60.0,
        arrays: str = "torch",
        preload: tuple[str, ...] = ("torch",),
        given: tuple[Any, ...] = (),
        device: str = "cpu",
    ) -> None:
        for name in (fn, *([] if setup is None else [setup])):
            if name.count(":") != 1:
                raise ValueError(f'{name!r} names no function; expected "module:function"')
        if not isinstance(size, Integral) or isinstance(size, bool) or size < 1:
            raise ValueError(f"size={size!r}; expected 1 rank or more. Pass the cases' cp_size")
        if arrays not in ARRAYS or (arrays == "jax" and size != 1):
            raise ValueError(
                f'arrays={arrays!r} with {size} ranks; expected "torch", or "jax" with one rank, '
                "which needs no exchange. Pass one of these"
            )
        if device not in DEVICES:
            raise ValueError(f"device={device!r}; expected one of {', '.join(DEVICES)}")
        self.fn, self.size, self.setup, self.timeout_s = fn, size, setup, timeout_s
        self.arrays, self.preload, self.given, self.device = arrays, preload, given, device
        self.started = 0
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> ProcessPerRank:
        """Starts nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the processes."""
        self.close()

    def __call__(
        self, qs: list[Array], ks: list[Array], vs: list[Array], *, plan: rs.Plan, **options: Any
    ) -> list[Any]:
        """(out, lse) or out of every rank."""
        given = zip(qs, ks, vs, strict=True)
        return self._run(plan, [("forward", x, options) for x in given])

    def backward(
        self, douts: list[Array], qs: list[Array], ks: list[Array], vs: list[Array], *_: Any,
        plan: rs.Plan, **options: Any,
    ) -> list[Any]:  # fmt: skip
        """(dq, dk, dv) of every rank, of a forward pass of its own."""
        given = zip(qs, ks, vs, douts, strict=True)
        return self._run(plan, [("backward", x, options) for x in given])

    def start(self) -> None:
        """Starts the processes ahead of the first case, where they are not there yet."""
        try:
            if not self._processes:
                self._start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the processes; the next case starts new ones."""
        for process in self._processes:
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()
        if self._folder is not None:
            self._folder.cleanup()
        self._processes, self._pipes, self._folder = [], [], None

    def _run(self, plan: rs.Plan, calls: list[Any]) -> list[Any]:
        if plan.cp_size != self.size:
            raise rs.Unsupported(
                f"a case of {plan.cp_size} ranks by {self.size} processes. Nearest supported: "
                f"cp_size={self.size}"
            )
        self.start()
        try:
            for pipe, call in zip(self._pipes, calls, strict=True):
                pipe.send((self.fn, plan, *call))
            return self._answers(self.timeout_s)
        except BaseException as error:
            if not self._goes_on_after(error):
                self.close()  # whoever waits for the one that failed waits for good
            raise

    def _goes_on_after(self, error: BaseException) -> bool:
        """Not after an error of CUDA: no kernel may run in that process any more."""
        if self.size > 1 or not isinstance(error, RankError) or error.how != "raised":
            return False
        return self.device == "cpu" or not OF_CUDA.search(str(error))

    def _start(self) -> None:
        spawn = _context(self.preload)
        self._folder = tempfile.TemporaryDirectory()
        store = str(Path(self._folder.name) / "store")
        for rank in range(self.size):
            ours, theirs = spawn.Pipe()
            setup = (self.setup, self.given)
            what = (self.fn, self.arrays, self.device)
            arguments = (rank, self.size, store, setup, what, theirs)
            process = spawn.Process(target=serve, args=arguments, daemon=True)
            with contextlib.nullcontext() if self._needs_main() else _without_main():
                process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)
        self.started += 1
        self._answers(max(START_S, self.timeout_s))

    def _needs_main(self) -> bool:
        """Whether a function or an argument is of the script that runs."""
        named = [name for name in (self.fn, self.setup) if name is not None]
        plain = all(isinstance(x, str | int | float | type(None)) for x in self.given)
        return not plain or any(name.startswith("__main__:") for name in named)

    def _answers(self, seconds: float) -> list[Any]:
        """One of each rank; of those that failed, the first to say so counts.

        But one that only lost another, which may be seen to have ended a moment later, gives way.
        """
        answers: dict[int, Any] = {}
        end, lost = time.monotonic() + seconds, None
        while len(answers) < self.size:
            silent = [rank for rank in range(self.size) if rank not in answers]
            ready = wait([self._pipes[rank] for rank in silent], max(0.0, end - time.monotonic()))
            if not ready:
                raise lost or RankError(silent, f"said nothing for {seconds:g} s", "silent")
            for rank in (r for r in silent if self._pipes[r] in ready):
                answers[rank], failure = self._answer_of(rank)
                if failure is not None and not OF_A_LOST_PEER.search(str(failure)):
                    raise failure
                if failure is not None and lost is None:
                    end, lost = min(end, time.monotonic() + PEER_S), failure
        if lost is not None:
            raise lost
        return [answers[rank] for rank in range(self.size)]

    def _answer_of(self, rank: int) -> tuple[Any, RankError | None]:
        try:
            kind, answer = self._pipes[rank].recv()
        except (EOFError, ConnectionResetError):
            self._processes[rank].join()
            code = self._processes[rank].exitcode
            return None, RankError([rank], f"ended with exit code {code}", "ended")
        failed = kind == "raised"
        return answer, RankError([rank], f"raised {answer}", "raised") if failed else None


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Else each process would import the caller's script first, or all of pytest."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def import_ahead(preload: tuple[str, ...]) -> None:
    """Begins to import what processes will find imported, while the caller does other things."""
    if _context(preload).get_start_method() == "forkserver":
        from multiprocessing import forkserver  # not on every system

        forkserver.ensure_running()


def _context(preload: tuple[str, ...]) -> Any:
    """Processes come from one that has imported torch and computed nothing: quick to start anew."""
    try:
        context = multiprocessing.get_context("forkserver")
    except ValueError:  # not on every system
        return multiprocessing.get_context("spawn")
    context.set_forkserver_preload([*preload, *(AT_FIRST_BACKWARD if "torch" in preload else ())])
    return context
