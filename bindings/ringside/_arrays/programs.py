"""backend="cuda": the programs that a plan has on devices, and the calls that run them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

from ringside._arrays import cuda as _cuda
from ringside._arrays.source import Source
from ringside._attention.options import Options, to_core

_NUMBERED = ("softmax_scale", "softcap", "dropout_p", "dropout_seed")  # fields of Options
_numbers_of = operator.attrgetter(*_NUMBERED)
_NUMBERS = {float, int, type(None)}  # equal ones are the same for good, as tensors are not


def baked(options: Options) -> tuple[Any, ...]:
    """What of the options a program is made for; with another one of these another is made.

    The scale is a constant of its kernels, and softcap, ALiBi and dropout choose between families,
    whose numbers then come with each call (ProgramOptions and ScoreOptions in C++, where Program's
    constructor in bindings/cuda/program.cpp asks the same).
    """
    scale = None if options.softmax_scale is None else float(options.softmax_scale)
    return (
        (scale, bool(options.softcap != 0), bool(options.dropout_p != 0)),
        (options.alibi_slopes is not None, options.sink is not None),
    )


@functools.lru_cache(maxsize=256, typed=True)
def _plain_options(*numbers: float | None) -> Any:
    """CallOptions of the numbers of _NUMBERED, without arrays."""
    keywords: dict[str, Any] = dict(zip(_NUMBERED, numbers, strict=True))
    return _cuda.cuda_core().CallOptions(to_core(Options(**keywords)), None, None)


class Call:
    """What one call of a plan's needs besides its arrays."""

    def __init__(self, plan: Source, arrays: dict[str, Any], options: Options, *, poison: bool):
        _cuda.require_cuda("attention of arrays on a GPU", "arrays on the CPU, as by q.cpu()")
        self.plan, self.options = plan, options
        q = arrays["q"]
        self.library = _cuda.library_of(q)
        self.device = self.library.device(q)
        for name, x in arrays.items():
            if not self.library.owns(x) or self.library.device(x) != self.device:
                raise TypeError(f"{name} is not on q's device or not q's kind of array; convert it")
        self.arrays = {name: self.library.ready(x) for name, x in arrays.items()}
        self.like = self.arrays["q"]
        self.sink = self._vector(options.sink)
        self.slopes = self._vector(options.alibi_slopes)
        self.program = self._program(poison)

    def _vector(self, x: Any) -> Any:
        return None if x is None else self.library.vector(x, self.like, self.plan.num_heads)

    def _program(self, poison: bool) -> Any:
        arrays, programs = self.arrays, self.plan._programs
        types = (arrays["q"].dtype, arrays["q"].shape[-1], arrays["v"].shape[-1], self.device)
        key = (types, baked(self.options), poison)
        if key not in programs:
            q, v = (self.describe(arrays[name]) for name in "qv")
            program = _cuda.cuda_core().Program(
                self.plan._source, q, v, self.device, self._core_options(), poison
            )
            self.plan._prepare(program, self.library, self.device)
            programs[key] = program
        return programs[key]

    def _core_options(self) -> Any:
        numbers = _numbers_of(self.options)
        origin = self.plan._dropout_origin
        plain = self.sink is None and self.slopes is None and origin == (0, 0)
        if plain and _NUMBERS.issuperset(map(type, numbers)):
            return _plain_options(*numbers)
        sink, slopes = self.describe(self.sink), self.describe(self.slopes)
        core = to_core(self.options, origin, per_head=())
        return _cuda.cuda_core().CallOptions(core, sink, slopes)

    def describe(self, x: Any) -> Any:
        """For the C++ half."""
        return None if x is None else self.library.describe(x)

    def run(self, launch: Any, bytes_needed: int, arrays: Sequence[Any], **more: Any) -> None:
        """Calls launch(arrays, options, ...) on the current stream."""
        workspace = self.library.empty((max(bytes_needed, 1),), self.like, "uint8")
        launch(
            [self.library.describe(x) for x in arrays],
            options=self._core_options(),
            workspace=_cuda.pointer(workspace),
            stream=self.library.stream(self.device),
            **more,
        )


def attention(
    plan: Source,
    q: Any,
    k: Any,
    v: Any,
    options: Options,
    *,
    poison: bool = False,
    return_max_logit: bool = False,
) -> tuple[Any, ...]:
    """(out, lse) on the device, in q's dtype and float32; and max_logit [num_heads], if asked."""
    call = Call(plan, {"q": q, "k": k, "v": v}, options, poison=poison)
    x = call.arrays
    shape = (plan.num_rows_q, plan.num_heads)
    out = call.library.empty((*shape, x["v"].shape[-1]), call.like)
    lse = call.library.empty(shape[::-1], call.like, "float32")
    results = [out, lse]
    if return_max_logit:
        results.append(call.library.empty((plan.num_heads,), call.like, "float32"))
    arrays = [x["q"], x["k"], x["v"], *results]
    call.run(call.program.forward, call.program.forward_bytes, arrays)
    return tuple(results)


def attention_backward(
    plan: Source,
    arrays: dict[str, Any],
    options: Options,
    *,
    deterministic: bool = False,
    poison: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """(dq, dk, dv, dsink) on the device; arrays are dout, q, k, v, out, lse."""
    call = Call(plan, arrays, options, poison=poison)
    x = call.arrays
    grads = [call.library.empty(x[name].shape, call.like) for name in "qkv"]
    dsink = None
    if call.sink is not None:
        dsink = call.library.empty((plan.num_heads,), call.like, "float32")
    everything = [*(x[name] for name in ("dout", "q", "k", "v", "out", "lse")), *grads]
    call.run(
        call.program.backward,
        call.program.backward_bytes,
        everything,
        dsink=call.describe(dsink),
        deterministic=deterministic,
    )
    return (*grads, dsink)
