"""Draws the pictures that README.md shows, into data/pictures.

Run: .venv/bin/python .dev/pictures.py (./dev readme does, and writes the tables too). Each comes
from plans that verify() accepts, or from counts of such.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ringside as rs

FOLDER = Path(__file__).resolve().parent.parent / "data" / "pictures"
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


PICTURES = {"plan.png": draw_plan, "balance.png": draw_balance}


def main() -> None:
    """All of them."""
    for name, draw in PICTURES.items():
        draw(FOLDER / name)


if __name__ == "__main__":
    main()
