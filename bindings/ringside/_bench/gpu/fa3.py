"""`ringside bench gpu --peer fa3`: attention on Hopper beside FlashAttention 3, in one process.

FlashAttention 3 comes as the package flash-attn3-jax and runs through JAX, on the same memory as
torch's tensors. Ours goes by a plan that knows the lengths, and by a DevicePlan, which reads them
on the GPU, as FlashAttention 3 does. What is compared is the GPU time of all kernels that a call
launches, helpers included, and the wall clock of calls queued one behind the other. Its backward
pass is one call of JAX with the forward pass, whose kernel is left out of the time.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ringside import _core
from ringside._bench.gpu import cases, clock
from ringside._bench.gpu.cases import Goal, Line, Workload

if TYPE_CHECKING:
    from ringside._bench.gpu.problem import SampledOperands

SECTION = "fa3"
NEEDED = ("flash_attn3_jax", "einops", "jax")
CALLS, QUEUED, REPEATS = 6, 12, 15
FORWARD_KERNEL = "FlashAttnFwd"
ON_GPU = ", lengths on the GPU"  # of what a DevicePlan did
LONG = ("16k x2", "32k x1")  # sequences, not packs: as fast; packs: faster by a twentieth


def the_cases() -> list[Workload]:
    """Head dimension 128, packs of 32k tokens."""
    causal = [*LONG, "2k x16", "1k x32", "256 x128"]
    causal += ["ragged, mean 1k", "ragged, mean 256", "long tail 32k"]
    made = [Workload(pack, "causal", 16, 16, (128, 128)) for pack in causal]
    made.insert(1, Workload("16k x2", "full", 16, 16, (128, 128)))
    made.append(Workload("long tail 32k", "causal", 64, 8, (128, 128)))
    made.append(Workload("32k x1", "window 1,024", 16, 16, (128, 128)))
    return made


# TFLOP/s to reach, forward and backward: 1.05 times what FlashAttention 3 reached, built with these
# head dimensions, on another H200, of whole calls. Its package for JAX has none but 128.
AIMS = {(64, 64): (424.0, 374.0), (192, 128): (602.0, 341.0), (256, 256): (610.0, 343.0)}
LEAST_OF_DETERMINISTIC = 0.85  # of the other backward's rate


def cases_alone() -> list[Workload]:
    """Of the same packs, what runs without FlashAttention 3: other head dimensions."""
    heads = dict(zip(AIMS, (32, 16, 8), strict=True))
    packs = ("long tail 32k", "1k x32", "16k x2")
    return [Workload(x, "causal", n, n, dims) for dims, n in heads.items() for x in packs]


def require() -> None:
    """Raises Unsupported where FlashAttention 3 is not installed, and says how to get it."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise _core.Unsupported(
            f"--peer fa3 without {', '.join(missing)}: pip install flash-attn3-jax einops "
            '"jax[cuda13]". Nearest supported: no --peer, beside FlashAttention 2'
        )


@dataclass(frozen=True)
class Timed:
    """Milliseconds of both passes: all kernels of each, and wall clocks of queued calls."""

    forward: float
    backward: float
    forward_wall: float
    step_wall: float  # forward and backward


class Passes(NamedTuple):
    """What can be run of an implementation; sync waits for what a call returns."""

    forward: Callable[[], Any]
    backward: Callable[[], Any]
    step: Callable[[], Any]
    sync: Callable[[Any], Any]
    left_out: str = ""  # kernels of `backward` that are none of its


def line_of(case: Workload, work: str, family: str, ours: Timed, theirs: Timed) -> Line:
    """GPU time and wall clock of a pass beside FlashAttention 3's; wall of backward: of a step."""
    backward = work.startswith("backward")
    flops = case.flops(backward) / 1e9
    gpu, peer = (x.backward if backward else x.forward for x in (ours, theirs))
    wall, peer_wall = (x.step_wall if backward else x.forward_wall for x in (ours, theirs))
    numbers = {
        "gpu_ms": gpu,
        "gpu_tflops": flops / gpu,
        "fa3_gpu_ms": peer,
        "fa3_gpu_tflops": flops / peer,
        "gpu_over_fa3": peer / gpu,
        "wall_ms": wall,
        "fa3_wall_ms": peer_wall,
        "wall_over_fa3": peer_wall / wall,
    }
    least = 1.0 if case.pack in LONG and case.mask_name != "window 1,024" else 1.05
    goal = Goal("GPU time / FA3", peer / gpu, at_least=least)
    return Line(SECTION, str(case), work, family, numbers, (goal,))


