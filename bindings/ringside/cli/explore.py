"""`ringside explore`: which partition and transport to take for documents of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

from ringside import _core, _extras
from ringside._time.model import TimeModel, as_model
from ringside._words import mask_words
from ringside.cli import explore_picture
from ringside.cli import report as _report
from ringside.cli.choices import Choice, Comparison, Settings, as_rows, cp_sizes_from
from ringside.cli.files import make_room_for, write_csv, write_json
from ringside.cli.outputs import check_outputs, check_picture
from ringside.cli.pack import DEFAULT_LENGTHS, Pack
from ringside.cli.verify import Heads
from ringside.testing._problems import MASKS
from ringside.testing._problems import mask_from as _mask_from

with _extras.extra("cli", "the ringside command"):
    import typer
    from rich.text import Text

COLUMNS = (  # heading, format
    ("imbalance", ".2f"),
    ("work", ".2f"),
    ("critical", ".2f"),
    ("ms", ",.2f"),
    ("fill", ".2f"),
    ("mib_in", ",.1f"),
    ("mib_out", ",.1f"),
    ("messages", ","),
    ("rows_kv", ","),
    ("mib_workspace", ",.0f"),
    ("steps", ","),
)
WIDTH = 132
DEFAULT_MODEL, DTYPE = "h200", "bfloat16"
HEADINGS = {
    "mib_in": "MiB in",
    "mib_out": "MiB out",
    "rows_kv": "kv rows",
    "mib_workspace": "MiB held",
}
CAPTION = (  # with {ms}
    "imbalance: pairs, busiest rank / mean. work: 128 x 128 blocks that hold a pair, busiest rank "
    "/ an equal share of one rank's; critical: of a ring, the busiest rank of each step, as ranks "
    "keep step. fill: pairs / area of these blocks. MiB in, out: busiest rank, both passes, "
    "bfloat16. {ms}. messages: received, forward. kv rows: resident at most. "
    "MiB held: workspace. *: nothing else is at least as good in critical, ms, MiB in and kv rows."
)


def explore(
    lengths: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE|-|N,N,...", help="Documents; as of ringside plan, but all of a NAME."
        ),
    ] = DEFAULT_LENGTHS,
    tokens: Annotated[
        Optional[int],  # noqa: UP045  typer evaluates it on Python 3.10
        typer.Option(help="The first tokens, all if there are fewer."),
    ] = None,
    cp: Annotated[
        str, typer.Option(metavar="N|N,N|N..N", help="Ranks; 2..64 are 2, 4, 8, 16, 32, 64.")
    ] = "2..8",
    partition: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help=f"{', '.join(_core.PARTITIONS)}; all."),
    ] = None,
    comm: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help=f"{', '.join(_core.COMMS)}; all."),
    ] = None,
    mask: Annotated[
        str, typer.Option(help=f"{', '.join(MASKS)}, window:LEFT,RIGHT or chunked:N.")
    ] = "causal",
    heads: Annotated[int, typer.Option(help="Query heads.")] = 32,
    kv_heads: Annotated[int, typer.Option(help="Key and value heads.")] = 8,
    head_dim: Annotated[int, typer.Option(help="Of q, k and v.")] = 128,
    cu_seqlens: Annotated[
        bool, typer.Option("--cu-seqlens", help="The numbers of --lengths are offsets from 0.")
    ] = False,
    json_path: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--json", help="Write the choices there."),
    ] = None,
    csv_path: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--csv", help="Write the choices there."),
    ] = None,
    draw: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Draw pairs beside blocks over the ranks there: png, pdf or svg."),
    ] = None,
    model: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NAME|FILE",
            help=f"Whose times to tell, both passes: {', '.join(TimeModel.presets())}, or a file "
            f"of ringside calibrate; {DEFAULT_MODEL} where it knows the head size.",
        ),
    ] = None,
) -> None:
    """Compare partitions and transports on your documents, and say which to take and why.

    Nothing is built: packs of millions of tokens on thousands of ranks are counted in seconds.

    Example: ringside explore --lengths man_pages --cp 8..32 --comm p2p --comm fetch
    """
    written = {"--json": json_path, "--csv": csv_path, "--draw": draw}
    check_outputs(written, {"--lengths": lengths, "--model": model})
    check_picture(draw)
    if draw is not None:
        _extras.require("plot", "--draw")
    pack = Pack(lengths, tokens, 0, 2**31 - 1, cu_seqlens)
    layout, taken = pack.taken()
    named = _mask_from(mask)
    sizes = cp_sizes_from(cp)
    given = Heads(heads, kv_heads, head_dim)
    told_by = _model_of(model, head_dim)
    settings = Settings(layout, named.mask, given, sizes, partition or (), comm or (), told_by)
    print(f"{taken}; {mask_words(named.mask)}; {heads} query / {kv_heads} kv heads of {head_dim}")
    compared = Comparison(settings)
    with _report.progress() as progress:
        task = progress.add_task("", total=settings.num_choices)
        for number, doing in enumerate(compared.run()):
            progress.update(task, completed=number, description=doing)
    for size in sizes:
        _show(compared, size)
    out = _report.console(WIDTH)
    for refused in compared.refused:
        out.print(Text(f"not counted: {refused}"), soft_wrap=True)
    rows = as_rows(compared.choices)
    write_json(json_path, {"ringside": _core.__version__, "lengths": taken, "choices": rows})
    write_csv(csv_path, rows)
    if draw is not None and compared.choices:
        picture = f"{taken}, {mask_words(named.mask)}", make_room_for(draw)
        explore_picture.draw(compared.choices, *picture)
        print(f"drawn: {draw}")


def _model_of(name: str | None, head_dim: int) -> TimeModel | None:
    """The one that was asked for, which must know the head size; else the default, if it does."""
    model = as_model(DEFAULT_MODEL if name is None else name)
    try:
        model.kernel(head_dim, DTYPE)
    except _core.Unsupported:
        if name is not None:
            raise
        return None
    return model


def _show(compared: Comparison, cp_size: int) -> None:
    """The table of one number of ranks, and the choice."""
    counted = [choice for choice in compared.choices if choice.cp_size == cp_size]
    caption = _caption(compared.settings) if cp_size == compared.settings.cp_sizes[-1] else ""
    table = _report.new_table(f"{cp_size} ranks", caption)
    for name in ("partition", "transport", ""):
        table.add_column(name, no_wrap=True)
    for name, _ in COLUMNS:
        table.add_column(HEADINGS.get(name, name), justify="right")
    previous = ""
    for choice in counted:
        partition = "" if choice.partition == previous else choice.partition
        table.add_row(partition, choice.comm, "*" if choice.best else "", *_numbers(choice))
        previous = choice.partition
    out = _report.console(WIDTH)
    out.print(table)
    found = compared.recommended(cp_size)
    if found is not None:
        chosen, reason = found
        out.print(Text(f"take {chosen.name}: {reason}.\n"), soft_wrap=True)


def _caption(settings: Settings) -> str:
    """Says whose times these are, or why there are none: then the choice goes by blocks."""
    model = settings.model
    of_heads = f"{DTYPE} heads of {settings.heads.head_dim}"
    if model is None:
        return CAPTION.format(ms=f"ms: none, as model {DEFAULT_MODEL} knows no {of_heads}")
    return CAPTION.format(ms=f"ms: both passes, predicted by model {model.name}, {of_heads}")


def _numbers(choice: Choice) -> list[str]:
    values = ((getattr(choice, name), form) for name, form in COLUMNS)
    return ["" if value is None else format(value, form) for value, form in values]
