"""Tries one peer inside its own environment; a line of JSON for each verdict.

python -m ringside.testing.peers.worker FOLDER '{"cases": 5}' [FEATURE...]
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from ringside.testing.peers.adapter import AdapterError
from ringside.testing.peers.drawing import Axes
from ringside.testing.peers.trial import Settings, try_peer
from ringside.testing.peers.verdict import Verdict

__all__ = ["main", "settings_from", "settings_to"]


def settings_to(settings: Settings) -> str:
    """As JSON."""
    return json.dumps(dataclasses.asdict(settings))


def settings_from(text: str) -> Settings:
    """What settings_to wrote.

    >>> settings_from(settings_to(Settings(cases=7, axes=Axes(heads=((4, 2),))))).axes.heads
    ((4, 2),)
    """
    given: dict[str, Any] = json.loads(text)
    axes = {name: _tuples(value) for name, value in given.pop("axes", {}).items()}
    return Settings(**given, axes=Axes(**axes))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def main() -> int:
    """Exit code 3 where the adapter is broken."""
    answers = os.fdopen(os.dup(1), "w")  # what a package prints goes elsewhere
    os.dup2(2, 1)
    folder, settings, *names = sys.argv[1:]

    def tell(verdict: Verdict) -> None:
        print(json.dumps(verdict.to_dict()), file=answers, flush=True)

    try:
        try_peer(Path(folder), names, settings_from(settings), tell)
    except AdapterError as error:
        print(json.dumps({"broken": str(error)}), file=answers, flush=True)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
