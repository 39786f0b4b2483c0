"""A time model from measurements of a machine: which ones, and what they make. No torch here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from ringside import _core
from ringside._plan.estimate import estimate
from ringside._time.fit import counted, fitted
from ringside._time.model import EXCHANGES, Kernel, Links, Memory, Rates, Table, TimeModel

BLOCK = (128, 128)
MIB = 2**20
SIZES = (MIB // 16, MIB // 4, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
FEWEST = 5  # packs, for the four rates of a pass
SUM_BYTES = 3.0  # of a float32 that arrives: it and the sum are read, the sum is written
# What tells the four rates apart: whole blocks, the diagonal's, short visits, launches.
PACKS: tuple[tuple[str, tuple[int, ...], _core.Mask], ...] = (
    ("8k x2 causal", (8192,) * 2, _core.Mask.causal()),
    ("128 x64 causal", (128,) * 64, _core.Mask.causal()),
    ("256 x1 causal", (256,), _core.Mask.causal()),
    ("8k x1 full", (8192,), _core.Mask.full()),
    ("16k x1, window 256", (16384,), _core.Mask.sliding_window(256, 0)),
    ("512 x32 causal", (512,) * 32, _core.Mask.causal()),
    ("1k x4 full", (1024,) * 4, _core.Mask.full()),
    ("2k x8 causal", (2048,) * 8, _core.Mask.causal()),
)


class Asked(NamedTuple):
    """What to calibrate: kernels of one dtype and head size, and one kind of exchange."""

    dtype: str
    head_dim: int
    num_heads: int
    exchange: str  # "peer" or "nccl"


class Machine(Protocol):
    """What measures. Every rank of a group calls the same methods in the same order."""

    name: str
    multiprocessors: int
    gpus: int

    def attention_us(
        self, lengths: Sequence[int], mask: _core.Mask, asked: Asked
    ) -> tuple[float, float]:
        """Of the kernels of a forward and of a backward pass of one GPU."""

    def exchange_us(self, kind: str, size: int, exchange: str) -> float:
        """Of a GPU that receives so many bytes."""

    def copy_gb_per_s(self) -> float:
        """Read and written, of a copy in memory."""


@dataclass
class Budget:
    """Seconds that there are."""

    seconds: float
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        """From here on."""
        self.begun = self.now()

    def share(self, part: float) -> bool:
        """Whether less than so much of it is spent."""
        return self.now() - self.begun < part * self.seconds


def calibrated(machine: Machine, asked: Asked, budget: Budget, day: str) -> TimeModel:
    """The model of a machine; most of the time goes to its kernels."""
    source = f"ringside calibrate on {machine.gpus} x {machine.name}, {day}"
    uses_nccl = asked.exchange == "nccl" and machine.gpus > 1
    waits = "; NCCL's kernels begin when a launch of tiles ends, which has all multiprocessors"
    return TimeModel(
        name=f"{machine.name.lower().replace(' ', '-')}-{asked.exchange}",
        source=source + (waits if uses_nccl else ""),
        multiprocessors=machine.multiprocessors,
        kernels=(kernel(machine, asked, budget, source),),
        links=(links(machine, asked, budget, source),),
        exchange_multiprocessors=0,
        overlap=not uses_nccl,
        memory=Memory(
            round(machine.copy_gb_per_s(), 1),
            per_byte_added=SUM_BYTES,
            source=f"{source}: a copy; sums are taken to read twice and to write once",
        ),
        host_us_per_step=0.0,
    )


def kernel(machine: Machine, asked: Asked, budget: Budget, source: str) -> Kernel:
    """Fitted to packs until 0.6 of the time is over."""
    counts, us = [], []
    for i, (_, lengths, mask) in enumerate(PACKS):
        if i >= FEWEST and not budget.share(0.6):
            break
        counts.append(counts_of(lengths, mask, asked.num_heads, machine.multiprocessors))
        us.append(machine.attention_us(lengths, mask, asked))
    forward, backward = (
        Rates(*(round(rate, 4) for rate in fitted(np.array(counts), np.array(times))))
        for times in zip(*us, strict=True)
    )
    dims = (asked.head_dim, asked.head_dim)
    told = f"{source}: {len(us)} packs of {asked.num_heads} heads"
    return Kernel(asked.dtype, *dims, BLOCK, forward, backward, told)


def counts_of(
    lengths: Sequence[int], mask: _core.Mask, num_heads: int, multiprocessors: int
) -> np.ndarray:
    """[4] of a pack on one GPU."""
    layout = _core.PackedLayout.from_lengths(list(lengths))
    cost = estimate(layout, mask=mask, cp_size=1, num_heads=num_heads)
    return counted(cost, multiprocessors)


def links(machine: Machine, asked: Asked, budget: Budget, source: str) -> Links:
    """A table for each kind of exchange; fewer sizes where the time is over."""
    if machine.gpus == 1:
        return Links(1, {}, f"{source}: one GPU exchanges nothing")
    tables = {}
    for kind in EXCHANGES:
        points = list(_points(machine, kind, asked.exchange, budget))
        tables[kind] = rising(points)
    return Links(machine.gpus, tables, f"{source}: {asked.exchange}")


def _points(
    machine: Machine, kind: str, exchange: str, budget: Budget
) -> Iterator[tuple[float, float]]:
    for size in SIZES[::-1] if budget.share(0.9) else (SIZES[-1], SIZES[0]):
        yield float(size), machine.exchange_us(kind, size, exchange)


def rising(points: Iterable[tuple[float, float]]) -> Table:
    """A table of what was measured. Of one size the median counts.

    A message that took longer than a larger one waited for something else: it is left out.

    >>> rising([(8, 4.0), (1, 9.0), (2, 3.0), (8, 5.0), (8, 4.5)])
    Table(bytes=(2.0, 8.0), us=(3.0, 4.5))
    """
    of_size: dict[float, list[float]] = {}
    for size, us in points:
        of_size.setdefault(float(size), []).append(float(us))
    kept: list[tuple[float, float]] = []
    for size in sorted(of_size, reverse=True):
        us = statistics.median(of_size[size])
        if not kept or us < kept[-1][1]:
            kept.append((size, round(us, 3)))
    sizes, times = zip(*reversed(kept), strict=True)
    return Table(sizes, times)
