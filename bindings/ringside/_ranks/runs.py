"""How a call of ranks runs: checked and agreed on by all processes, then on the host or on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ringside import _core
from ringside._attention.options import Options, to_core
from ringside._core import Unsupported
from ringside._group.failure import named as named_ranks
from ringside._group.group import Group
from ringside._ranks.arguments import (
    agreed_of,
    agreed_on_devices,
    arrays_of,
    dtypes_of,
    group_of,
    on_device,
    require_size,
)
from ringside._ranks.calls import ProgramAsked, RanksCall
from ringside._ranks.kept import KeptKv, require_kept
from ringside._ranks.source import RankSource

Gather = Callable[[Any], list[Any]]


class Where(NamedTuple):
    """Where a call is asked to run."""

    backend: str | None
    exchange: str
    keeps: bool = False  # keys and values
    kept: Any = None  # of the forward pass


class Runs(NamedTuple):
    """How to run a call, on the host and on a device; last, what it is made for."""

    host: Callable[[_core.RankCall, _core.SocketRanks, Gather, dict[str, str]], Any]
    device: Callable[[RanksCall, Any, Any, dict[str, str]], Any]


def run(
    plan: RankSource,
    group: Group,
    named: dict[str, Any],
    options: Options,
    where: Where,
    form: str,
    runs: Runs,
) -> Any:
    """Checks, agrees, runs. Of what is wrong here the others hear by who calls: see refused.py."""
    group_of(group)._require_usable()
    exchange = on_device(where.backend, where.exchange, named)
    require_size(plan, group)
    if exchange is None:
        ready = _on_host(plan, group, named, options, where, runs)
    else:
        where = where._replace(exchange=exchange)
        ready = _on_device(plan, group, named, options, where, runs)
    return group._call(ready.what, form, ready.run, ready.set_up)


class Ready(NamedTuple):
    """What a group is to agree on and to do: see Group._call."""

    what: dict[str, Any]
    run: Callable[[_core.SocketRanks, Gather], Any]
    set_up: Callable[[], None] = lambda: None


def set_up_ahead(asked: ProgramAsked, exchange: str) -> Ready:
    """Calls on a device to come: all that connects, allocates, uploads or measures."""
    on_device("cuda", exchange, {})
    asked.require_device(exchange)

    def set_up() -> None:
        asked.program(exchange)

    what = agreed_on_devices(asked, exchange)
    return Ready(what, nothing, set_up)


def nothing(links: _core.SocketRanks, gather: Gather) -> None:
    """What is computed ahead of the first call."""


def _on_host(
    plan: RankSource,
    group: Group,
    named: dict[str, Any],
    options: Options,
    where: Where,
    runs: Runs,
) -> Ready:
    arrays = {name: arrays_of(x, name, group) for name, x in named.items()}
    core = to_core(options, plan._dropout_origin)
    call = _core.RankCall(plan._source, list(group.ranks), list(arrays.values()), core, where.keeps)
    dims, fingerprint = [call.head_dim_qk, call.head_dim_v], plan._fingerprint_in(group)
    made_for = {
        "ranks": named_ranks(group.ranks),
        "plan": f"({fingerprint})",
        "arrays": "on the host",
        "head_dims": "/".join(map(str, dims)),
    }
    if where.kept is not None:
        require_kept(where.kept, made_for)
    what = agreed_of(fingerprint, dtypes_of(arrays), dims, options, where.keeps)
    return Ready(what, lambda links, gather: runs.host(call, links, gather, made_for))


def _on_device(
    plan: RankSource,
    group: Group,
    named: dict[str, Any],
    options: Options,
    where: Where,
    runs: Runs,
) -> Ready:
    arrays = {name: arrays_of(x, name, group, lambda x, _: x) for name, x in named.items()}
    call = RanksCall(plan, group, arrays, options, where.keeps)
    plan._require_ready(call.library, call.device)
    made_for = {"ranks": named_ranks(group.ranks), "plan": f"({plan._fingerprint_in(group)})"}
    made_for |= call.asked.made_for()
    if where.kept is not None:
        require_kept(where.kept, made_for)
    what = agreed_on_devices(call.asked, where.exchange)
    call.asked.require_device(where.exchange)

    def program() -> tuple[Any, Any]:
        return call.asked.program(where.exchange)

    def set_up() -> None:
        program()

    return Ready(what, lambda *_: runs.device(call, *program(), made_for), set_up)


def forward(
    plan: RankSource,
    group: Group,
    named: dict[str, Any],
    options: Options,
    where: Where,
    *,
    return_max_logit: bool,
) -> Any:
    """attention_rank of q_r, k_r and v_r, by either kind of plan."""
    asked = return_max_logit

    def found(out: Any, lse: Any, logits: Any, kept: list[Any], made_for: dict[str, str]) -> Any:
        asked_for = [] if logits is None else [logits]
        asked_for += [KeptKv(kept, made_for)] if where.keeps else []
        return own(group, out), own(group, lse), *asked_for

    def on_gpu(call: RanksCall, program: Any, links: Any, made_for: dict[str, str]) -> Any:
        logits = call.max_logit() if asked else None
        out, lse, kept = call.forward(program, links, logits)
        return found(out, lse, logits, kept, made_for)

    def on_host(
        call: _core.RankCall, links: _core.SocketRanks, gather: Gather, made_for: dict[str, str]
    ) -> Any:
        out, lse, logits, kept = call.attention(links)
        told = [x for _, x in gather([x.tolist() for x in logits])] if asked else []
        largest = largest_of([np.array(x) for x in told]) if asked else None
        return found(out, lse, largest, kept, made_for)

    return run(plan, group, named, options, where, f"forward {asked}", Runs(on_host, on_gpu))


def backward(
    plan: RankSource,
    group: Group,
    named: dict[str, Any],
    options: Options,
    where: Where,
    *,
    deterministic: bool,
) -> tuple[Any, ...]:
    """attention_backward_rank of q_r, k_r, v_r, dout_r, out_r and lse_r, likewise."""
    kept = [] if where.kept is None else list(getattr(where.kept, "arrays", ()))

    def on_gpu(
        call: RanksCall, program: Any, links: Any, made_for: dict[str, str]
    ) -> tuple[Any, ...]:
        return tuple(own(group, x) for x in call.backward(program, links, deterministic, kept))

    def on_host(
        call: _core.RankCall, links: _core.SocketRanks, gather: Gather, made_for: dict[str, str]
    ) -> tuple[Any, ...]:
        *gradients, dsink = call.attention_backward(links, kept)
        found = gradients if options.sink is None else [*gradients, dsink]
        return tuple(own(group, x) for x in found)

    form = f"backward of call {group_of(group)._half_of}"
    done: tuple[Any, ...] = run(plan, group, named, options, where, form, Runs(on_host, on_gpu))
    return done


def prepare(
    plan: RankSource,
    group: Group,
    make_ready: Callable[[], Ready],
) -> None:
    """Agrees on calls to come, and sets up what they need; what is wrong here is told to all."""
    ready = Ready({"plan": plan._fingerprint_in(group)}, nothing)
    error: Exception | None = None
    try:
        ready = make_ready()
        require_size(plan, group)
    except (ValueError, TypeError, Unsupported) as found:
        error = found
    group._prepare(ready.what, error, ready.set_up)


def own(group: Group, found: list[Any]) -> Any:
    """One rank's is no list."""
    return found[0] if len(group.ranks) == 1 else found


def largest_of(logits: list[Any]) -> Any:
    """Over all ranks; NaN stays. Each is [ranks of a process, num_heads]."""
    return np.maximum.reduce(np.concatenate(logits))
