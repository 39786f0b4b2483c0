"""`ringside bench cp`: forward and backward over several GPUs beside one of them.

A process a GPU runs this file; that of rank 0 prints. Nothing is timed before it is compared with
what one GPU computes: a wrong result is a fault, not a number. PyTorch's context_parallel takes its
turn where a pack is one sequence, and the links are measured beside.
"""

from __future__ import annotations

import contextlib
import csv
import math
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ringside as rs
from ringside._arrays import cuda as _cuda
from ringside._bench.gpu import links, timelines, torch_ranks
from ringside._bench.gpu.busy import Busy, busy_of
from ringside._bench.gpu.cases import long_tail
from ringside._bench.gpu.shards import ALLOWED, DIM, Data, Shards
from ringside._bench.gpu.traffic import Traffic, traffic_of
from ringside._group import launcher

PACKS = {
    "16k": [16_384],
    "64k": [65_536],
    "16 x 4k": [4_096] * 16,
    "long tail": long_tail(131_072, 84, 32_000),
}
HEADS = ((16, 16), (32, 8))
KEPT = ("p2p", "fetch")  # over peer copies, measured with keep_kv too
REPEATS, QUICK_REPEATS = 5, 3
QUEUED = 3  # calls one behind the other in each repeat, as in a model: the host is ahead


class Way(NamedTuple):
    """Of splitting a pack: a partition and a transport, of fetch in how many exchanges at most."""

    partition: str
    comm: str
    stages: int | None = None

    @property
    def name(self) -> str:
        """Of the transport.

        >>> Way("balanced", "fetch", 1).name, Way("zigzag", "p2p").name
        ('fetch (stages=1)', 'p2p')
        """
        return self.comm if self.stages is None else f"{self.comm} (stages={self.stages})"


PLANS = (
    Way("zigzag", "p2p"),
    Way("zigzag", "all_gather"),
    Way("zigzag", "a2a"),
    Way("balanced", "fetch"),
    Way("balanced", "fetch", stages=1),
)
MORE_PLANS = (  # of as many key heads as heads, and unless it is to be quick
    Way("zigzag", "fetch"),
    Way("zigzag", "a2a+p2p"),
    Way("balanced", "p2p"),
    Way("balanced", "all_gather"),
    Way("whole_pack_zigzag", "all_gather"),
)


class Line(NamedTuple):
    """A result; milliseconds of a call are the maximum over ranks, the median of repeats.

    Attributes:
        milliseconds: of both passes, calls queued one behind the other.
        one_gpu_milliseconds: of one GPU with all rows, measured before each plan: as warm.
        efficiency: one_gpu_milliseconds over milliseconds times gpus.
        attention_ms: of the attention kernels of the busiest rank.
        imbalance: of the busiest rank's attention kernels over the mean rank's.
        attention_total: of all ranks' attention kernels together, over one GPU's.
        exposed: share of the time in which the busiest rank runs no kernel of its own.
        multiprocessors: that NCCL's kernels take from a rank's tiles.
        received_mib: see Traffic, as the two behind it.
    """

    pack: str
    heads: str
    partition: str
    comm: str
    exchange: str
    gpus: int
    milliseconds: float
    one_gpu_milliseconds: float
    efficiency: float
    tflops_per_gpu: float
    attention_ms: float
    imbalance: float
    attention_total: float
    exposed: float
    multiprocessors: int = 0
    received_mib: float = math.nan
    over_needed: float = math.nan
    memory_mib: float = math.nan


def plans_of(heads: tuple[int, int], gpus: int, quick: bool) -> list[Way]:
    """What is measured: a2a+p2p is a2a where GPUs make no two pairs, and two fetch in one stage."""
    more = () if quick or heads[0] != heads[1] else MORE_PLANS

    def differs(way: Way) -> bool:
        return (way.comm != "a2a+p2p" or gpus % 4 == 0) and (way.stages is None or gpus > 2)

    return [way for way in (*PLANS, *more) if differs(way)]


def ways_of(exchanges: Sequence[str], comm: str) -> Iterator[tuple[str, bool, str]]:
    """(exchange, keep_kv, its name in results) of what is measured for a transport."""
    for exchange in exchanges:
        yield exchange, False, exchange
        if exchange == "peer" and comm in KEPT:
            yield exchange, True, "peer (kept)"


