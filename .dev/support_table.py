"""What runs on a GPU, in data/results/README.md, from what ./dev gpu-test saw (gpu_*.json there).

Run: python3 .dev/support_table.py to rewrite it (./dev gpu-test does), --check to see
whether it is in step (./dev style does). Standard library only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import marked

BEGIN = "<!-- gpu support: written by .dev/support_table.py -->"
END = "<!-- gpu support: end -->"
COMMS = ("p2p", "all_gather", "a2a", "a2a+p2p", "fetch")
PARTITIONS = (
    *("contiguous", "zigzag", "striped", "whole_pack", "whole_pack_zigzag", "balanced"),
    "custom",
)
DTYPES = ("float32", "float16", "bfloat16")


class Cell(NamedTuple):
    """One kernel family, type of arrays and transport."""

    cases: int
    worst: float
    untested: tuple[str, ...]

    def __str__(self) -> str:
        if not self.cases:
            return "untested"
        missing = f", not {', '.join(self.untested)}" if self.untested else ""
        return f"{self.cases} ({self.worst:.2f}){missing}"


def cell_of(results: dict[str, Any], family: str, dtype: str, comm: str) -> Cell:
    names = {p: f"{family} {dtype} {p} {comm}" for p in PARTITIONS}
    cases = {p: results["cases"].get(name, 0) for p, name in names.items()}
    errors = results["worst_error_over_tolerance"]
    worst = [e for cell, e in errors.items() if cell.rsplit(" ", 1)[0] in names.values()]
    untested = tuple(p for p, count in cases.items() if not count)
    return Cell(sum(cases.values()), max(worst, default=0.0), untested)


def table_of(results: dict[str, Any]) -> Iterable[str]:
    """Lines of Markdown for one GPU."""
    tests = results["tests"]
    clean = all("SUMMARY: 0 " in part for part in results["sanitizers"].split("; ") if part)
    sanitizers = "compute-sanitizer found nothing" if clean else results["sanitizers"].strip("; ")
    sanitizers = sanitizers if results["sanitizers"] else "compute-sanitizer did not run"
    yield (
        f"{results['gpu']}, driver {results['driver']}, commit {results['commit'][:7]}: "
        f"{tests['passed']} tests passed, {tests['failed']} failed; {sanitizers}. Cases compared "
        "with the CPU over all partitions and, in brackets, the largest error as a part of what "
        "rounding explains:"
    )
    yield ""
    yield "| arrays | kernels | " + " | ".join(COMMS) + " |"
    yield "|---" * (2 + len(COMMS)) + "|"
    for dtype in DTYPES:
        for family in results["kernel_families"]:
            cells = [cell_of(results, family, dtype, comm) for comm in COMMS]
            if any(cell.cases for cell in cells):
                yield f"| {dtype} | {family} | " + " | ".join(map(str, cells)) + " |"


def section(files: list[Path]) -> str:
    """Everything between the marks, for all GPUs."""
    tables = ["\n".join(table_of(json.loads(file.read_text(encoding="utf-8")))) for file in files]
    return "\n\n".join([BEGIN, *tables, END])


def updated(text: str, files: list[Path]) -> str:
    """The document with the section of today."""
    return marked.replaced(text, BEGIN, END, section(files))


def main(arguments: list[str] | None = None) -> int:
    files = sorted((marked.ROOT / "data" / "results").glob("gpu_*.json"))
    what = "the table of GPU support is not that of data/results/gpu_*.json"
    return marked.main(__doc__, what, lambda text: updated(text, files), arguments, marked.MEASURED)


if __name__ == "__main__":
    sys.exit(main())
