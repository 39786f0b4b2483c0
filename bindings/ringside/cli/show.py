"""ringside show: a plan that was written down, or two, as one offline page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

from ringside import _extras
from ringside._core import InvalidArgument
from ringside._page.page import Page
from ringside._plan.show import page_of_texts
from ringside.cli.files import make_room_for
from ringside.cli.outputs import check_outputs

with _extras.extra("cli", "the ringside command"):
    import typer


def show(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.json", help="As --json of ringside plan.")],
    html: Annotated[
        Path, typer.Option("--html", metavar="FILE", help="Write the page there; overwritten.")
    ],
    compare: Annotated[
        Optional[Path],  # noqa: UP045  typer evaluates it on Python 3.10
        typer.Option(metavar="OTHER.json", help="Another plan beside it, in the same step."),
    ] = None,
) -> None:
    """Write a plan as an interactive page, one file that any browser opens offline.

    The plan is verified first. One that is refused opens at its fault, and the exit code is 1.

    Example: ringside show plan.json --html plan.html --compare other.json
    """
    check_outputs({"--html": html}, {"the plan": plan, "--compare": compare})
    texts = [(str(path), _text(path)) for path in (plan, compare) if path is not None]
    page = page_of_texts(texts)
    _write(page, html)
    print(f"written: {html}")
    for refusal in page.refusals:
        print(f"refused: {refusal}", file=sys.stderr)
    if page.refusals:
        raise typer.Exit(1)


def _write(page: Page, path: Path) -> None:
    try:
        make_room_for(path)
    except OSError as error:
        raise InvalidArgument(
            f"--html {path}: {error.strerror or error}; expected a file that can be written. "
            "Pass another"
        ) from None
    page.save(path)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text"
        raise InvalidArgument(
            f"{path}: {why}; expected a file that ringside plan --json, or Plan.to_json, wrote. "
            "Pass such a one"
        ) from None
