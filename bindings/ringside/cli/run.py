"""ringside run: the processes of a script, each with ranks of its own."""

from __future__ import annotations

import sys
from typing import Annotated

from ringside import _extras
from ringside._core import InvalidArgument
from ringside._group import launcher
from ringside._group.launcher import Nodes

with _extras.extra("cli", "the ringside command"):
    import typer

PASSED_ON = {"allow_extra_args": True, "allow_interspersed_args": False}  # all behind the script


def run(
    context: typer.Context,
    script: Annotated[str, typer.Argument(help="A Python file; what follows is for it.")],
    nproc: Annotated[
        int, typer.Option("--nproc", metavar="N", help="Number of processes on this host.")
    ] = 1,
    nnodes: Annotated[
        int, typer.Option("--nnodes", metavar="N", help="Number of hosts, with --nproc on each.")
    ] = 1,
    node_rank: Annotated[
        int | None, typer.Option("--node-rank", metavar="I", help="Of this host, from 0.")
    ] = None,
    master_addr: Annotated[
        str | None,
        typer.Option("--master-addr", metavar="HOST", help="Name or address of the first host."),
    ] = None,
    master_port: Annotated[
        int, typer.Option("--master-port", metavar="PORT", help="A free one of the first host.")
    ] = Nodes.port,
) -> None:
    """Run a script in N processes that find each other by rs.init().

    The first process that fails is named and its exit code returned; the others are ended. Signals
    go to all of them. What several processes write to stderr, tracebacks as well, comes line by
    line behind their numbers; stdout is theirs as it is.

    Over several hosts start it on each, with another --node-rank, and RINGSIDE_KEY set to one
    secret text on all of them.

    Example: ringside run --nproc 4 train.py --steps 100
    """
    nodes = Nodes(nnodes, node_rank, master_addr, master_port)
    try:
        code = launcher.run([sys.executable, script, *context.args], nproc, nodes)
    except InvalidArgument as error:
        print(f"Error: {error}", file=sys.stderr)
        code = 2
    raise typer.Exit(code)