def milliseconds(run: Callable[[], Any], repeats: int) -> list[float]:
    """Of each repeat, by events on the current stream, behind a call that puts the host ahead."""
    import torch

    run()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        run()
        begin.record()
        for _ in range(QUEUED):
            run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / QUEUED)
    return times


def slowest(group: rs.Group, times: list[float]) -> float:
    """The median over repeats of the maximum over ranks."""
    told = [x for _, x in group._tell_all(times)]
    return statistics.median(map(max, zip(*told, strict=True)))


def pairs_of(lengths: Sequence[int]) -> int:
    """Visible to a causal mask.

    >>> pairs_of([2, 1])
    4
    """
    return sum(n * (n + 1) // 2 for n in lengths)


class Cell(NamedTuple):
    """What is measured: a pack and heads, on one GPU and in shards."""

    pack: str
    lengths: Sequence[int]
    heads: tuple[int, int]
    data: Data
    repeats: int
    one: float = math.nan  # milliseconds
    one_attention: float = math.nan  # of its attention kernels

    def timed(self, group: rs.Group) -> Cell:
        """With the times of one GPU alone, for which the others wait."""
        alone, attention = [0.0] * self.repeats, 0.0
        if group.rank == 0:
            alone = milliseconds(self.data.on_one, self.repeats)
            attention = busy_of(self.data.on_one).attention
        one, (_, first), *_ = slowest(group, alone), *group._tell_all(attention)
        return self._replace(one=one, one_attention=first)

    def line(
        self,
        group: rs.Group,
        names: tuple[str, str, str],
        took: float,
        busy: Sequence[Busy],
        traffic: Traffic,
    ) -> Line:
        """From the time of a call, what each rank's GPU was busy with, and what the plan counts."""
        work = 7 * 2 * DIM * pairs_of(self.lengths) * self.heads[0] / 1e9  # of both passes
        attention = [x.attention for x in busy]
        total = sum(attention)
        figures = (
            *(round(took, 4), round(self.one, 4)),
            *(round(self.one / took / group.size, 4), round(work / took / group.size, 1)),
            *(round(max(attention), 4), round(max(attention) * group.size / total, 3)),
            round(total / self.one_attention, 3),
            round(max(0.0, 1 - max(x.kernels for x in busy) / took), 3),
            max(x.multiprocessors for x in busy),
        )
        heads = "/".join(map(str, self.heads))
        return Line(self.pack, heads, *names, group.size, *figures, *traffic)


def cells(group: rs.Group, device: int, packs: Sequence[str], quick: bool) -> Iterator[Cell]:
    """Packs by heads."""
    for name in packs:
        lengths = PACKS[name]
        layout = rs.PackedLayout.from_lengths(lengths, pad_to_multiple_of=2 * group.size)
        for heads in HEADS[:1] if quick else HEADS:
            data = Data(layout, heads, device)
            yield Cell(name, lengths, heads, data, QUICK_REPEATS if quick else REPEATS)


def lines(
    group: rs.Group,
    device: int,
    exchanges: Sequence[str],
    packs: Sequence[str],
    quick: bool,
    traces: Path | None = None,
) -> Iterator[Any]:
    """Lines, and faults as text; every process yields the same ones."""
    for untimed in cells(group, device, packs, quick):
        want = untimed.data.on_one()
        for way in plans_of(untimed.heads, group.size, quick):
            cell = untimed.timed(group)
            plan = rs.plan(
                cell.data.one.layout_q,
                cp_size=group.size,
                partition=way.partition,
                comm=way.comm,
                a2a_size=2 if way.comm == "a2a+p2p" else None,
                stages=way.stages,
                num_heads=cell.heads[0],
                num_kv_heads=cell.heads[1],
            )
            for exchange, keep_kv, name in ways_of(exchanges, way.comm):
                shards = Shards(plan, group, cell.data, exchange, keep_kv)
                faults = [(r, x) for r, x in group._tell_all(shards.fault(want)) if x]
                if faults:
                    yield f"{cell.pack}, {way.partition} over {way.name}, {name}: rank {faults[0]}"
                    continue
                took = slowest(group, milliseconds(shards.run, cell.repeats))
                busy = [x for _, x in group._tell_all(busy_of(shards.run))]
                names = (way.partition, way.name, name)
                if traces is not None:
                    _trace(group, cell, names, shards, traces)
                traffic = traffic_of(plan, keep_kv=keep_kv, head_dim=DIM)
                yield cell.line(group, names, took, [Busy(*x) for x in busy], traffic)
        if len(cell.lengths) == 1 and cell.heads[0] == cell.heads[1] and "nccl" in exchanges:
            yield from torch_lines(group, cell, want)


def _trace(
    group: rs.Group, cell: Cell, names: tuple[str, str, str], shards: Shards, folder: Path
) -> None:
    """What each rank did in a call, for Perfetto."""
    timeline = timelines.measured(shards.plan, group, shards.run)
    if group.rank == 0:
        words = (cell.pack, "x".join(map(str, cell.heads)), *names, group.size)
        name = re.sub(r"\W+", "_", " ".join(map(str, words)).replace(")", ""))
        timeline.save(folder / f"{name}.json")


def torch_lines(group: rs.Group, cell: Cell, want: Any) -> Iterator[Any]:
    """PyTorch's context_parallel on the same arrays; what it cannot do is said, and no fault."""
    data = cell.data
    for rotation in torch_ranks.ROTATIONS:
        with contextlib.ExitStack() as opened:
            try:
                arrays = (data.q, data.k, data.v, data.dout)
                peer = opened.enter_context(torch_ranks.Peer(group, arrays, rotation))
                problem = peer.fault(want, ALLOWED)
            except Exception as error:  # of whatever version of PyTorch there is
                problem = f"{type(error).__name__}: {error}"
            told = [x for _, x in group._tell_all(problem)]
            if any(told):
                yield Absent(f"{cell.pack}: torch context_parallel, {rotation}: {max(told)}")
                continue
            took = slowest(group, milliseconds(peer.run, cell.repeats))
            busy = [Busy(*x) for _, x in group._tell_all(busy_of(peer.run))]
            names = ("torch context_parallel", rotation, "nccl")
            yield cell.line(group, names, took, busy, Traffic())


class Absent(str):
    """What could not be measured, in words."""

    __slots__ = ()


def start(
    sizes: Sequence[int],
    *,
    quick: bool,
    path: Path | None,
    traces: Path | None = None,
    packs: Sequence[str] = tuple(PACKS),
) -> int:
    """Runs so many processes after each other; the exit code of the first that failed, else 0.

    Args:
        sizes: numbers of GPUs.
        quick: fewer heads and repeats.
        path: of the CSV file of all results; that of the links lies beside it.
        traces: a folder, for a timeline of a call of each plan.
        packs: names of PACKS.
    """
    _cuda.require_cuda()
    if traces is not None:
        traces.mkdir(parents=True, exist_ok=True)
    worst, found = 0, [list(Line._fields)]
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            part = Path(folder) / f"{size}.csv"
            command = [sys.executable, "-m", "ringside._bench.gpu.ranks", str(size)]
            command += ["quick" if quick else "all", ",".join(packs), str(part)]
            command += [] if traces is None else [str(traces)]
            worst = worst or launcher.run(command, size)
            if part.exists():
                with part.open(newline="") as file:
                    found += list(csv.reader(file))[1:]
    if path is not None:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(found)
    return worst


def main(
    gpus: int,
    quick: bool,
    packs: Sequence[str] = tuple(PACKS),
    path: Path | None = None,
    traces: Path | None = None,
) -> int:
    """In each process of a group."""
    import torch

    exit_code = 0
    with rs.init() as group:
        device = int(os.environ.get("RINGSIDE_LOCAL_RANK", group.rank)) % torch.cuda.device_count()
        torch.cuda.set_device(device)
        exchanges = ("peer", "nccl") if torch.cuda.device_count() >= gpus > 1 else ("auto",)
        found = []
        for line in lines(group, device, exchanges, packs, quick, traces):
            if group.rank == 0:
                text = line if isinstance(line, str) else "  ".join(f"{x!s:>10}" for x in line)
                print(text, flush=True)
            if isinstance(line, Line):
                found.append(line)
            elif not isinstance(line, Absent):
                exit_code = 1
        if "nccl" in exchanges:
            for text in links.lines(group, device):
                if group.rank == 0:
                    print(text, flush=True)
        if group.rank == 0 and path is not None:
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([Line._fields, *found])
    return exit_code


if __name__ == "__main__":
    gpus_asked, quick_asked, packs_asked, *rest = sys.argv[1:]
    asked = (int(gpus_asked), quick_asked == "quick", packs_asked.split(","))
    raise SystemExit(main(*asked, *map(Path, rest)))
