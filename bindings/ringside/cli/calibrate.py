"""ringside calibrate: a time model of the GPUs there are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

from ringside import _extras
from ringside._bench.calibration import Asked
from ringside._bench.gpu import calibrate as on_gpus
from ringside._core import InvalidArgument
from ringside._time.loads import ITEMSIZE
from ringside.cli.files import make_room_for
from ringside.cli.outputs import check_outputs
from ringside.cli.verify import check_names

with _extras.extra("cli", "the ringside command"):
    import typer

EXCHANGES = ("peer", "nccl")


def calibrate(
    path: Annotated[Path, typer.Argument(help="Of the model, which ends in .json.")],
    gpus: Annotated[
        Optional[int],  # noqa: UP045  typer evaluates it on Python 3.10
        typer.Option(help="Processes, one a GPU; all GPUs."),
    ] = None,
    exchange: Annotated[
        str, typer.Option(help=f"How bytes move: {', '.join(EXCHANGES)}.")
    ] = "peer",
    dtype: Annotated[str, typer.Option(help=f"{', '.join(ITEMSIZE)}.")] = "bfloat16",
    head_dim: Annotated[int, typer.Option(help="Of q, k and v.")] = 128,
    heads: Annotated[int, typer.Option(help="Query heads of the packs that are timed.")] = 16,
    seconds: Annotated[float, typer.Option(help="To spend, about.")] = 60.0,
) -> None:
    """Measure the attention kernels and the links of the GPUs there are, for plan.timeline.

    Example: ringside calibrate my_gpus.json, then ringside explore --model my_gpus.json
    """
    if path.suffix != ".json":
        raise InvalidArgument(f"path {path}; expected one that ends in .json")
    check_outputs({"path": path})
    check_names("exchange", [exchange], EXCHANGES)
    check_names("dtype", [dtype], list(ITEMSIZE))
    for name, value in (("--head-dim", head_dim), ("--heads", heads), ("--seconds", seconds)):
        if not value > 0:
            raise InvalidArgument(f"{name} {value}; expected a number above 0")
    if gpus is not None and gpus < 1:
        raise InvalidArgument(f"--gpus {gpus}; expected a number from 1")
    asked = Asked(dtype, head_dim, heads, exchange)
    code = on_gpus.start(make_room_for(path.resolve()), asked, gpus, seconds)
    raise typer.Exit(code)
