"""data/peers.csv, the README's table and the scripts that show faults: written from verdicts."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterable
from pathlib import Path

from ringside.testing.peers.verdict import CPU, Verdict

__all__ = ["in_step", "write"]

BEGIN, END = "<!-- peers: written by ringside peers --write -->", "<!-- peers: end -->"
COLUMNS = (
    *("package", "version", "device", "beside", "entry", "feature", "claims", "verdict", "cases"),
    *("largest_error", "covered", "seen", "smallest_case", "date", "script", "link"),
)
ABSENT = "absent"
Row = dict[str, str]


def row_of(verdict: Verdict) -> Row:
    """A line of the CSV."""
    agrees = verdict.kind == "agrees"
    return {
        "package": verdict.package,
        "version": verdict.version,
        "device": verdict.device,
        "beside": verdict.beside,
        "entry": verdict.entry,
        "feature": verdict.feature,
        "claims": verdict.claims,
        "verdict": verdict.kind,
        "cases": str(verdict.cases),
        "largest_error": f"{verdict.ratio:.2g}" if agrees else "",
        "covered": verdict.covered if agrees else "",
        "seen": "" if agrees else " | ".join(x.strip() for x in verdict.told.splitlines()),
        "smallest_case": verdict.smallest,
        "date": verdict.date,
        "script": script_name(verdict) if verdict.script else "",
        "link": verdict.link,
    }


def subject(row: Row) -> tuple[str, str]:
    """What verdicts are of: a package on a device; a run replaces all that was said of it."""
    return row["package"], row["device"]


def _in_order(row: Row) -> tuple[str, str]:
    return row["package"].lower(), row["device"]


def script_name(verdict: Verdict) -> str:
    """Of the file in data/peers."""
    device = "" if verdict.device == CPU else verdict.device.split()[-1]
    text = f"{verdict.package} {device} {verdict.feature} {verdict.fault.split(':')[0]}"
    return re.sub(r"\W+", "_", text).strip("_").lower() + ".py"


def read(path: Path) -> list[Row]:
    """The rows of a CSV, none where there is no file yet."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def text_of(rows: Iterable[Row]) -> str:
    """The CSV."""
    written = io.StringIO()
    writer = csv.DictWriter(written, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()


def write(root: Path, verdicts: list[Verdict]) -> None:
    """Replaces what is said of these packages on the devices they ran on, everywhere.

    One that is absent today keeps what was seen of it on another day.

    Args:
        root: of the checkout.
        verdicts: of whole packages.
    """
    path, scripts = root / "data" / "peers.csv", root / "data" / "peers"
    before = read(path)
    seen = {subject(row) for row in before if row["verdict"] != ABSENT}
    new = [row_of(verdict) for verdict in verdicts]
    kept = [row["verdict"] != ABSENT or subject(row) not in seen for row in new]
    verdicts, new = (list(itertools.compress(x, kept)) for x in (verdicts, new))
    said = {subject(row) for row in new}
    for row in before:
        if subject(row) in said and row["script"]:
            (scripts / row["script"]).unlink(missing_ok=True)
    rows = sorted([row for row in before if subject(row) not in said] + new, key=_in_order)
    path.write_text(text_of(rows), encoding="utf-8")
    scripts.mkdir(exist_ok=True)
    for verdict in verdicts:
        if verdict.script:
            (scripts / script_name(verdict)).write_text(verdict.script, encoding="utf-8")
    for file, text in pages(root, rows).items():
        file.write_text(text, encoding="utf-8")


def in_step(root: Path) -> list[str]:
    """Names of the files that do not say what the CSV says."""
    rows = read(root / "data" / "peers.csv")
    wrong = [
        file.relative_to(root).as_posix()
        for file, text in pages(root, rows).items()
        if not file.is_file() or file.read_text(encoding="utf-8") != text
    ]
    named = {row["script"] for row in rows if row["script"]}
    there = {path.name for path in (root / "data" / "peers").glob("*.py")}
    return wrong + sorted(f"data/peers/{name}" for name in named ^ there)


def pages(root: Path, rows: list[Row]) -> dict[Path, str]:
    """The README and the page of scripts, as they should be."""
    readme = root / "README.md"
    text = readme.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{readme}: expected one line {BEGIN} and one line {END}. Put them back")
    before, rest = text.split(BEGIN)
    table = "\n".join([BEGIN, *_table(rows), END])
    page = root / "data" / "peers" / "README.md"
    return {readme: before + table + rest.split(END)[1], page: _page(rows)}


def _table(rows: list[Row]) -> Iterable[str]:
    """One line a package: what agreed, and then what did not."""
    yield "| package | agrees | does not |"
    yield "|---|---|---|"
    for which in dict.fromkeys(map(subject, rows)):
        own = [row for row in rows if subject(row) == which]
        good = [row for row in own if row["verdict"] == "agrees"]
        agreed = "; ".join(f"{row['feature']} ({row['cases']})" for row in good)
        names = dict.fromkeys(row["feature"] for row in own if row["verdict"] != "agrees")
        bad = [(name, [row for row in own if row["feature"] == name]) for name in names]
        told = "; ".join(f"{name}: {_seen(of_name)}" for name, of_name in bad)
        if own[0]["verdict"] == ABSENT:
            told = f"absent, and not counted: {own[0]['seen']}"
        yield f"| {_named(own[0])} | {agreed or '-'} | {told or '-'} |"


def _named(row: Row) -> str:
    """A package in its version and, where it is no CPU, what it ran on."""
    where = "" if row["device"] == CPU else f", {row['device']}"
    return f"{row['package']} {row['version']}{where}"


def _seen(rows: list[Row]) -> str:
    """The verdict of one feature, in a few words, with links to the scripts."""
    words = []
    for row in rows:
        tensor = row["seen"].split(" is wrong")[0] if " is wrong" in row["seen"] else ""
        what = f"**{row['verdict']}**" + (f" ({tensor})" if tensor else "")
        words.append(f"[{what}](data/peers/{row['script']})" if row["script"] else what)
    return ", ".join(words)


def _page(rows: list[Row]) -> str:
    lines = [
        "# What did not agree, and scripts that show it",
        "",
        "Written by `ringside peers --write` from [peers.csv](../peers.csv). Each script needs the",
        "package and what its first lines say, not Ringside: it holds the numbers, makes the call,",
        "and compares with a dense computation in float64. Where a package needs kernels of a GPU,",
        "its script plays them on a CPU; without that block it uses the real ones.",
        "",
        "What stands here was seen on the day that is named, of that version alone.",
        "",
    ]
    for row in rows:
        if row["verdict"] in ("agrees", ABSENT):
            continue
        link = f" Public issue: {row['link']}." if row["link"] else ""
        script = f"[{row['script']}]({row['script']})" if row["script"] else "no script"
        lines += [
            f"## {_named(row)}: {row['feature']}",
            "",
            f"`{row['entry']}`, {row['date']}: **{row['verdict']}**, {script}.",
            f"It claims: {row['claims']}.{link}",
            "",
            "```",
            *(x.strip() for x in row["seen"].split(" | ")),
            f"smallest case: {row['smallest_case']}",
            "```",
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"
