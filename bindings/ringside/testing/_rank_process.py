"""What a process of a rank does: meets the others, gets arrays, calls, gives back NumPy arrays."""

from __future__ import annotations

import functools
import importlib
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import ringside as rs
from ringside.testing._running import Misuse
from ringside.testing.adapters import JaxFunction, _from_tensor, _sink_leaf, guards, unwritten

__all__ = ["ARRAYS", "READY", "serve"]

ARRAYS = ("torch", "jax")
READY = "ready"


def _named(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def serve(
    rank: int,
    size: int,
    store: str,
    setup: tuple[str | None, tuple[Any, ...]],
    what: tuple[str, str, str],
    pipe: Connection,
) -> None:
    """A process: meets the others, then answers until its pipe is closed."""
    try:
        fn, arrays, device = what
        answer = _ready((rank, size, store), setup, arrays, device)
        _named(fn)
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
    if isinstance(error, Misuse):
        return f"Misuse: {error}"
    return "".join(traceback.format_exception_only(error)).strip()


def _ready(
    meeting: tuple[int, int, str],
    setup: tuple[str | None, tuple[Any, ...]],
    arrays: str,
    device: str,
) -> Callable[..., Any]:
    """Sets the process up, and what answers there."""
    choose = {"torch": _choose_for_torch, "jax": _choose_for_jax}[arrays]
    choose(device, meeting[0])
    name, given = setup
    if name is not None:
        _named(name)(*given)
    if arrays == "jax":
        return _answer_of_jax
    _meet(*meeting, device)
    return functools.partial(_answer, f"cuda:{meeting[0]}" if device == "cuda" else "cpu")


def _choose_for_torch(device: str, rank: int) -> None:
    """A GPU for each rank: NCCL refuses two processes of one group on one."""
    import torch

    torch.set_num_threads(1)
    if device == "cuda":
        found = torch.cuda.device_count()
        if rank >= found:
            raise RuntimeError(
                f"rank {rank} has no GPU: torch {torch.__version__} sees {found} here; expected "
                'one for each rank. Take fewer ranks, or device="cpu"'
            )
        torch.cuda.set_device(rank)


def _choose_for_jax(device: str, rank: int) -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others are here, too
    import jax

    del rank  # there is one
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")  # else it would take a GPU unasked
    elif (found := jax.default_backend()) != "gpu":
        raise RuntimeError(
            f'jax {jax.__version__} has no GPU here but runs on "{found}"; expected its CUDA '
            'plugin and a GPU. Install jax[cuda13], or pass device="cpu"'
        )


def _meet(rank: int, size: int, store: str, device: str) -> None:
    import torch

    torch.distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
    )


def _answer(
    place: str,
    call: Callable[..., Any],
    plan: rs.Plan,
    kind: str,
    arrays: Any,
    options: dict[str, Any],
) -> Any:
    import torch

    guarded = guards(torch, arrays, place)
    q, k, v, *dout = (x.tensor for x in guarded)
    sink = {name: x.to(place) for name, x in _sink_leaf(torch, arrays[0], options).items()}
    leaves = (q, k, v, *sink.values())
    for x in leaves:
        x.requires_grad_(kind == "backward")  # else kernels that have no backward would refuse
    returned = call(q, k, v, plan=plan, **{**options, **sink})
    unwritten(guarded)
    if kind == "forward":
        results = returned if isinstance(returned, tuple) else (returned,)
        told = tuple(_from_tensor(torch, x) for x in results)
        return told if isinstance(returned, tuple) else told[0]
    out = returned[0] if isinstance(returned, tuple) else returned
    gradients = torch.autograd.grad(out, leaves, dout[0], allow_unused=True)
    unwritten(guarded)
    found = zip(gradients, leaves, strict=True)
    zeros = (torch.zeros_like(x) if g is None else g for g, x in found)
    return tuple(_from_tensor(torch, x) for x in zeros)


def _answer_of_jax(
    call: Callable[..., Any], plan: rs.Plan, kind: str, arrays: Any, options: dict[str, Any]
) -> Any:
    function = JaxFunction(lambda q, k, v, **keywords: call(q, k, v, plan=plan, **keywords), "it")
    q, k, v, *dout = arrays
    if kind == "forward":
        return function(q, k, v, **options)
    return function.backward(*dout, q, k, v, None, None, **options)
