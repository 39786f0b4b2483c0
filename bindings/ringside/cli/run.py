"""ringside run: the processes of a script, each with ranks of its own."""

from __future__ import annotations

import sys
from typing import Annotated

from ringside import _extras
from ringside._core import InvalidArgument
from ringside._group import launcher

with _extras.extra("cli", "the ringside command"):
    import typer

PASSED_ON = {"allow_extra_args": True, "allow_interspersed_args": False}  # all behind the script


def run(
    context: typer.Context,
    script: Annotated[str, typer.Argument(help="A Python file; what follows is for it.")],
    nproc: Annotated[int, typer.Option("--nproc", metavar="N", help="Number of processes.")] = 1,
) -> None:
    """Run a script in N processes that find each other by rs.init().

    The first process that fails is named and its exit code returned; the others are ended. Signals
    go to all of them.

    Example: ringside run --nproc 4 train.py --steps 100
    """
    try:
        code = launcher.run([sys.executable, script, *context.args], nproc)
    except InvalidArgument as error:
        print(f"Error: {error}", file=sys.stderr)
        code = 2
    raise typer.Exit(code)
