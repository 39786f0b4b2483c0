"""Draws the pictures that documents show, into data.

Run: .venv/bin/python .dev/pictures.py (./dev readme does, and writes the tables too). Each comes
from plans that verify() accepts, from counts of such, or from what was measured.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import ringside as rs
from matplotlib.figure import Figure
from ringside._pictures.balance import STYLES

FOLDER = Path(__file__).resolve().parent.parent / "data"
FILL = FOLDER / "results" / "fill_nvidia_h200.csv"
SCALING = FOLDER / "results" / "bench_cp_nvidia_h200.csv"
BALANCE = "explore --lengths man_pages --tokens 131072 --cp 2..64 --comm p2p --comm all_gather"
BALANCE += " --comm fetch --draw"


def draw_plan(path: Path) -> None:
    """A ring: who computes which pair, and when."""
    layout = rs.PackedLayout.from_lengths([320, 128, 40, 216])  # chunks are equal: so is the work
    plan = rs.plan(layout, cp_size=4)
    plan.verify()
    plan.draw(path)


def draw_balance(path: Path) -> None:
    """Pairs beside blocks, by the command that README names."""
    command = [sys.executable, "-m", "ringside", *BALANCE.split(), str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def draw_fill(path: Path, file: Path = FILL) -> None:
    """What blocks predict of all ranks over one rank, and what kernels took."""
    with file.open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(line for line in text if not line.startswith("#")))
    places = {
        (work, size): [
            (float(row["blocks_over_one_rank"]), float(row["kernels_over_one_rank"]))
            for row in rows
            if row["work"] == work and f"cp {size} " in row["case"]
        ]
        for work in ("forward", "backward")
        for size in (4, 8, 32)
    }
    most = max(max(place) for found in places.values() for place in found)
    ticks = [x for x in (1, 1.5, 2, 3, 5, 8, 12, 20) if x < 1.1 * most]
    figure = Figure(figsize=(7.2, 3.4), dpi=120, layout="constrained")
    for axis, work in zip(figure.subplots(1, 2, sharey=True), ("forward", "backward"), strict=True):
        axis.plot([0.85, 1.1 * most], [0.85, 1.1 * most], color="0.7", linewidth=0.8, zorder=0)
        for size, (colour, marker) in zip((4, 8, 32), STYLES, strict=False):
            if shown := places[work, size]:
                x, y = zip(*shown, strict=True)
                axis.scatter(x, y, s=14, color=colour, marker=marker, label=f"{size} ranks")
        axis.set(title=f"{work}, over one rank", xlabel="blocks predict")
        axis.set(xscale="log", yscale="log")
        for one in (axis.xaxis, axis.yaxis):
            one.set_ticks(ticks, [f"{x:g} x" for x in ticks])
            one.set_ticks([], minor=True)
        axis.legend()
    figure.axes[0].set_ylabel("kernels took")
    figure.savefig(path)


PYTORCH = "PyTorch context_parallel"
WAYS = {  # of exchange: a colour (Paul Tol's "bright") and a marker each
    "peer copies": ("#4477AA", "o"),
    "NCCL": ("#EE6677", "s"),
    PYTORCH: ("#228833", "D"),
}


def way_of(row: dict[str, str]) -> str:
    """Which of WAYS a line of `ringside bench cp` went."""
    if row["partition"].startswith("torch"):
        return PYTORCH
    return "NCCL" if row["exchange"] == "nccl" else "peer copies"


def quickest(file: Path, heads: str) -> dict[str, dict[str, dict[int, float]]]:
    """By pack, way and number of GPUs: the best rate of a GPU over that of one alone."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    with file.open(encoding="utf-8", newline="") as text:
        for row in csv.DictReader(text):
            if row["heads"] == heads:
                start = {} if way_of(row) == PYTORCH else {1: 1.0}  # which is measured on several
                of_way = found.setdefault(row["pack"], {}).setdefault(way_of(row), start)
                gpus, rate = int(row["gpus"]), float(row["efficiency"])
                of_way[gpus] = max(rate, of_way.get(gpus, 0.0))
    return found


def draw_scaling(path: Path, file: Path = SCALING) -> None:
    """Of each pack, the quickest plan on each number of GPUs over each way of exchange."""
    found = quickest(file, "16/16")
    sizes = sorted({gpus for ways in found.values() for rates in ways.values() for gpus in rates})
    figure = Figure(figsize=(2.6 * len(found), 3.2), dpi=120, layout="constrained")
    axes = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axis, (pack, ways) in zip(axes, found.items(), strict=True):
        axis.axhline(1, color="0.7", linewidth=0.8, zorder=0)
        for way, rates in ways.items():
            colour, marker = WAYS[way]
            shown = sorted(rates.items())
            axis.plot(*zip(*shown, strict=True), color=colour, marker=marker, label=way)
        axis.set(title=pack, xlabel="GPUs", xscale="log", xticks=sizes, ylim=(0, 1.25))
        axis.set_xticks([], minor=True)
        axis.set_xticklabels([str(size) for size in sizes])
    axes[0].set_ylabel("rate of a GPU, 1: of one alone")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(WAYS))
    figure.savefig(path)


PICTURES = {
    "pictures/plan.png": draw_plan,
    "pictures/balance.png": draw_balance,
    "results/fill.png": draw_fill,
    "results/scaling.png": draw_scaling,
}


def main() -> None:
    """All of them."""
    for name, draw in PICTURES.items():
        draw(FOLDER / name)


if __name__ == "__main__":
    main()
