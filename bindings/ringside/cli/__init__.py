"""The ringside command; it needs typer and rich, which the extra "cli" brings."""

from __future__ import annotations

import sys
from typing import Any

from ringside._extras import MissingExtra

__all__ = ["app", "main"]


def main() -> None:
    """Runs the command; exit code 2 and one sentence where its packages are not installed."""
    try:
        from ringside.cli.commands import main as run
    except MissingExtra as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    run()


def __getattr__(name: str) -> Any:
    """The typer application, made when it is asked for."""
    if name == "app":
        from ringside.cli.commands import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
