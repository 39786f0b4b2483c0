"""Tries one peer inside its own environment; a line of JSON for each verdict.

python -m ringside.testing.peers.worker FOLDER '{"cases": 5}' [FEATURE...]
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ringside.testing.peers.adapter import AdapterError
from ringside.testing.peers.settings import settings_from
from ringside.testing.peers.trial import try_peer
from ringside.testing.peers.verdict import Verdict

__all__ = ["main"]


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
