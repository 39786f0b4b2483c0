"""What a process of `ringside run` leaves for it: whether it failed because of another one.

Those whom a failure is told may end before the process that failed, which has things to tidy up.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

NOTES = "RINGSIDE_RUN_NOTES"  # the folder


def note_failed_by_others() -> None:
    """Where the failure of a group is raised; nothing if `ringside run` did not start this."""
    folder, rank = os.environ.get(NOTES), os.environ.get("RINGSIDE_RANK")
    if folder and rank:
        with contextlib.suppress(OSError):
            (Path(folder) / rank).touch()


def failed_by_others(process: int, folder: str) -> bool:
    """Whether that process said so."""
    return (Path(folder) / str(process)).exists()