def run(case: Workload) -> Iterator[Line | str]:
    """Lines of a case, all implementations checked against float64 first."""
    runners = importlib.import_module("ringside._bench.gpu.runners")
    problem = importlib.import_module("ringside._bench.gpu.problem").SampledOperands(case)
    plans = {"": case.plan(), ON_GPU: len(case.lengths)}
    ours = {name: runners.Ours(problem, plan) for name, plan in plans.items()}
    peer = FlashAttention3(problem)
    for name, runner in ours.items():
        try:
            runner.check()
        except cases.WrongResult as error:
            yield Line(SECTION, str(case) + name, family=runner.family, fault=str(error))
            return
    try:
        problem.check(peer.results())
    except cases.WrongResult as error:
        yield f"{case}: no FlashAttention 3, its {error}"
        return
    *mine, theirs = timed([*map(passes_of, ours.values()), peer.passes()])
    for (name, runner), spent in zip(ours.items(), mine, strict=True):
        for work in ("forward", "backward"):
            yield line_of(case, work + name, runner.family, spent, theirs)


def line_alone(case: Workload, work: str, family: str, milliseconds: float) -> Line:
    """GPU time of a pass that has no peer, and the rate to reach where one is known."""
    rate = case.flops(work == "backward") / 1e9 / milliseconds
    numbers = {"gpu_ms": milliseconds, "gpu_tflops": rate}
    aims = AIMS.get(case.dims) if case.pack == "long tail 32k" else None
    goals = () if aims is None else (Goal("TFLOP/s", rate, at_least=aims[work == "backward"]),)
    return Line(SECTION, str(case), work, family, numbers, goals)


def line_deterministic(case: Workload, family: str, times: dict[str, float]) -> Line:
    """The deterministic backward beside the other."""
    spent, rate = times["deterministic"], times["other"] / times["deterministic"]
    numbers = {"gpu_ms": spent, "gpu_tflops": case.flops(True) / 1e9 / spent}
    goal = Goal("GPU time / deterministic", rate, at_least=LEAST_OF_DETERMINISTIC)
    return Line(SECTION, str(case), "backward, deterministic", family, numbers, (goal,))


def _checked(case: Workload) -> Any:
    runners = importlib.import_module("ringside._bench.gpu.runners")
    problem = importlib.import_module("ringside._bench.gpu.problem").SampledOperands(case)
    ours = runners.Ours(problem, case.plan())
    ours.check()
    return ours


def _median_milliseconds(*of: tuple[Callable[[], Any], Callable[[Any], Any]]) -> list[float]:
    spent: list[list[float]] = [[] for _ in of]
    for order in clock.turns(len(of), REPEATS):
        for which in order:
            spent[which].append(gpu_milliseconds(*of[which]))
    return [statistics.median(times) for times in spent]


def run_alone(case: Workload) -> Iterator[Line]:
    """Lines of a case without a peer, checked against float64 first."""
    try:
        ours = _checked(case)
    except cases.WrongResult as error:
        yield Line(SECTION, str(case), fault=str(error))
        return
    mine = passes_of(ours)
    found = _median_milliseconds((mine.forward, mine.sync), (mine.backward, mine.sync))
    for work, spent in zip(("forward", "backward"), found, strict=True):
        yield line_alone(case, work, ours.family, spent)


def run_deterministic(case: Workload) -> Iterator[Line]:
    """The line of a case, checked against float64 first."""
    try:
        ours = _checked(case)
    except cases.WrongResult as error:
        yield Line(SECTION, str(case), "backward, deterministic", fault=str(error))
        return
    both = [passes_of(ours, name) for name in ("backward", "backward, deterministic")]
    found = _median_milliseconds(*((passes.backward, passes.sync) for passes in both))
    times = dict(zip(("other", "deterministic"), found, strict=True))
    yield line_deterministic(case, ours.family, times)


