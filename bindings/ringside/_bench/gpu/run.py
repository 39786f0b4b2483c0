"""`ringside bench gpu`: attention on one GPU beside FlashAttention 2, plans beside one rank.

Nothing is timed before it is checked against float64; a wrong result is a fault, not a number.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringside import _core
from ringside._arrays import cuda as _cuda
from ringside._bench import cpu as _bench
from ringside._bench.gpu import cases, fa3, fill
from ringside._bench.gpu.cases import SECTIONS, Line, Times, Workload, WrongResult
from ringside._bench.gpu.clock import Clock, timed
from ringside._bench.gpu.readings import Readings

if TYPE_CHECKING:
    from ringside._bench.gpu.problem import SampledOperands
    from ringside._bench.gpu.runners import Runner

REPEATS, QUICK_REPEATS = 15, 5
PEERS = ("fa3",)
ROWS = "ringside._bench.gpu.rows"
_CAPTION = (
    "Random normal data; rows of sampled documents and heads checked against float64 first, "
    "forward and backward. Medians of {repeats}, taking turns, caches filled with other data in "
    "between. TFLOP/s of visible pairs: 2 (d_qk + d_v) a pair forward, 2.5 times that backward. "
    "call: what a caller waits for, ringside.torch.varlen_attention or torch.autograd.grad with a "
    "plan built before, by CUDA events, the host's time, all moves and conversions included. FA2: "
    "the time of torch.nn.attention.varlen.varlen_attn over ours. kernels, which explain the "
    "calls: the attention kernels alone, by the profiler; delta and conversions are among "
    "FlashAttention 2's and not among ours."
)


def repeats(quick: bool) -> int:
    """Of which the median counts."""
    return QUICK_REPEATS if quick else REPEATS


def caption(quick: bool) -> str:
    """What the numbers are."""
    return _CAPTION.format(repeats=repeats(quick))


@dataclass(frozen=True)
class Task:
    """A part of the benchmark: what it yields are lines, and notes (text)."""

    name: str
    run: Callable[[], Iterator[Line | str]]


def check_sections(sections: Sequence[str]) -> tuple[str, ...]:
    """The sections asked for, in order; all if there are none.

    Raises:
        ValueError: an unknown name.
    """
    for name in sections:
        if name not in SECTIONS:
            raise ValueError(f"--section {name}; expected one of {', '.join(SECTIONS)}")
    return tuple(name for name in SECTIONS if not sections or name in sections)


def check_peer(peer: str) -> str:
    """The peer asked for, if any.

    Raises:
        ValueError: an unknown name.
        Unsupported: it is not installed.
    """
    if peer not in ("", *PEERS):
        raise ValueError(f"--peer {peer}; expected {', '.join(PEERS)}, or nothing")
    if peer:
        fa3.require()
    return peer


def tasks(sections: Sequence[str] = (), *, quick: bool = False, peer: str = "") -> list[Task]:
    """What to run, in order.

    Args:
        sections: of SECTIONS; all by default, and none by default where a peer is named.
        quick: a few cases.
        peer: of PEERS: also its cases.

    Raises:
        ValueError: an unknown section or peer.
        Unsupported: no GPU, no CUDA in this build, no torch, or no peer.
    """
    chosen = check_sections(sections) if sections or not peer else ()
    _require_gpu()
    check_peer(peer)
    runners = importlib.import_module("ringside._bench.gpu.runners")
    clock = Clock(repeats(quick))
    attention, made = Attention(clock), []
    for case in fa3.the_cases()[: 2 if quick else None] if peer else ():
        made.append(Task(f"{case}, beside FlashAttention 3", functools.partial(fa3.run, case)))
    for case in fa3.cases_alone() if peer and not quick else ():
        made.append(Task(str(case), functools.partial(fa3.run_alone, case)))
    for case in fa3.the_cases() if peer and not quick else ():
        made.append(Task(f"{case}, deterministic", functools.partial(fa3.run_deterministic, case)))
    for case in cases.attention_cases(quick) if "attention" in chosen else ():
        for family in runners.families(case.dtype):
            made.append(Task(str(case), functools.partial(attention.run, case, family)))
    if "attention" in chosen:
        made.append(Task("families", attention.others))
    for group in cases.plan_groups(quick) if "plans" in chosen else ():
        for family in runners.families(cases.PLAN_CASE.dtype):
            name = f"cp {group[0]} {group[1]}"
            made.append(Task(name, functools.partial(plans, clock, group, family)))
    if "rows" in chosen and ("rows" in sections or not quick):
        made.append(Task("rows and metadata", rows))
    if "lengths" in chosen and ("lengths" in sections or not quick):
        made.append(Task("lengths on the device", lengths))
        for case, room in cases.length_cases():
            run = functools.partial(Attention(clock).run, case, None, room=room)
            made.append(Task(f"{case}, lengths on the device", run))
    if "syncs" in chosen:
        comms = ("p2p",) if quick else _core.COMMS
        made += [Task(f"syncs {comm}", functools.partial(syncs, comm)) for comm in comms]
    for group in fill.groups(quick) if "fill" in sections else ():  # which takes minutes
        few = Clock(QUICK_REPEATS)
        name = f"{group.case.pack}, cp {group.cp_size} {group.partition}"
        made.append(Task(name, functools.partial(fill.run, few, group)))
    return made


def _require_gpu() -> None:
    _cuda.require_cuda()
    nearest = "Nearest supported: ringside bench cpu"
    if importlib.util.find_spec("torch") is None:
        raise _core.Unsupported(f"ringside bench gpu without torch; install it. {nearest}")
    if not importlib.import_module("torch").cuda.is_available():
        raise _core.Unsupported(f"ringside bench gpu with a torch that sees no GPU. {nearest}")


@functools.lru_cache(maxsize=1)
def _problem(case: Workload) -> SampledOperands:
    return importlib.import_module("ringside._bench.gpu.problem").SampledOperands(case)


def _fault_of(runner: Runner) -> str:
    """What float64 has against it; nothing if all is well."""
    try:
        runner.check()
    except WrongResult as error:
        return str(error)
    return ""


class Attention:
    """One case after another; remembers causal times for the masks measured against them."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.causal: dict[Any, Times] = {}
        self.ran: set[str] = set()

    def run(
        self, case: Workload, family: str | None, *, room: int | None = None
    ) -> Iterator[Line | str]:
        """Our lines, and a note where FlashAttention 2 cannot do it.

        Args:
            case: what to run.
            family: whose kernels, if that may be chosen.
            room: sequences for which a plan has room that learns the lengths on the device; such
                lines are of the section "lengths".
        """
        for line in self._lines(case, family, room):
            if room is None or isinstance(line, str):
                yield line
            else:
                yield dataclasses.replace(
                    line, section="lengths", numbers={"sequences": room, **line.numbers}
                )

    def _lines(self, case: Workload, family: str | None, room: int | None) -> Iterator[Line | str]:
        from ringside._bench.gpu.runners import FlashAttention2, Ours

        problem = _problem(case)
        try:
            ours = Ours(problem, case.plan() if room is None else room, family)
        except _core.Unsupported as error:
            yield f"{case}: {error}"
            return
        self.ran.add(ours.family)
        if fault := _fault_of(ours):
            yield Line("attention", str(case), family=ours.family, fault=fault)
            return
        runners: list[Runner] = [ours]
        try:
            peer = FlashAttention2(problem)
            if fault := _fault_of(peer):
                raise LookupError(f"its {fault}")
            runners.append(peer)
        except LookupError as error:
            yield f"{case}: no FlashAttention 2, {error}"
        mine, *others = timed(self.clock, runners)
        for work, times in mine.items():
            peers = others[0].get(work.removesuffix(", deterministic")) if others else None
            yield cases.attention_line(
                case,
                work,
                ours.family,
                times,
                peer=peers,
                causal=self._causal(case, work, ours.family, times),
            )

    def others(self) -> Iterator[Line | str]:
        """Notes: kernel families that no case ran."""
        for name in _cuda.cuda_core().KERNEL_FAMILIES:
            if name not in self.ran:
                yield f"kernels of {name}: no case ran them"

    def _causal(self, case: Workload, work: str, family: str, times: Times) -> Times | None:
        """Times with the causal mask, for windows and chunks."""
        key = (dataclasses.replace(case, mask_name="causal"), work, family)
        if case.mask_name == "causal":
            self.causal[key] = times
        return None if case.mask_name in ("causal", "full") else self.causal.get(key)


