"""What the ringside command prints: tables, verdicts, progress."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ringside._extras import extra
from ringside._words import count, mask_words
from ringside.testing._compare import TOLERANCE
from ringside.testing._problems import TENSORS, NamedMask, mask_from

with extra("cli", "the ringside command"):
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.table import Table
    from rich.text import Text

if TYPE_CHECKING:
    from ringside._bench.cpu import Line
    from ringside._bench.gpu.cases import Line as GpuLine
    from ringside._bench.thd import Result
    from ringside._plan.plan import Plan
    from ringside.cli.verify import Verification

MANY_RANKS = 16  # of more, a cost table shows the first and the last ones
MAX_FAULTS = 10


def console(width: int = 110) -> Console:
    """Standard output; as wide as the tables need where nobody looks at it."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else width)


def progress() -> Progress:
    """A bar on standard error that vanishes when done."""
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


def verification(done: Verification, seconds: float) -> None:
    """The table of `ringside verify`, the first disagreements, and the verdict."""
    settings, layout, out = done.settings, done.layout, console()
    heads = settings.heads
    title = (
        f"{count(layout.num_sequences, 'document')} of {settings.pack.lengths}, "
        f"{count(layout.num_tokens, 'token')} in {layout.num_rows:,} rows, cp_size "
        f"{settings.cp_size}, {heads.num_heads} query / {heads.num_kv_heads} kv heads, "
        f"head_dim {heads.head_dim}"
    )
    masks = "; ".join(_mask_note(mask_from(name)) for name in settings.masks)
    caption = (
        f"Errors: largest |plan - definition| / max(1, |definition|), forward and backward, NaN in "
        f"all padding, at most {TOLERANCE:g}, over the masks ({masks}). Imbalance (busiest rank / "
        "mean), fill (pairs / area of the 128 x 128 blocks that hold any) and "
        "MiB received (busiest rank, forward, bfloat16, head_dim 128): causal."
    )
    table = new_table(title, caption)
    for name in ("partition", "transport"):
        table.add_column(name)
    for name in (*TENSORS, "imbalance", "fill", "MiB in"):
        table.add_column(name, justify="right")
    table.add_column("")
    previous = ""
    for row in done.rows:
        errors = [f"{row.errors[tensor]:.1e}" for tensor in TENSORS]
        received = f"{row.bytes_received / 2**20:.1f}"
        cost = f"{row.imbalance:.2f}", f"{row.fill:.2f}", received
        partition = "" if row.partition == previous else row.partition
        table.add_row(partition, row.comm, *errors, *cost, _verdict(not row.disagreement))
        previous = row.partition
    out.print(table)
    faults(out, [f"{row.partition} over {row.comm}, {row.disagreement}" for row in done.failed])
    plans = count(len(done.rows) * len(settings.masks), "plan")
    agree = f"{len(done.failed)} of {len(done.rows)} rows disagree" if done.failed else "all agree"
    out.print(f"{plans} proved and run, forward and backward, in {seconds:.1f} s: {agree}.")


def faults(out: Console, found: Sequence[str]) -> None:
    """The first disagreements, a line each."""
    for fault in found[:MAX_FAULTS]:
        out.print(Text(fault, style="red"), soft_wrap=True)
    if len(found) > MAX_FAULTS:
        out.print(f"... and {len(found) - MAX_FAULTS} more")


def plan_cost(plan: Plan) -> None:
    """What each rank computes, moves and holds."""
    cost = plan.cost()
    table = new_table(
        "forward pass, bfloat16, head_dim 128",
        f"imbalance (busiest rank / mean): {cost.imbalance:.3f}; "
        f"fill (pairs / area of the 128 x 128 blocks that hold any): {cost.fill:.3f}",
    )
    names = ("rank", "pairs", "share", "MiB in", "MiB out", "MiB results in", "most kv rows")
    for name in names:
        table.add_column(name, justify="right")
    pairs, ranks = cost.pairs.sum(axis=1), range(plan.cp_size)
    bytes_in, bytes_out = cost.bytes_received.sum(axis=1), cost.bytes_sent.sum(axis=1)
    few = ranks if len(ranks) <= MANY_RANKS else (*ranks[:4], *ranks[-4:])
    for rank in few:
        moved = (bytes_in[rank], bytes_out[rank], cost.result_bytes_received[rank])
        table.add_row(
            str(rank),
            f"{pairs[rank]:,}",
            f"{pairs[rank] / max(1, pairs.sum()):.1%}",
            *(f"{x / 2**20:.2f}" for x in moved),
            f"{cost.rows_kv[rank].max(initial=0):,}",
        )
        if len(few) < len(ranks) and rank == few[3]:
            table.add_row(*["..."] * len(names))
    console().print(table)