def passes_of(ours: Any, name: str = "backward") -> Passes:
    """Ours: a plan that exists, its backward not deterministic, as theirs is not."""
    import torch

    forward, leaves = ours.forwards[name], ours.problem.leaves

    def step() -> Any:
        return torch.autograd.grad(forward(), leaves, ours.problem.dout)

    def inference() -> Any:
        with torch.no_grad():
            return forward()

    backward = functools.partial(ours.backward, name)
    return Passes(inference, backward, step, lambda _: torch.cuda.synchronize())


class FlashAttention3:
    """flash_mha_varlen of flash_attn3_jax on a problem's tensors."""

    def __init__(self, problem: SampledOperands) -> None:
        # JAX would keep three quarters of the memory from torch, in which the arrays lie.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax
        import jax.numpy as jnp
        from flash_attn3_jax import flash_mha_varlen

        case = problem.case
        self.jax, longest = jax, max(case.lengths)
        left, right = case.mask.window_size
        keywords = {
            "max_seqlen_q": longest,
            "max_seqlen_k": longest,
            "is_causal": case.mask_name != "full",
            "window_size": (left, right) if left >= 0 else (-1, -1),
        }
        tensors = (*problem.leaves, problem.dout)
        self.arrays = [jax.dlpack.from_dlpack(x.detach().contiguous()) for x in tensors]
        self.cu_seqlens = jnp.asarray(problem.cu_seqlens)

        def attention(q: Any, k: Any, v: Any, cu_seqlens: Any) -> Any:
            return flash_mha_varlen(q, k, v, cu_seqlens, cu_seqlens, **keywords)

        def both(q: Any, k: Any, v: Any, cu_seqlens: Any, dout: Any) -> Any:
            out, back = jax.vjp(lambda *x: attention(*x, cu_seqlens), q, k, v)
            return out, *back(dout)

        self._forward, self._both = jax.jit(attention), jax.jit(both)

    def forward(self) -> Any:
        """out."""
        return self._forward(*self.arrays[:3], self.cu_seqlens)

    def both(self) -> Any:
        """(out, dq, dk, dv)."""
        return self._both(*self.arrays[:3], self.cu_seqlens, self.arrays[3])

    def results(self) -> dict[str, Any]:
        """As torch's tensors, by name."""
        import torch

        found = self.jax.block_until_ready(self.both())
        return dict(zip(("out", "dq", "dk", "dv"), map(torch.from_dlpack, found), strict=True))

    def passes(self) -> Passes:
        """To be timed."""
        wait = self.jax.block_until_ready
        return Passes(self.forward, self.both, self.both, wait, FORWARD_KERNEL)


def timed(implementations: list[Passes]) -> list[Timed]:
    """Medians of each, one measurement of all of them after another, in an order of its own each.

    A GPU that has just been busy runs slower: who always follows the same is measured with it.
    """
    measurements: dict[str, Callable[[Passes], float]] = {
        "forward": lambda x: gpu_milliseconds(x.forward, x.sync),
        "backward": lambda x: gpu_milliseconds(x.backward, x.sync, x.left_out),
        "forward_wall": lambda x: wall_milliseconds(x.forward, x.sync),
        "step_wall": lambda x: wall_milliseconds(x.step, x.sync),
    }
    spent: list[dict[str, list[float]]] = [{x: [] for x in measurements} for _ in implementations]
    orders = iter(clock.turns(len(implementations), REPEATS * len(measurements)))
    for _ in range(REPEATS):
        for name, measure in measurements.items():
            for which in next(orders):
                spent[which][name].append(measure(implementations[which]))
    return [Timed(**{name: statistics.median(times) for name, times in of.items()}) for of in spent]


def gpu_milliseconds(
    call: Callable[[], Any], sync: Callable[[Any], Any], left_out: str = ""
) -> float:
    """All kernels, copies and fills of a call; not those whose name has `left_out`."""
    import torch

    sync(call())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(CALLS):
            last = call()
        sync(last)
    on_device = torch.autograd.DeviceType.CUDA
    spent = [
        e.time_range.elapsed_us()
        for e in profile.events()
        if e.device_type == on_device and not (left_out and left_out in e.name)
    ]
    return sum(spent) / CALLS / 1e3


def wall_milliseconds(call: Callable[[], Any], sync: Callable[[Any], Any]) -> float:
    """Of a call among queued ones."""
    sync(call())
    begin = time.perf_counter()
    for _ in range(QUEUED):
        last = call()
    sync(last)
    return (time.perf_counter() - begin) / QUEUED * 1e3
