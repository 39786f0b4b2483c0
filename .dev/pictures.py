"""Draws the pictures that README.md shows, into data/pictures.

Run: .venv/bin/python .dev/pictures.py. Each comes from a plan that verify() accepts.
"""

from __future__ import annotations

from pathlib import Path

import ringside as rs

FOLDER = Path(__file__).resolve().parent.parent / "data" / "pictures"


def main() -> None:
    """All of them."""
    layout = rs.PackedLayout.from_lengths([320, 128, 40, 216])  # chunks are equal: so is the work
    plan = rs.plan(layout, cp_size=4)
    plan.verify()
    plan.draw(FOLDER / "plan.png")


if __name__ == "__main__":
    main()
