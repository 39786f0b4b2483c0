"""ringside bench cp: attention over several GPUs beside one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ringside import _extras
from ringside._bench.gpu import ranks
from ringside._core import InvalidArgument
from ringside.cli.outputs import check_outputs

with _extras.extra("cli", "the ringside command"):
    import typer


def sizes_of(text: str) -> list[int]:
    """Numbers of processes, in order.

    >>> sizes_of("2,4")
    [2, 4]
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise InvalidArgument(f"--gpus {text}; expected numbers from 1 up, as in --gpus 2,4")
    return [int(part) for part in parts]


def packs_of(names: list[str] | None) -> list[str]:
    """Packs to measure: all of them where none is named.

    >>> packs_of(["64k", "16k"])
    ['64k', '16k']
    """
    unknown = [name for name in names or () if name not in ranks.PACKS]
    if unknown:
        raise InvalidArgument(f'--pack "{unknown[0]}"; expected one of: {", ".join(ranks.PACKS)}')
    return names or [*ranks.PACKS]


def cp(
    gpus: Annotated[
        str, typer.Option("--gpus", metavar="N[,N...]", help="Processes, one a GPU; one run each.")
    ] = "2",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer heads and repeats.")] = False,
    csv_path: Annotated[
        Path | None, typer.Option("--csv", help="Write the results to this file.")
    ] = None,
    pack: Annotated[
        list[str] | None, typer.Option(help="A pack to measure; can be repeated. [default: all]")
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(help="Write a timeline of a call of each plan there, for Perfetto."),
    ] = None,
) -> None:
    """Forward and backward over several GPUs beside one, results compared first.

    Example: ringside bench cp --gpus 2,4 --csv build/bench_cp.csv
    """
    check_outputs({"--csv": csv_path})
    code = ranks.start(
        sizes_of(gpus), quick=quick, path=csv_path, traces=traces, packs=packs_of(pack)
    )
    raise typer.Exit(code)
