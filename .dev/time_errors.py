"""How far time models are off, in data/results/README.md: rows measured, figures others published.

Run: .venv/bin/python .dev/time_errors.py to rewrite it, --check to see whether it is in
step.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import marked
import numpy as np
import ringside as rs
import time_models
import time_rows
from ringside._time.fit import fitted
from time_rows import Call, Measured

BEGIN = "<!-- time models: written by .dev/time_errors.py -->"
END = "<!-- time models: end -->"
PUBLISHED = marked.ROOT / "data" / "published.csv"
RING = "ring-flash-attention "
PARTITIONS = {"ring": "contiguous", "zigzag": "zigzag", "stripe": "striped"}


class Errors(NamedTuple):
    """Of predictions over measurements, less 1, without sign."""

    median: float
    worst: float
    rows: int


def errors_of(predicted: Iterable[float], measured: Iterable[float]) -> Errors:
    """Of rows in the same order."""
    off = np.abs(np.array(list(predicted)) / np.array(list(measured)) - 1)
    return Errors(float(np.median(off)), float(off.max()), len(off))


def of_kernel(model: str, work: str, rows: Iterable[Measured]) -> Errors:
    """A preset's kernel of heads of 128 on measured rows of one pass."""
    rates = np.array(getattr(rs.TimeModel.preset(model).kernel(128, "bfloat16"), work))
    chosen = [row for row in rows if row.work == work]
    return errors_of((row.counts @ rates for row in chosen), (row.us for row in chosen))


def held_out(work: str = "forward") -> Errors:
    """Fitted on plans of 2 and 4 ranks, judged on those of 8."""
    rows = [row for row in time_rows.plans() if row.work == work]
    known = [row for row in rows if row.cp_size in (2, 4)]
    counts = np.array([row.counts for row in known])
    rates = fitted(counts, np.array([row.us for row in known]), time_models.POWER[work])
    unknown = [row for row in rows if row.cp_size == 8]
    return errors_of((row.counts @ np.array(rates) for row in unknown), (r.us for r in unknown))


def several_gpus() -> dict[tuple[str, str], Errors]:
    """Calls of both passes by transport and exchange, 2 and 4 GPUs together."""
    cells: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for call in time_rows.calls():
        measured = 1e3 * float(call.row["milliseconds"])
        cell = (call.row["comm"], call.row["exchange"])
        cells.setdefault(cell, []).append((_both_passes(call), measured))
    return {cell: errors_of(*zip(*pairs, strict=True)) for cell, pairs in cells.items()}


def _both_passes(call: Call) -> float:
    cost: Any = call.cost(model="h200" if call.row["exchange"] == "peer" else "h200-nccl")
    return cost.forward.total_us + cost.backward.total_us


class Figure(NamedTuple):
    """A published figure, and what the models say."""

    row: dict[str, str]
    predicted: float

    @property
    def span(self) -> tuple[float, float]:
        """What was published: from, to."""
        low, _, high = self.row["published"].partition("..")
        return float(low), float(high or low)

    @property
    def error(self) -> float:
        """How far the prediction lies outside."""
        low, high = self.span
        return max(low - self.predicted, 0.0) - max(self.predicted - high, 0.0)


def published() -> Iterator[Figure]:
    """All of data/published.csv."""
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield Figure(row, _predictor(row["name"])())


def _predictor(name: str) -> Callable[[], float]:
    if name.startswith(RING):
        way, passes = name.removeprefix(RING).split(" ")
        return lambda: ring_flash_attention(PARTITIONS[way], both=passes == "both")
    if name.startswith("torch context_parallel "):
        return lambda: torch_context_parallel(int(name.split(" ")[2].removesuffix("k")) * 1024)
    if name.startswith("TransformerEngine "):
        return transformer_engine_copy
    raise SystemExit(f"data/published.csv: {name}: no model predicts it; add one to {__file__}")


def ring_flash_attention(partition: str, *, both: bool) -> float:
    """Efficiency: eight times one GPU's time of 8k tokens, over eight GPUs' of 64k."""
    model, heads = "h800-ring-flash-attention", {"num_heads": 32, "num_kv_heads": 8}
    one: Any = rs.estimate(rs.PackedLayout([0, 8192]), cp_size=1, model=model, **heads)
    pack = rs.PackedLayout([0, 65536])
    eight: Any = rs.estimate(pack, cp_size=8, partition=partition, model=model, **heads)
    passes = ("forward", "backward") if both else ("forward",)
    alone, together = (sum(getattr(x, p).total_us for p in passes) for x in (one, eight))
    return float(8 * alone / together)


def torch_context_parallel(tokens: int) -> float:
    """Efficiency of four GPUs; one GPU's call does not wait for the host."""
    model, layout = rs.TimeModel.preset("h200-torch"), rs.PackedLayout([0, tokens])
    four: Any = rs.estimate(layout, cp_size=4, num_heads=16, model=model)
    one: Any = rs.estimate(layout, cp_size=1, num_heads=16, model=model)
    return float((one.forward.total_us - model.host_us_per_step) / 4 / four.forward.total_us)


def transformer_engine_copy() -> float:
    """Milliseconds of 16 documents of 4,096 rows of 16 heads of 64, read and written."""
    return float(time_models.h100_memory().us(2 * 16 * 4096 * 16 * 64 * 2)) / 1e3


def section() -> str:
    """Everything between the marks."""
    rows = [*time_rows.plans(), *time_rows.one_gpu("mma", 128)]
    lines = [
        BEGIN,
        "",
        "| model | rows | median error | worst |",
        "|---|---|---|---|",
        _line("`h200-mma`, fitted on cp 2 and 4, judged on cp 8, forward", held_out()),
        *(
            _line(f"`h200-mma`, all d128 rows, {work}", of_kernel("h200-mma", work, rows))
            for work in ("forward", "backward")
        ),
        *(
            _line(
                f"`h200{'' if exchange == 'peer' else '-nccl'}`, calls of both passes on 2 and 4 "
                f"GPUs, {comm}",
                found,
            )
            for (comm, exchange), found in several_gpus().items()
        ),
        "",
        "| published | on | figure | predicted |",
        "|---|---|---|---|",
        *(_figure(figure) for figure in published()),
        "",
        END,
    ]
    return "\n".join(lines)


def _line(name: str, found: Errors) -> str:
    return f"| {name} | {found.rows} | {100 * found.median:.1f} % | {100 * found.worst:.1f} % |"


def _figure(figure: Figure) -> str:
    row, digits = figure.row, 2 if figure.row["predicts"] == "efficiency" else 4
    unit = "" if row["predicts"] == "efficiency" else " ms"
    told = row["published"].replace("..", " to ")
    said = f"{figure.predicted:.{digits}f}{unit}"
    return f"| {row['name']} | {row['hardware']} | {told}{unit} | {said} |"


def main(arguments: list[str] | None = None) -> int:
    what = "the errors of time models are not those of data/results and data/published.csv"
    return marked.main(
        __doc__,
        what,
        lambda text: marked.replaced(text, BEGIN, END, section()),
        arguments,
        marked.MEASURED,
    )


if __name__ == "__main__":
    sys.exit(main())
