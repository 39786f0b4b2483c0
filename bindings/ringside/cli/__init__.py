"""The ringside command."""

from ringside.cli.commands import app, main

__all__ = ["app", "main"]
