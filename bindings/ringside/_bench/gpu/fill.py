"""What blocks predict beside what kernels take: the ranks of a plan together over one rank.

On packs of documents of many lengths, where balanced pairs are blocks of which most is empty. All
ranks are on one GPU, so that links and idle ranks are not in it.
"""

from __future__ import annotations

import functools
import gc
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ringside import _core
from ringside._bench.gpu.cases import Line, Times, Workload, WrongResult
from ringside._bench.gpu.clock import Clock, timed

if TYPE_CHECKING:
    from ringside._bench.gpu.problem import SampledOperands

CASES = [
    Workload(pack, "causal", 8, 8, (128, 128)) for pack in ("log-normal x108", "man pages 128k")
]
CP_SIZES = (4, 8, 32)
COMMS = ("p2p", "all_gather", "fetch")


class Group(NamedTuple):
    """What takes turns with one rank."""

    case: Workload
    cp_size: int
    partition: str


def groups(quick: bool) -> list[Group]:
    """All partitions of the packs on several numbers of ranks."""
    sizes, chosen = (CP_SIZES[:1], CASES[:1]) if quick else (CP_SIZES, CASES)
    return [Group(case, n, x) for case in chosen for n in sizes for x in _core.PARTITIONS]


def line(name: str, work: str, family: str, counts: Counts, took: Times, one: Times) -> Line:
    """All ranks beside one rank, and what blocks predict of that."""
    numbers = {
        "fill": counts.fill,
        "blocks_over_one_rank": counts.blocks,
        "kernels_ms": took.kernels,
        "kernels_over_one_rank": took.kernels / one.kernels,
    }
    return Line("fill", name, work, family, numbers)


class Counts(NamedTuple):
    """Of a plan: pairs over the area of its blocks, and its blocks over one rank's."""

    fill: float
    blocks: float


def counts_of(case: Workload, cp_size: int, partition: str, comm: str) -> Counts:
    """From its cost.

    >>> counts_of(CASES[0], 8, "balanced", "fetch").blocks < 1.1
    True
    """
    cost, one = case.plan(cp_size, partition, comm).cost(), case.plan().cost()
    return Counts(float(cost.fill), float(cost.blocks.sum() / one.blocks.sum()))


@functools.lru_cache(maxsize=1)
def _operands(case: Workload) -> SampledOperands:
    return importlib.import_module("ringside._bench.gpu.problem").SampledOperands(case)


def run(clock: Clock, group: Group) -> Iterator[Line | str]:
    """Each transport, in turns with the plan of one rank."""
    from ringside._bench.gpu.runners import Ours

    case, cp_size, partition = group
    problem = _operands(case)
    for comm in COMMS:
        if comm == "fetch" and partition != "balanced":
            continue
        name = f"{case.pack}, cp {cp_size} {partition} {comm}"
        both = [Ours(problem, case.plan()), Ours(problem, case.plan(cp_size, partition, comm))]
        try:
            for runner in both:
                runner.check()
        except WrongResult as error:
            yield Line("fill", name, family=both[1].family, fault=str(error))
            continue
        one, all_ranks = timed(clock, both, most=2)
        counts = counts_of(case, cp_size, partition, comm)
        for work, took in all_ranks.items():
            yield line(name, work, both[1].family, counts, took, one[work])
        both.clear()  # whose memory the next ones want
        gc.collect()
        importlib.import_module("torch").cuda.empty_cache()
