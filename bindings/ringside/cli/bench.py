"""ringside bench: what is measured of a CPU, of row movers and of GPUs, each a command."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from ringside import _core, _extras
from ringside._bench import cpu as _bench
from ringside._bench import thd as _bench_thd
from ringside._bench.gpu import run as _bench_gpu
from ringside._bench.gpu.readings import Readings
from ringside.cli import report as _report
from ringside.cli.bench_cp import cp
from ringside.cli.files import JsonOption, write_csv, write_json
from ringside.cli.outputs import check_outputs

with _extras.extra("cli", "the ringside command"):
    import typer

bench_app = typer.Typer(
    no_args_is_help=True, help="Measure; nothing is timed before it is checked."
)
bench_app.command()(cp)


@bench_app.command()
def cpu(
    json_path: JsonOption = None,
    csv_path: Annotated[Path | None, typer.Option("--csv", help="Write the results there.")] = None,
) -> None:
    """The executor against NumPy, planning at scale, and the rate of random checks.

    Example: ringside bench cpu --csv build/bench.csv
    """
    check_outputs({"--json": json_path, "--csv": csv_path})
    lines: list[_bench.Line] = []
    with _report.progress() as progress:
        task = progress.add_task("measuring", total=_bench.NUM_LINES)
        for line in _bench.measure():
            lines.append(line)
            progress.update(task, completed=len(lines), description=line.benchmark)
    _report.benchmarks(lines, _bench.CAPTION)
    rows = [line.to_dict() for line in lines]
    write_json(json_path, {"ringside": _core.__version__, **_bench.machine(), "results": rows})
    write_csv(csv_path, rows)


@bench_app.command()
def thd(json_path: JsonOption = None) -> None:
    """The peers' row movers against a NumPy fancy-index copy of the same bytes.

    Example: ringside bench thd --json build/bench_thd.json
    """
    check_outputs({"--json": json_path})
    results = _bench_thd.bench()
    _report.row_movers(results)
    rows = [{**dataclasses.asdict(r), "speedup": r.speedup} for r in results]
    write_json(json_path, {"ringside": _core.__version__, **_bench.machine(), "results": rows})


@bench_app.command()
def gpu(
    section: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(_bench_gpu.SECTIONS)}; all by default."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few cases, fewer repeats.")] = False,
    peer: Annotated[
        str, typer.Option(metavar="fa3", help="Beside FlashAttention 3, by flash-attn3-jax.")
    ] = "",
    csv_path: Annotated[
        Path | None,
        typer.Option("--csv", help="Write the results there; a folder gets bench_gpu_<gpu>.csv."),
    ] = None,
    json_path: JsonOption = None,
) -> None:
    """Attention beside FlashAttention 2, plans beside one rank, row movers, host syncs.

    Example: ringside bench gpu --section attention --quick --csv build/bench_gpu.csv
    """
    tasks = _bench_gpu.tasks(section or (), quick=quick, peer=peer)
    machine = _bench_gpu.machine()
    if csv_path is not None and csv_path.is_dir():
        csv_path /= _bench_gpu.file_name(machine["gpu"], peer)
    check_outputs({"--json": json_path, "--csv": csv_path})
    comment = "; ".join(f"{name} {value}" for name, value in machine.items())
    lines: list[_bench_gpu.Line] = []
    notes: list[str] = []
    with _report.progress() as progress, Readings(_bench_gpu.the_gpu()) as readings:
        doing = progress.add_task("", total=len(tasks))
        for number, task in enumerate(tasks):
            progress.update(doing, completed=number, description=task.name)
            for made in _bench_gpu.run_with_readings(task, readings):
                if isinstance(made, str):
                    notes.append(made)
                else:
                    lines.append(made)
            rows = [line.to_dict() for line in lines]
            write_csv(csv_path, rows, comment)  # what is measured stays if the run is stopped
    _report.gpu_benchmarks(lines, notes, _bench_gpu.caption(quick))
    write_json(json_path, machine | {"notes": notes, "results": rows})
    if any(line.fault for line in lines):
        raise typer.Exit(1)
