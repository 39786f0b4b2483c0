"""ringside bench cp: attention over several GPUs beside one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ringside import _extras
from ringside._bench.gpu import ranks

with _extras.extra("cli", "the ringside command"):
    import typer


def cp(
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", help="Processes, one a GPU.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer heads and repeats.")] = False,
    csv_path: Annotated[
        Path | None, typer.Option("--csv", help="Write the results to this file.")
    ] = None,
) -> None:
    """Forward and backward over several GPUs beside one, results compared first.

    Example: ringside bench cp --gpus 2 --csv build/bench_cp.csv
    """
    raise typer.Exit(ranks.start(gpus, quick=quick, path=csv_path))
