"""Attention beside FlashAttention 3, in the README: what `ringside bench gpu --peer fa3` measured.

Run: python3 .dev/fa3_table.py to rewrite the README from data/results/bench_fa3_*.csv, --check to
see whether it is in step (./dev style does). Standard library only.
"""

from __future__ import annotations

import csv
import math
import re
import sys
from pathlib import Path

import marked

BEGIN = "<!-- beside FlashAttention 3: written by .dev/fa3_table.py -->"
END = "<!-- beside FlashAttention 3: end -->"
AIMED_AT = "_h200"  # whose table comes first; those of others are folded
PASSES = ("forward", "backward")
ON_GPU = ", lengths on the GPU"  # of passes that read them there


def conditions(comment: str) -> dict[str, str]:
    """What the first line of a results file says.

    >>> conditions("# gpu NVIDIA H200; cuda 13.0")
    {'gpu': 'NVIDIA H200', 'cuda': '13.0'}
    """
    parts = comment.strip("# \n").split("; ")
    return {name: value for name, _, value in (part.partition(" ") for part in parts)}


def rows_of(file: Path) -> tuple[dict[str, str], dict[tuple[str, str], dict[str, str]]]:
    """The conditions, and what was measured by case and pass; a case has all passes."""
    with file.open(encoding="utf-8", newline="") as text:
        measured = conditions(next(text))
        rows = list(csv.DictReader(text))
    of = {(row["case"], row["work"]): row for row in rows if not row["fault"]}
    for case in dict.fromkeys(row["case"] for row in rows):
        if any((case, work) not in of for work in PASSES):
            raise SystemExit(f"{file.name}: {case!r} is no whole case; measure it again")
    return measured, of


def heads_and_pack(file: Path, case: str) -> tuple[str, str]:
    found = re.fullmatch(r"d(\d+(?:/\d+)?) h(\d+(?:/\d+)?) (.*)", case)
    if found is None:
        raise SystemExit(f"{file.name}: {case!r} is no whole case; measure it again")
    return f"{found[2]} of {found[1]}", found[3]


def table_alone(file: Path, of: dict[tuple[str, str], dict[str, str]]) -> list[str]:
    """What ran without FlashAttention 3, beside the rate to reach; nothing if none did."""
    names = [case for case in dict.fromkeys(x for x, _ in of) if not beside_peer(of, case)]
    if not names:
        return []
    lines = ["", "| heads | pack | forward | aim | backward | aim |", "|---|---|---|---|---|---|"]
    for case in names:
        cells = [*heads_and_pack(file, case)]
        for work in PASSES:
            row = of[case, work]
            aim = re.search(r"goal >= (\d+)", row.get("goals") or "")
            cells += [f"{float(row['gpu_tflops']):.0f}", aim[1] if aim else ""]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def beside_peer(of: dict[tuple[str, str], dict[str, str]], case: str) -> bool:
    return bool(of[case, "forward"]["fa3_gpu_tflops"])


def section_of(file: Path) -> str:
    """A line for each case: both rates and their ratios, forward and backward."""
    measured, of = rows_of(file)
    lines = [
        "| heads | pack"
        + "".join(f" | ours, {x} | FA3 | ratio | DevicePlan" for x in PASSES)
        + " |",
        "|---" * 10 + "|",
    ]
    for case in dict.fromkeys(case for case, _ in of):
        cells = [*heads_and_pack(file, case)]
        if not beside_peer(of, case):
            continue
        for work in PASSES:
            row = of[case, work]
            cells += [f"{float(row[name]):.0f}" for name in ("gpu_tflops", "fa3_gpu_tflops")]
            for of_plan in (row, of.get((case, work + ON_GPU))):
                cells.append(f"{float(of_plan['gpu_over_fa3']):.2f}" if of_plan else "")
        lines.append("| " + " | ".join(cells) + " |")
    told = (
        f"TFLOP/s of visible pairs, bfloat16, packs of 32k tokens, on one {measured['gpu']}, from "
        "the GPU time of all kernels of a call, by turns with\nflash-attn3-jax in one process "
        f"({measured['date']}, commit {measured['commit'][:7]}, `ringside bench gpu --peer fa3`); "
        "ratio: theirs over ours in time, of a plan that knows the lengths; DevicePlan: the same "
        "of one that reads them on the GPU, as theirs does."
    )
    alone = table_alone(file, of)
    if alone:
        told += (
            " Its package has no other head dimensions: aim is 1.05 times what FlashAttention 3, "
            "built with them, gave on another H200, where it was measured."
        )
    return "\n".join([*lines, *alone, "", told])


def mean_ratio(of: dict[tuple[str, str], dict[str, str]], work: str) -> float:
    """The geometric mean over the cases beside the peer."""
    ratios = [
        float(row["gpu_over_fa3"])
        for (_, w), row in of.items()
        if w == work and row["gpu_over_fa3"]
    ]
    return math.prod(ratios) ** (1 / len(ratios))


def folded(file: Path) -> str:
    """The same, below a line that says how it went."""
    measured, of = rows_of(file)
    means = " and ".join(f"{mean_ratio(of, work):.2f} {work}" for work in PASSES)
    summary = f"<summary>On one {measured['gpu']}: geometric mean {means}</summary>"
    return f"<details>\n{summary}\n\n{section_of(file)}\n\n</details>"


def updated(readme: str, files: list[Path]) -> str:
    """The README with the tables of today."""
    sections = [
        section_of(file) if file.stem.endswith(AIMED_AT) else folded(file) for file in files
    ]
    section = "\n\n".join([BEGIN, *sections, END])
    return marked.replaced(readme, BEGIN, END, section)


def main(arguments: list[str] | None = None) -> int:
    files = sorted((marked.ROOT / "data" / "results").glob("bench_fa3_*.csv"))
    files.sort(key=lambda file: not file.stem.endswith(AIMED_AT))
    what = "the table beside FlashAttention 3 is not that of data/results/bench_fa3_*.csv"
    return marked.main(__doc__, what, lambda readme: updated(readme, files), arguments)


if __name__ == "__main__":
    sys.exit(main())
