"""The ringside command. Each subcommand's --help shows one real example.

Answers go to standard output, progress and errors to standard error. Exit codes: 0 all is well, 1
a disagreement with the definition, 2 nothing was checked (wrong arguments, or an implementation
that refused every case of ringside fuzz), 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

from ringside import _core, _extras
from ringside import lengths as _lengths
from ringside._plan.build import plan as new_plan
from ringside.cli import report as _report
from ringside.cli.bench import bench_app
from ringside.cli.calibrate import calibrate
from ringside.cli.explore import explore
from ringside.cli.files import JsonOption, make_room_for, write_json
from ringside.cli.fuzz import fuzz
from ringside.cli.learn import learn
from ringside.cli.outputs import check_outputs, check_picture
from ringside.cli.pack import (
    DEFAULT_LENGTHS,
    DEFAULT_PADDING,
    DEFAULT_TOKENS,
    Pack,
    rows_to_pad_to,
)
from ringside.cli.peers import peers
from ringside.cli.run import PASSED_ON, run
from ringside.cli.show import show
from ringside.cli.verify import (
    SECONDS_WORTH_A_WORD,
    Heads,
    Settings,
    Verification,
    geometry_of,
)
from ringside.testing import _sizes
from ringside.testing._problems import MASKS
from ringside.testing._problems import a2a_size as default_a2a_size
from ringside.testing._problems import mask_from as _mask_from
from ringside.testing._random_cases import cases

with _extras.extra("cli", "the ringside command"):
    import typer

app = typer.Typer(
    name="ringside",
    help="Context-parallel packed attention, in the ring with its own definition.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(bench_app, name="bench")
app.command()(calibrate)
app.command()(explore)
app.command("compare", hidden=True)(explore)
app.command()(fuzz)
app.command()(learn)
app.command()(peers)
app.command(context_settings=PASSED_ON)(run)
app.command()(show)

_MASK_HELP = f"{', '.join(MASKS)}, window:LEFT,RIGHT or chunked:N."
LengthsOption = Annotated[
    str,
    typer.Option(
        "--lengths",
        metavar="NAME|FILE|-|N,N,...",
        help="A file, taken whole and unpadded, or - for standard input: one integer a line, a "
        "CSV with a column called tokens or length, a JSON list; or the numbers themselves; or "
        f"{', '.join(_lengths.names())}.",
    ),
]
OffsetsOption = Annotated[
    bool, typer.Option("--cu-seqlens", help="The numbers of --lengths are offsets from 0.")
]
PadOption = Annotated[
    str | None,
    typer.Option(
        metavar="N|2cp",
        help="Rows of a document are a multiple of it; 0: none are padding. Default: "
        f"{DEFAULT_PADDING} for a NAME, 0 for a FILE.",
    ),
]
TOKENS_OF_PLAN = 512
_TOKENS_HELP = (
    "The first tokens, all if there are fewer. Default: all of a FILE, at most {} of a NAME."
)
HeadsOption = Annotated[int, typer.Option(help="Query heads.")]
KvHeadsOption = Annotated[int, typer.Option(help="Key and value heads.")]
CpOption = Annotated[int, typer.Option("--cp", metavar="N", help="Number of ranks.")]
Names = list[str] | None


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.")
    ] = False,
) -> None:
    """Context-parallel packed attention, in the ring with its own definition."""
    if version:
        print(_core.__version__)
        raise typer.Exit


@app.command()
def verify(
    context: typer.Context,
    lengths: LengthsOption = DEFAULT_LENGTHS,
    tokens: Annotated[int | None, typer.Option(help=_TOKENS_HELP.format(DEFAULT_TOKENS))] = None,
    cp: CpOption = 4,
    partition: Annotated[Names, typer.Option(help=f"{', '.join(_core.PARTITIONS)}; all.")] = None,
    comm: Annotated[Names, typer.Option(help=f"{', '.join(_core.COMMS)}; all.")] = None,
    mask: Annotated[Names, typer.Option(help=_MASK_HELP)] = None,
    heads: HeadsOption = 8,
    kv_heads: KvHeadsOption = 2,
    head_dim: Annotated[int, typer.Option(help="Of q, k and v.")] = 32,
    pad_to: PadOption = None,
    cu_seqlens: OffsetsOption = False,
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
    random: Annotated[
        int | None, typer.Option(metavar="N", help="Check N small random cases instead.")
    ] = None,
    case: Annotated[int, typer.Option(help="With --random: the first case.")] = 0,
    json_path: JsonOption = None,
) -> None:
    """Check every partition, transport and mask against the definition, forward and backward.

    Example: ringside verify --cp 8 --partition zigzag --comm p2p
    """
    check_outputs({"--json": json_path}, {"--lengths": lengths})
    if random is not None:
        _refuse_others(context, "--random", {"random", "case", "seed", "json_path"})
        _verify_random(seed, _numbers(seed, case, random), json_path)
        return
    _refuse_given(context, "case", "it goes with --random")
    settings = Settings(
        Pack(lengths, tokens, rows_to_pad_to(pad_to, cp), cu_seqlens=cu_seqlens),
        Heads(heads, kv_heads, head_dim),
        cp,
        partition or (),
        comm or (),
        mask or (),
        seed,
    )
    job, begin = Verification(settings), time.perf_counter()
    print(job.taken, flush=True)
    _say_what_it_costs(job.seconds())
    with _report.progress() as progress:
        task = progress.add_task("", total=job.num_tasks)
        for number, doing in enumerate(job.run()):
            progress.update(task, completed=number, description=doing)
    seconds = time.perf_counter() - begin
    _report.verification(job, seconds)
    write_json(json_path, job.to_dict() | {"seconds": seconds})
    if job.failed:
        raise typer.Exit(1)


@app.command()
def plan(
    lengths: LengthsOption = DEFAULT_LENGTHS,
    tokens: Annotated[int | None, typer.Option(help=_TOKENS_HELP.format(TOKENS_OF_PLAN))] = None,
    cp: CpOption = 4,
    partition: Annotated[str, typer.Option(help=f"{', '.join(_core.PARTITIONS)}.")] = "zigzag",
    comm: Annotated[str, typer.Option(help=f"{', '.join(_core.COMMS)}.")] = "p2p",
    a2a_size: Annotated[int | None, typer.Option(help="For a2a+p2p: ranks of a group.")] = None,
    stages: Annotated[int | None, typer.Option(help="For fetch: exchanges at most; 2.")] = None,
    mask: Annotated[str, typer.Option(help=_MASK_HELP)] = "causal",
    heads: HeadsOption = 8,
    kv_heads: KvHeadsOption = 2,
    pad_to: PadOption = None,
    cu_seqlens: OffsetsOption = False,
    draw: Annotated[Path | None, typer.Option(help="Draw it there: png, pdf or svg.")] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write it there; Plan.from_json reads it.")
    ] = None,
) -> None:
    """Build one plan, prove it, and tell what each rank moves and computes.

    Example: ringside plan --partition striped --comm all_gather --draw build/plan.png
    """
    _sizes.require_between("--a2a-size", a2a_size, 1, "a divisor of --cp")
    _sizes.require_between("--stages", stages, 1, "the number of exchanges of fetch")
    check_outputs({"--json": json_path, "--draw": draw}, {"--lengths": lengths})
    check_picture(draw)
    if draw is not None:
        _extras.require("plot", "--draw")
    rows = rows_to_pad_to(pad_to, cp)
    pack = Pack(lengths, tokens, rows, TOKENS_OF_PLAN, cu_seqlens)
    settings = Settings(pack, Heads(heads, kv_heads), cp)
    layout, taken = pack.taken()
    geometry = geometry_of(layout, _mask_from(mask), settings)
    made = new_plan(
        **geometry.plan_arguments(),
        cp_size=cp,
        partition=partition,
        comm=comm,
        a2a_size=default_a2a_size(comm, cp) if a2a_size is None else a2a_size,
        stages=stages,
    )
    proof = made.verify()
    print(taken)
    print(made.explain() + "\n")
    _report.plan_cost(made)
    print(f"\nproved: {proof}")
    if json_path is not None:
        make_room_for(json_path).write_text(made.to_json() + "\n", encoding="utf-8")
    if draw is not None:
        made.draw(make_room_for(draw))
        print(f"drawn: {draw}")


def _say_what_it_costs(seconds: float) -> None:
    if seconds > SECONDS_WORTH_A_WORD:
        print(
            f"This takes about {seconds / 60:,.0f} minutes: the definition computes every pair of "
            "each document. --tokens N takes the first N tokens; --partition, --comm and --mask "
            "choose what is checked.",
            file=sys.stderr,
        )


def _numbers(seed: int, first: int, count: int) -> range:
    """Of random cases; refuses what draws none, or more than can be counted."""
    _sizes.require_between("--random", count, 1, "a number of cases")
    _sizes.require_between("--case", first, 0, "the number of a case")
    _sizes.require_between("--case + --random", first + count, 1, "a number of cases")
    if seed < 0:
        raise ValueError(f"--seed {seed}; expected 0 or more. Pass such a number")
    return range(first, first + count)


def _verify_random(seed: int, numbers: range, json_path: Path | None) -> None:
    faults, begin = [], time.perf_counter()
    with _report.progress() as progress:
        for case in progress.track(cases(seed, numbers), total=len(numbers), description="cases"):
            disagreement = case.run().disagreement
            if disagreement:
                again = f"ringside verify --random 1 --case {case.number} --seed {seed}"
                faults.append(f"case {case.number}: {disagreement}\n  {case}\n  again: {again}")
    seconds = time.perf_counter() - begin
    _report.faults(_report.console(), faults)
    rate = len(numbers) / seconds * 60
    checked = f"{len(numbers):,} random cases (seed {seed}) in {seconds:.1f} s"
    agree = f"{len(faults)} disagree" if faults else "all agree"
    print(f"{checked}, {rate:,.0f} a minute: {agree}.")
    settings = {"seed": seed, "first_case": numbers.start, "cases": len(numbers)}
    result = {"ringside": _core.__version__, "settings": settings, "passed": not faults}
    write_json(
        json_path, result | {"seconds": seconds, "cases_a_minute": rate, "disagreements": faults}
    )
    if faults:
        raise typer.Exit(1)


def _refuse_others(context: typer.Context, option: str, allowed: set[str]) -> None:
    for name in context.params:
        if name not in allowed:
            _refuse_given(context, name, f"{option} draws everything")


def _refuse_given(context: typer.Context, name: str, reason: str) -> None:
    source = context.get_parameter_source(name)
    if source is not None and source.name != "DEFAULT":
        flag = name.replace("_", "-")
        raise ValueError(f"--{flag} has no effect here, as {reason}. Leave it out")


def main() -> None:
    """Runs the command; what the library refuses becomes one line and exit code 2."""
    try:
        app(prog_name="ringside")
    except (ValueError, OverflowError, OSError, _core.Unsupported, _extras.MissingExtra) as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    except MemoryError:
        advice = "Pass fewer --tokens, --heads or ranks (--cp), or a smaller --head-dim"
        print(f"Error: there is not enough memory for that. {advice}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
