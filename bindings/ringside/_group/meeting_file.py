"""Where the processes of one host meet without being told: a file that only their user can read.

Rank 0 posts a notice there; the others try what they read until it works, as the file may be left
over from a job that was killed.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from ringside._core import InvalidArgument
from ringside._group import host, notice
from ringside._group.notice import Notice


class MeetingFile:
    """The file of a job on this host; a ringside._group.notice.Board."""

    hint = (
        "no file of this host says where; set RINGSIDE_RENDEZVOUS and RINGSIDE_KEY for ranks in "
        "containers of their own"
    )
    is_of_one_host = outlives_jobs = True

    def __init__(self, job: str) -> None:
        self.job, self.words = job, "a file of this host"

    def ways(self) -> list[str]:
        """That of one host."""
        return ["127.0.0.1"]

    def open(self) -> None:
        """Refuses a folder that is not safe."""
        path_of(self.job)

    def post(self, said: Notice, seconds: float) -> None:
        """Puts a whole file in place of what is there."""
        path = path_of(self.job)
        descriptor, name = tempfile.mkstemp(dir=path.parent)  # mode 600
        with os.fdopen(descriptor, "w") as file:
            file.write(said.encoded())
        os.replace(name, path)

    def read(self, seconds: float) -> Notice | None:
        """What the file says, None as long as there is none."""
        try:
            return notice.decoded(path_of(self.job).read_text())
        except OSError:
            return None

    def take_down(self) -> None:
        """Removes the file."""
        path_of(self.job).unlink(missing_ok=True)


def path_of(job: str) -> Path:
    """The file of a job on this host, in a folder of this user's own.

    Containers and hosts may share the folder, and have jobs that look alike.
    """
    folder = Path(tempfile.gettempdir()) / f"ringside-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not folder.is_dir() or folder.is_symlink() or status.st_uid != os.getuid():
        raise InvalidArgument(
            f"{folder} is not this user's folder; expected so. Remove it, or set TMPDIR to a "
            "folder of your own in all processes"
        )
    if status.st_mode & 0o077:
        raise InvalidArgument(f"{folder} is open to others; expected mode 700. Run chmod 700")
    return folder / hashlib.sha256(f"{host.network()} {job}".encode()).hexdigest()[:32]
