"""What data/results measured of attention kernels, and what plans count there."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ringside as rs
from ringside import _core
from ringside._bench.gpu import ranks as bench_ranks
from ringside._bench.gpu.cases import PLAN_CASE, Workload
from ringside._time.fit import counted
from ringside.testing._problems import a2a_size

RESULTS = Path(__file__).resolve().parent.parent / "data" / "results"
SMS = 132


class Measured(NamedTuple):
    """A time of attention kernels.

    Attributes:
        name: of the row.
        cp_size: ranks.
        work: forward, backward or both.
        counts: [4] of a pass, as of fit.counted.
        us: of all of it.
    """

    name: str
    cp_size: int
    work: str
    counts: np.ndarray
    us: float


def rows(name: str) -> list[dict[str, str]]:
    """Of a file of data/results, without its first comment."""
    with (RESULTS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def plans() -> Iterator[Measured]:
    """All ranks of a plan on one GPU: each launch serves all ranks that hold the same heads.

    Measured when gathered rows lay one rank below the other; so they are counted.
    """
    for row in rows("bench_plans_nvidia_h200.csv"):
        if row["work"] not in ("forward", "backward"):
            continue
        _, ranks, partition, comm = row["case"].split(" ")
        counts = _of_plan(int(ranks), partition, comm)
        yield Measured(row["case"], int(ranks), row["work"], counts, 1e3 * float(row["kernels_ms"]))


@functools.cache
def _of_plan(cp_size: int, partition: str, comm: str) -> np.ndarray:
    group = a2a_size(comm, cp_size)
    cost = _core.estimate(
        _core.PackedLayout.from_lengths(PLAN_CASE.lengths),
        cp_size=cp_size,
        partition=partition,
        comm=comm,
        a2a_size=group,
        num_heads=PLAN_CASE.num_heads,
        num_kv_heads=PLAN_CASE.num_kv_heads,
        of_ranks=True,
    )
    counts = counted(cost, SMS)
    counts[3] = (cost.blocks.sum(axis=0) > 0).sum() * (cp_size if comm == "a2a" else group or 1)
    return counts


def one_gpu(family: str, head_dim: int) -> Iterator[Measured]:
    """Packs, windows, chunks and grouped heads on one GPU."""
    for row in rows("bench_gpu_nvidia_h200.csv"):
        if row["section"] == "attention" and row["family"] == family:
            yield from _of_workload(row, head_dim, "kernels_ms")


def _of_workload(row: dict[str, str], head_dim: int, column: str) -> Iterator[Measured]:
    form = r"d(\d+) h(\d+)(?:/(\d+))? (.*) ([a-z]+(?: [\d,]+)?)"
    found = re.fullmatch(form, row["case"])
    if found is None or row["work"] not in ("forward", "backward") or int(found[1]) != head_dim:
        return
    case = Workload(found[4], found[5], int(found[2]), int(found[3] or found[2]), (head_dim,) * 2)
    yield Measured(row["case"], 1, row["work"], of_case(case), 1e3 * float(row[column]))


def of_case(case: Workload) -> np.ndarray:
    """Counts of one rank."""
    return counted(_cost_of_one(case), SMS)


@functools.cache
def _cost_of_one(case: Workload) -> rs.PlanCost:
    return rs.estimate(
        rs.PackedLayout.from_lengths(case.lengths),
        mask=case.mask,
        cp_size=1,
        num_heads=case.num_heads,
        num_kv_heads=case.num_kv_heads,
    )


def hopper_alone() -> Iterator[Measured]:
    """Of the hopper family, forward and backward apart: all kernels of a call.

    Of the kernels that bench_cp measured, not of the newest: one model is to foretell both.
    """
    for row in rows("fa3_beside_cp_nvidia_h200.csv"):
        if row["family"] == "hopper":
            yield from _of_workload(row, 128, "gpu_ms")


class Call(NamedTuple):
    """A row of bench_cp and its plan."""

    row: dict[str, str]
    plan: dict[str, Any]  # arguments of rs.estimate

    @property
    def name(self) -> str:
        """Of the row."""
        words = ("pack", "heads", "partition", "comm", "exchange", "gpus")
        return " ".join(self.row[word] for word in words)

    def cost(self, **more: Any) -> rs.PlanCost:
        """What it counts."""
        return rs.estimate(**self.plan, **more)

    def one(self) -> dict[str, Any]:
        """The plan of one GPU with all rows."""
        return {**self.plan, "cp_size": 1, "partition": "contiguous", "comm": "p2p"}


def calls() -> Iterator[Call]:
    """Our own rows of bench_cp, both passes; but for those of kept keys, which no model counts."""
    for row in rows("bench_cp_nvidia_h200.csv"):
        comm, _, stages = row["comm"].removesuffix(")").partition(" (stages=")
        if comm not in rs.COMMS or "kept" in row["exchange"]:
            continue
        gpus, lengths = int(row["gpus"]), bench_ranks.PACKS[row["pack"]]
        heads, kv_heads = (int(x) for x in row["heads"].split("/"))
        plan = {
            "layout_q": rs.PackedLayout.from_lengths(lengths, pad_to_multiple_of=2 * gpus),
            **{"cp_size": gpus, "partition": row["partition"], "comm": comm},
            **({"a2a_size": 2} if comm == "a2a+p2p" else {}),
            **({"stages": int(stages)} if stages else {}),
            **{"num_heads": heads, "num_kv_heads": kv_heads},
        }
        yield Call({**row, "comm": comm}, plan)


def several_gpus() -> Iterator[Measured]:
    """Attention kernels of the busiest rank, both passes together."""
    for call in calls():
        cost = call.cost()
        busiest = int(cost.blocks.sum(axis=1).argmax())
        counts = counted(cost, SMS, slice(busiest, busiest + 1))
        us = 1e3 * float(call.row["attention_ms"])
        yield Measured(call.name, int(call.row["gpus"]), "both", counts, us)
