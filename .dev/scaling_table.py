"""Attention over several GPUs, in data/results/README.md, from what `ringside bench cp` measured.

Run: python3 .dev/scaling_table.py to rewrite it from data/results/bench_cp_*.csv, --check
to see whether it is in step (./dev style does). Standard library only.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import marked

BEGIN = "<!-- several GPUs: written by .dev/scaling_table.py -->"
END = "<!-- several GPUs: end -->"
PEER = "torch context_parallel"
Row = dict[str, str]


def best(rows: Iterable[Row]) -> Row | None:
    """The quickest of them, if there is one."""
    return min(rows, key=lambda row: float(row["milliseconds"]), default=None)


def cells_of(rows: list[Row]) -> Iterator[str]:
    """A line for each pack and heads: the quickest plan on each number of GPUs, PyTorch beside."""
    gpus = sorted({int(row["gpus"]) for row in rows})
    heads = ["pack", "heads", "one GPU, ms"]
    for count in gpus:
        heads += [f"{count} GPUs: quickest plan", "ms", "efficiency", "exposed", "PyTorch, ms"]
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    for pack, number in dict.fromkeys((row["pack"], row["heads"]) for row in rows):
        here = [row for row in rows if (row["pack"], row["heads"]) == (pack, number)]
        cells = [pack, number, span(float(row["one_gpu_milliseconds"]) for row in here)]
        for count in gpus:
            cells += quickest([row for row in here if int(row["gpus"]) == count])
        yield "| " + " | ".join(cells) + " |"


def span(numbers: Iterable[float]) -> str:
    """The least and the most, where these differ: one GPU is measured before each plan.

    >>> span([6.11, 6.13]), span([6.1, 6.6, 6.4])
    ('6.1', '6.1 to 6.6')
    """
    found = sorted(numbers)
    least, most = f"{found[0]:.1f}", f"{found[-1]:.1f}"
    return least if least == most else f"{least} to {most}"


def quickest(rows: list[Row]) -> list[str]:
    """Five cells: our quickest plan, and PyTorch's time."""
    ours = best(row for row in rows if row["partition"] != PEER)
    theirs = best(row for row in rows if row["partition"] == PEER)
    if ours is None:
        return ["", "", "", "", ""]
    return [
        f"{ours['partition']}, {ours['comm']}, {ours['exchange']}",
        f"{float(ours['milliseconds']):.2f}",
        f"{float(ours['efficiency']):.2f}",
        f"{100 * float(ours['exposed']):.0f} %",
        f"{float(theirs['milliseconds']):.2f}" if theirs else "",
    ]


def section(files: list[Path]) -> str:
    """Everything between the marks."""
    parts = []
    for file in files:
        with file.open(encoding="utf-8", newline="") as text:
            parts.append("\n".join(cells_of(list(csv.DictReader(text)))))
    return "\n\n".join([BEGIN, *parts, END])


def updated(text: str, files: list[Path]) -> str:
    """The document with the table of today."""
    return marked.replaced(text, BEGIN, END, section(files))


def main(arguments: list[str] | None = None) -> int:
    files = sorted((marked.ROOT / "data" / "results").glob("bench_cp_*.csv"))
    what = "the table of several GPUs is not that of data/results/bench_cp_*.csv"
    return marked.main(__doc__, what, lambda text: updated(text, files), arguments, marked.MEASURED)


if __name__ == "__main__":
    sys.exit(main())
