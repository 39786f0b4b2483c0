"""Packages that people use, against the definition; the command is `ringside peers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Optional

from ringside._extras import extra
from ringside.cli.files import make_room_for, write_json
from ringside.cli.outputs import check_outputs
from ringside.cli.peers_run import run
from ringside.testing.junit import Result, write_junit
from ringside.testing.peers import Verdict, table
from ringside.testing.peers.adapter import MASKS, described, known
from ringside.testing.peers.here import gpus
from ringside.testing.peers.settings import DEVICES, Axes, Settings

with extra("cli", "the ringside command"):
    import typer

ADAPTERS = Path("property_tests", "peers")
OURS = 3  # exit code
FINE = ("agrees", "not drawn", "absent")


def peers(
    names: Annotated[
        Optional[list[str]],  # noqa: UP045  typer evaluates it on Python 3.10
        typer.Argument(help="Which; all by default.", show_default=False),
    ] = None,
    cases: Annotated[int, typer.Option(help="Random cases of each feature.", min=1)] = 40,
    budget: Annotated[float, typer.Option(help="Seconds for each feature.", min=1)] = 120.0,
    case_time: Annotated[
        float,
        typer.Option(help="Seconds that a case may take; silent for longer, it hangs.", min=1),
    ] = 20.0,
    seed: Annotated[int, typer.Option(help="Other seeds draw other cases.", min=0)] = 0,
    feature: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Only these features of a peer."),
    ] = None,
    cp: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Numbers of ranks, such as 2,4, of those that a feature claims."),
    ] = None,
    masks: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help=f"Some of {','.join(MASKS)}, of those that a feature claims."),
    ] = None,
    heads: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="query:kv heads, such as 4:2,4:1, of those that a feature claims."),
    ] = None,
    lengths: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Multiples of 1, cp or 2cp, where a feature does not ask for more."),
    ] = None,
    longest: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Of a document, in such units.", min=1),
    ] = None,
    documents: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="At most so many in a pack.", min=1),
    ] = None,
    equal: Annotated[bool, typer.Option("--equal", help="All of one length.")] = False,
    head_dim: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Of q, k and v, whatever a feature claims.", min=1),
    ] = None,
    scales: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Of the scores, such as default,0.25, of those that a feature claims."),
    ] = None,
    dtype: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="float64, float32, float16 or bfloat16, whatever a feature claims."),
    ] = None,
    no_nan: Annotated[bool, typer.Option("--no-nan", help="Zeros in the padding.")] = False,
    no_padding: Annotated[bool, typer.Option("--no-padding", help="Documents fill rows.")] = False,
    runs: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Of each case, which must return the same bits.", min=1),
    ] = None,
    accumulate: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="The type that sums are in, in place of what an adapter says."),
    ] = None,
    merge: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="The type that partial results are merged in; so, too."),
    ] = None,
    merges: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="How many partial results are merged; so, too.", min=0),
    ] = None,
    partial: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="The type that partial results are stored in; so, too."),
    ] = None,
    gradients: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="The type that dk and dv are summed in; so, too."),
    ] = None,
    padding: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="What out and lse hold where no token is: zero or any; so, too."),
    ] = None,
    adapters: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help=f"The folder of peers; default {ADAPTERS} of the checkout here."),
    ] = None,
    device: Annotated[
        str, typer.Option(help=f"{' or '.join(DEVICES)}, a GPU for each rank.")
    ] = "cpu",
    here: Annotated[
        bool,
        typer.Option(
            "--here", help="What this interpreter has, in its versions; installs nothing."
        ),
    ] = False,
    jobs: Annotated[int, typer.Option(help="So many processes at a time.", min=1)] = 1,
    install: Annotated[bool, typer.Option("--install", help="Their environments only.")] = False,
    write: Annotated[
        bool, typer.Option("--write", help="data/peers.csv, data/peers and the README's table.")
    ] = False,
    read: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(help="Results that --json wrote, elsewhere say; runs nothing."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only whether these say the same; runs nothing.")
    ] = False,
    junit: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write the results there as JUnit XML."),
    ] = None,
    json_file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--json", help="Write the results there."),
    ] = None,
) -> None:
    """Run packages that people use, as published, against the definition; a verdict a feature.

    Each runs in an environment of its own, which uv makes from PyPI; one that cannot be had is
    absent, and not counted. With --device cuda calls get tensors on GPUs. Failures of earlier runs
    are tried first. Exit code 1 where anything does not agree, 3 where an adapter is broken, which
    is a fault of ours.

    Example: ringside peers ring_flash_attn --cases 100 --cp 2
    """
    check_outputs({"--junit": junit, "--json": json_file})
    folder = _folder(adapters)
    root = folder.resolve().parent.parent
    if check:
        _check(root)
        return
    if read:
        _tell_again(root, [x for path in read for x in verdicts_of(path)], write=write)
        return
    chosen = _chosen(folder, names or [], device)
    from ringside.cli.peers_options import axes_from, demands_from  # needs Hypothesis

    axes = axes_from(
        **{"cp": cp, "masks": masks, "heads": heads, "scales": scales, "unit": lengths},
        **{"longest": longest, "documents": documents, "head_dim": head_dim, "dtype": dtype},
        **{"equal": equal, "no_nan": no_nan, "no_padding": no_padding},
    )
    demands = demands_from(
        **{"runs": runs, "accumulate": accumulate, "merge": merge, "merges": merges},
        **{"partial": partial, "gradients": gradients, "padding": padding},
    )
    failures = str(root / ".cache" / "peers" / device)
    settings = Settings(cases, budget, case_time, seed, axes, demands, failures, device, here)
    if write and (axes != Axes() or demands or feature):
        raise ValueError(
            "--write says all of a package; drop --feature, what restricts cases and what is asked"
        )
    place = root / ".venv" / "peers"
    folders = [folder / name for name in chosen]
    verdicts: list[Verdict] = []
    try:
        broken = run(folders, place, settings, feature or [], verdicts, install=install, jobs=jobs)
    finally:  # also of a run that was interrupted
        _write_results(verdicts, junit, json_file)
    if write:
        table.write(root, verdicts)
    if broken:
        raise typer.Exit(OURS)
    if any(verdict.kind not in FINE for verdict in verdicts):
        raise typer.Exit(1)


def _folder(given: Path | None) -> Path:
    """Adapters are data of the checkout; an installed package has none."""
    if given is not None:
        if not known(given):
            raise ValueError(f"--adapters {given} holds no peer; expected folders with adapter.py")
        return given
    here = Path.cwd()
    for place in (here, *here.parents):
        if known(place / ADAPTERS):
            return place / ADAPTERS
    raise ValueError(
        f"no folder {ADAPTERS} in {here} or above; expected a checkout of Ringside, whose data the "
        "adapters are. Run it there, or pass --adapters FOLDER"
    )


def _chosen(folder: Path, names: list[str], device: str) -> list[str]:
    """Those named, or all that run on the device."""
    if device not in DEVICES:
        raise ValueError(f'device="{device}"; expected one of {", ".join(DEVICES)}')
    if device == "cuda" and not gpus():
        raise ValueError(
            'device="cuda", and nvidia-smi names no GPU here; expected one for each rank. Run it '
            "where one is, or leave --device out"
        )
    all_of_them = known(folder)
    fit = [name for name in all_of_them if device in described(folder / name).devices]
    for name in names:
        if name.replace("-", "_") not in all_of_them:
            raise ValueError(f'peer "{name}" is unknown; expected some of {", ".join(all_of_them)}')
        if name.replace("-", "_") not in fit:
            raise ValueError(
                f'peer "{name}" has no call for device="{device}"; expected some of '
                f"{', '.join(fit)}. Pass another --device, or one of these"
            )
    return [name.replace("-", "_") for name in names] or fit


def _tell_again(root: Path, verdicts: list[Verdict], *, write: bool) -> None:
    for verdict in verdicts:
        print(verdict.words())
    if write:
        table.write(root, verdicts)


def verdicts_of(path: Path) -> list[Verdict]:
    """What --json wrote; ValueError for anything else.

    Args:
        path: of the file.
    """
    try:
        return [Verdict(**given) for given in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"--read {path}: {error}; expected a file that ringside peers --json wrote. Pass one"
        ) from error


def _check(root: Path) -> None:
    if wrong := table.in_step(root):
        print(f"not what data/peers.csv says: {', '.join(wrong)}; run ringside peers --write")
        raise typer.Exit(1)


def _write_results(verdicts: list[Verdict], junit: Path | None, json_file: Path | None) -> None:
    write_json(json_file, [verdict.to_dict() for verdict in verdicts])
    if junit is None:
        return
    results = [
        Result(
            f"{verdict.package} {verdict.version}",
            " ".join(filter(None, (verdict.feature, verdict.fault))),
            verdict.seconds,
            failure="" if verdict.kind in FINE else verdict.words(),
            skipped=verdict.told if verdict.kind in FINE[1:] else "",
            output=verdict.words() if verdict.kind == "agrees" else verdict.script,
        )
        for verdict in verdicts
    ]
    write_junit(make_room_for(junit), results)
