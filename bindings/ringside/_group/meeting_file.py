"""Where the processes of one host meet without being told: a file that only their user can read.

Rank 0 writes an address and a key into it; the others try what they read until it works, as the
file may be left over from a job that was killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import tempfile
from pathlib import Path

from ringside._core import InvalidArgument
from ringside._group import host


def path_of(job: str) -> Path:
    """The file of a job on this host, in a folder of this user's own.

    Containers and hosts may share the folder, and have jobs that look alike.
    """
    folder = Path(tempfile.gettempdir()) / f"ringside-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not folder.is_dir() or folder.is_symlink() or status.st_uid != os.getuid():
        raise InvalidArgument(f"{folder} is not this user's folder; expected so. Remove it")
    if status.st_mode & 0o077:
        raise InvalidArgument(f"{folder} is open to others; expected mode 700. Run chmod 700")
    return folder / hashlib.sha256(f"{host.network()} {job}".encode()).hexdigest()[:32]


def new_key() -> bytes:
    """A random key, as text that travels well."""
    return secrets.token_hex(32).encode()


def write(path: Path, address: tuple[str, int], key: bytes) -> None:
    """Puts a whole file in place of what is there."""
    descriptor, name = tempfile.mkstemp(dir=path.parent)  # mode 600
    with os.fdopen(descriptor, "w") as file:
        json.dump({"host": address[0], "port": address[1], "key": key.decode()}, file)
    os.replace(name, path)


def read(path: Path) -> tuple[tuple[str, int], bytes] | None:
    """The address and the key, None as long as there are none."""
    try:
        data = json.loads(path.read_text())
        return (str(data["host"]), int(data["port"])), str(data["key"]).encode()
    except (OSError, ValueError, KeyError, TypeError):
        return None