def plans(
    clock: Clock, group: tuple[int, str, tuple[str, ...]], family: str | None
) -> Iterator[Line | str]:
    """All transports of a partition, in turns with the plan of one rank; one backward pass."""
    from ringside._bench.gpu.runners import Ours

    cp_size, partition, comms = group
    case = cases.PLAN_CASE
    problem = _problem(case)
    runners = {"one rank": Ours(problem, case.plan(), family)}
    for comm in comms:
        runners[comm] = Ours(problem, case.plan(cp_size, partition, comm), family)
    ran = runners["one rank"].family
    names = {comm: f"cp {cp_size} {partition} {comm}" for comm in comms}
    for comm, runner in list(runners.items()):
        if fault := _fault_of(runner):
            yield Line("plans", names.get(comm, comm), family=ran, fault=fault)
            del runners[comm]
    if "one rank" not in runners:
        return
    one_rank, *others = timed(clock, list(runners.values()), most=2)
    for comm, times in zip(list(runners)[1:], others, strict=True):
        for work, taken in times.items():
            yield cases.plan_line(names[comm], work, ran, taken, one_rank[work])


def rows() -> Iterator[Line | str]:
    """The peers' primitives, where this build has them as kernels."""
    if importlib.util.find_spec(ROWS) is None:
        yield f"rows and metadata: left out, {ROWS} is not in this build"
        return
    for row in importlib.import_module(ROWS).rows():
        yield cases.row_line(dict(row) if isinstance(row, dict) else dataclasses.asdict(row))


