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
    folder, local = os.environ.get(NOTES), os.environ.get("RINGSIDE_LOCAL_RANK")
    if folder and local:
        with contextlib.suppress(OSError):
            (Path(folder) / local).touch()


def failed_by_others(local: int, folder: str) -> bool:
    """Whether that process of this host said so."""
    return (Path(folder) / str(local)).exists()
