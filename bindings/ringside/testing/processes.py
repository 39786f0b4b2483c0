"""A context-parallel function of torch tensors, one process a rank, for check_context_parallel.

The processes meet once, over gloo, and then run case after case. One that raises, dies or is silent
for too long is named; all of them are ended then, and the next case starts new ones. (One that is
alone and raises goes on: nobody waits for it.) Needs torch.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import ringside as rs

__all__ = ["ProcessPerRank", "RankError"]

Array = npt.NDArray[Any]
READY = "ready"
AT_FIRST_BACKWARD = ("torch.fx.experimental.symbolic_shapes",)  # torch imports it then, in seconds
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
            of the rank's own rows, torch tensors on the CPU, after
            torch.distributed.init_process_group("gloo"); returns out, or (out, lse), which torch
            can differentiate with respect to q, k and v. It may be set anew between two cases.
        size: how many ranks; a case of another cp_size raises Unsupported.
        setup: "module:function" that each process calls once, before anything else; None for none.
        timeout_s: seconds that a case may take.
        arrays: "torch", or "jax" for one rank: fn gets JAX arrays, and jax.vjp differentiates it.
        preload: modules that are imported once, before the processes are made.
        given: what setup is called with.

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
    ) -> None:
        for name in (fn, *([] if setup is None else [setup])):
            if name.count(":") != 1:
                raise ValueError(f'{name!r} names no function; expected "module:function"')
        if arrays not in ARRAYS or (arrays == "jax" and size != 1):
            raise ValueError(
                f'arrays={arrays!r} with {size} ranks; expected "torch", or "jax" with one rank, '
                "which needs no exchange. Pass one of these"
            )
        self.fn, self.size, self.setup, self.timeout_s = fn, size, setup, timeout_s
        self.arrays, self.preload, self.given = arrays, preload, given
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
        return self.size == 1 and isinstance(error, RankError) and error.how == "raised"

    def _start(self) -> None:
        spawn = _context(self.preload)
        self._folder = tempfile.TemporaryDirectory()
        store = str(Path(self._folder.name) / "store")
        for rank in range(self.size):
            ours, theirs = spawn.Pipe()
            setup = (self.setup, self.given)
            arguments = (rank, self.size, store, setup, (self.arrays, self.fn), theirs)
            process = spawn.Process(target=_serve, args=arguments, daemon=True)
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
        """One of each rank; of those that failed, the first to say so counts."""
        answers: dict[int, Any] = {}
        end = time.monotonic() + seconds
        while len(answers) < self.size:
            silent = [rank for rank in range(self.size) if rank not in answers]
            ready = wait([self._pipes[rank] for rank in silent], max(0.0, end - time.monotonic()))
            if not ready:
                raise RankError(silent, f"said nothing for {seconds:g} s", "silent")
            for rank in (r for r in silent if self._pipes[r] in ready):
                try:
                    kind, answers[rank] = self._pipes[rank].recv()
                except (EOFError, ConnectionResetError):
                    self._processes[rank].join()
                    code = self._processes[rank].exitcode
                    raise RankError([rank], f"ended with exit code {code}", "ended") from None
                if kind == "raised":
                    raise RankError([rank], f"raised {answers[rank]}", "raised")
        return [answers[rank] for rank in range(self.size)]


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Else each process would import the caller's script first, or all of pytest."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _named(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


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


def _serve(
    rank: int,
    size: int,
    store: str,
    setup: tuple[str | None, tuple[Any, ...]],
    what: tuple[str, str],
    pipe: Connection,
) -> None:
    """A process: meets the others, then answers until its pipe is closed."""
    try:
        answer = _ready(rank, size, store, setup, what[0])
        _named(what[1])
        pipe.send((READY, None))
        while True:
            name, plan, *asked = pipe.recv()
            try:
                pipe.send(("returned", answer(_named(name), plan, *asked)))
            except Exception as error:
                pipe.send(("raised", _told(error)))  # of several, all are ended then
    except EOFError:
        return
    except BaseException as error:
        pipe.send(("raised", _told(error)))


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def _ready(
    rank: int, size: int, store: str, setup: tuple[str | None, tuple[Any, ...]], arrays: str
) -> Callable[..., Any]:
    """Sets the process up, and what answers there."""
    if arrays == "torch":
        import torch

        torch.set_num_threads(1)
    name, given = setup
    if name is not None:
        _named(name)(*given)
    if arrays == "torch":
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=size
        )
    return ARRAYS[arrays]


def _answer(
    call: Callable[..., Any], plan: rs.Plan, kind: str, arrays: Any, options: dict[str, Any]
) -> Any:
    import torch

    from ringside.testing.adapters import _from_tensor, _tensor

    q, k, v, *dout = (_tensor(torch, x) for x in arrays)
    for x in (q, k, v):
        x.requires_grad_(kind == "backward")  # else kernels that have no backward would refuse
    returned = call(q, k, v, plan=plan, **options)
    if kind == "forward":
        results = returned if isinstance(returned, tuple) else (returned,)
        told = tuple(np.asarray(_from_tensor(torch, x.detach())) for x in results)
        return told if isinstance(returned, tuple) else told[0]
    out = returned[0] if isinstance(returned, tuple) else returned
    gradients = torch.autograd.grad(out, (q, k, v), dout[0], allow_unused=True)
    found = zip(gradients, (q, k, v), strict=True)
    zeros = (torch.zeros_like(x) if g is None else g for g, x in found)
    return tuple(np.asarray(_from_tensor(torch, x)) for x in zeros)


def _answer_of_jax(
    call: Callable[..., Any], plan: rs.Plan, kind: str, arrays: Any, options: dict[str, Any]
) -> Any:
    from ringside.testing.adapters import JaxFunction

    function = JaxFunction(lambda q, k, v, **keywords: call(q, k, v, plan=plan, **keywords), "it")
    q, k, v, *dout = arrays
    if kind == "forward":
        return function(q, k, v, **options)
    return function.backward(*dout, q, k, v, None, None, **options)


ARRAYS = {"torch": _answer, "jax": _answer_of_jax}
