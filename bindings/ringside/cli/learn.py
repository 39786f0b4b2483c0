"""`ringside learn`: the notebooks, out of the installed package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

from ringside._extras import EXTRAS, extra
from ringside.learn._shipped import copy_notebooks

with extra("cli", "the ringside command"):
    import typer

FOLDER = Path("ringside_notebooks")


def learn(
    folder: Annotated[Path, typer.Argument(help="Where to copy them; it is made.")] = FOLDER,
    notebook: Annotated[
        Optional[list[int]],  # noqa: UP045  typer evaluates it on Python 3.10
        typer.Option(metavar="N", help="Only the notebook of this number; may be repeated."),
    ] = None,
) -> None:
    """Copy the notebooks into a folder: packs, masks, rings and their faults, a question each.

    Example: ringside learn ringside_notebooks --notebook 4
    """
    for path in copy_notebooks(folder, notebook or ()):
        print(path)
    print(
        f"\nOpen them with: jupyter lab {folder} (pip install {' '.join(EXTRAS['learn'])} brings "
        "it and what the notebooks need)."
    )