def benchmarks(lines: Iterable[Line], caption: str) -> None:
    """The table of `ringside bench cpu`."""
    table = new_table("ringside bench cpu", caption)
    table.add_column("benchmark", no_wrap=True)
    table.add_column("seconds", justify="right")
    for name in ("reached", "goal", ""):
        table.add_column(name)
    for line in lines:
        verdict = _verdict(line.ok, bad="missed")
        table.add_row(line.benchmark, f"{line.seconds:.3f}", line.reached, line.goal, verdict)
    console().print(table)


def row_movers(results: Iterable[Result]) -> None:
    """The table of `ringside bench thd`."""
    table = new_table(
        "ringside bench thd", "medians of calls that took turns; results compared first"
    )
    for name in ("operation", "cp", "MiB", "ms", "NumPy ms", "times as fast"):
        table.add_column(name, justify="left" if name == "operation" else "right")
    for r in results:
        numbers = (f"{r.mebibytes:.0f}", f"{r.ringside_ms:.2f}", f"{r.numpy_ms:.2f}")
        table.add_row(r.operation, str(r.cp_size), *numbers, f"{r.speedup:.2f}")
    console().print(table)


# (number of a line, heading, format) by section; another section shows whatever it has.
GPU_COLUMNS = {
    "attention": (
        ("call_tflops", "call TFLOP/s", ".0f"),
        ("call_over_peer", "x FA2", ".2f"),
        ("kernels_tflops", "kernels TFLOP/s", ".0f"),
        ("kernels_over_peer", "x FA2", ".2f"),
        ("kernels_rate_over_causal", "x causal", ".2f"),
    ),
    "plans": (
        ("call_ms", "call ms", ".2f"),
        ("call_over_one_rank", "x cp 1", ".2f"),
        ("kernels_ms", "kernels ms", ".2f"),
        ("kernels_over_one_rank", "x cp 1", ".2f"),
    ),
}


def gpu_benchmarks(lines: Sequence[GpuLine], notes: Iterable[str], caption: str) -> None:
    """The tables of `ringside bench gpu`, one a section, then what was left out and why."""
    out = console(width=160)
    for section in dict.fromkeys(line.section for line in lines):
        out.print(_gpu_table(section, [line for line in lines if line.section == section]))
        out.print()
    for note in notes:
        out.print(Text(note), soft_wrap=True)
    goals = [goal for line in lines for goal in line.goals]
    met = f"{sum(goal.met for goal in goals)} of {count(len(goals), 'goal')} met. "
    out.print((met if goals else "") + caption)


def _gpu_table(section: str, lines: Sequence[GpuLine]) -> Table:
    names = dict.fromkeys(name for line in lines for name in line.numbers)
    columns = GPU_COLUMNS.get(section, [(name, name.replace("_", " "), ".4g") for name in names])
    table = new_table(section, "")
    for name in ("case", "", "family"):
        table.add_column(name, no_wrap=True)
    for _, heading, _ in columns:
        table.add_column(heading, justify="right")
    table.add_column("")
    for line in lines:
        numbers = [_number(line.numbers.get(name), form) for name, _, form in columns]
        table.add_row(line.case, line.work, line.family, *numbers, _gpu_verdict(line))
    return table


def _number(x: object, form: str) -> str:
    return "" if x is None else format(x, form) if isinstance(x, float) else str(x)


def _gpu_verdict(line: GpuLine) -> Text:
    if line.fault:
        return Text(f"WRONG: {line.fault}", style="bold red")
    if line.missed:
        return Text(
            "missed: " + ", ".join(f"{goal.name} {goal.bound}" for goal in line.missed), style="red"
        )
    return Text("ok", style="green") if line.goals or not line.numbers else Text("")


def new_table(title: str, caption: str) -> Table:
    """An empty table, in the house's form."""
    table = Table(title=title, caption=caption, box=None, padding=(0, 2, 0, 0))
    table.title_style, table.title_justify, table.caption_justify = "bold", "left", "left"
    return table


def _mask_note(named: NamedMask) -> str:
    words = mask_words(named.mask) + (", keys of other lengths" if named.cross else "")
    return words if words == named.name else f"{named.name}: {words}"


def _verdict(ok: bool, bad: str = "FAIL") -> Text:
    return Text("ok", style="green") if ok else Text(bad, style="bold red")