def lengths() -> Iterator[Line | str]:
    """Plans that learn their lengths on the device."""
    for numbers in importlib.import_module("ringside._bench.gpu.lengths").rows():
        yield Line("lengths", numbers.pop("case"), numbers=numbers)


def syncs(comm: str) -> Iterator[Line | str]:
    """Whether forward and backward of a plan wait for nothing on the host."""
    from ringside._bench.gpu.problem import SampledOperands
    from ringside._bench.gpu.runners import Ours

    ours = Ours(SampledOperands(cases.SYNC_CASE), cases.SYNC_CASE.plan(4, "zigzag", comm))
    fault = _fault_of(ours)
    try:
        fault = fault or _sync_of(ours)
    except RuntimeError as error:  # torch's check, or the capture
        fault = str(error).splitlines()[0]
    work = "forward and backward, captured" if not fault else ""
    yield Line("syncs", f"cp 4 zigzag {comm}", work, ours.family, fault=fault)


def _sync_of(ours: Runner) -> str:
    """Runs under torch's check, then into a graph, in which nothing may wait either.

    The graph is replayed on other data and must give the bits of an ordinary call.
    """
    import torch

    work = "backward, deterministic"
    ours.kept.clear()  # its graph remembers another stream than the captured one
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        ours.results(work)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = ours.results(work)
    with torch.no_grad():
        for x in (*ours.problem.leaves, ours.problem.dout):
            x.normal_()
    graph.replay()
    again = ours.results(work)
    different = [name for name in again if not torch.equal(captured[name], again[name])]
    return f"{', '.join(different)} of the replayed graph differ" if different else ""


def run_with_readings(task: Task, readings: Readings) -> Iterator[Line | str]:
    """What a task yields, lines with what the GPU's clocks and power were since it began."""
    since = time.monotonic()
    for made in task.run():
        if isinstance(made, str):
            yield made
        else:
            yield dataclasses.replace(made, readings=readings.medians(since))


def the_gpu() -> str:
    """The current one, as nvidia-smi names it."""
    import torch

    device = torch.cuda.current_device()
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return str(device) if uuid is None else f"GPU-{uuid}"


def machine() -> dict[str, Any]:
    """Where, when and of what the numbers were taken."""
    import torch

    def output_of(*command: str) -> str:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        return run.stdout.strip()

    here = str(Path(__file__).parent)
    query = ("--query-gpu=driver_version", "--format=csv,noheader", f"--id={the_gpu()}")
    commit = os.environ.get("RINGSIDE_COMMIT")
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": output_of("nvidia-smi", *query),
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "ringside": _core.__version__,
        "commit": commit or output_of("git", "-C", here, "rev-parse", "HEAD") or "unknown",
        "kernel_families": " ".join(_cuda.cuda_core().KERNEL_FAMILIES),
        "system": _bench.machine()["system"],
        "date": _bench.machine()["date"],
    }


def file_name(gpu: str, peer: str = "") -> str:
    """Of the results of one kind of GPU.

    >>> file_name("NVIDIA H200"), file_name("NVIDIA H200", "fa3")
    ('bench_gpu_nvidia_h200.csv', 'bench_fa3_nvidia_h200.csv')
    """
    return f"bench_{peer or 'gpu'}_{''.join(c if c.isalnum() else '_' for c in gpu.lower())}.csv"
