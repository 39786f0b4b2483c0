"""Peers where Ringside itself runs: what the interpreter has, in the versions that it has."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ringside
from ringside.testing.peers.adapter import Peer
from ringside.testing.peers.environment import Absent, Environment

__all__ = ["Here", "found_here", "gpus"]


def found_here(peer: Peer) -> Peer:
    """The peer in the versions that are installed here; Absent where it, or what it needs, is not.

    >>> from ringside.testing.peers import Peer
    >>> found_here(Peer("numpy", "0.0.1")).version == "0.0.1"
    False
    """
    names = [re.split("[=<>]", requirement)[0] for requirement in peer.requires]
    own, *others = (_version(name) for name in (peer.package, *names))
    requires = tuple(f"{name}=={version}" for name, version in zip(names, others, strict=True))
    return dataclasses.replace(peer, version=own, requires=requires)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise Absent(f"{sys.executable} has no {package}") from None


class Here(Environment):
    """The running interpreter as a peer's environment: nothing is installed.

    Args:
        folder: of the peer.
        peer: what package.json says; the versions are those that are found.
    """

    def __init__(self, folder: Path, peer: Peer) -> None:
        self.folder, self.peer = folder.resolve(), peer
        self.root, self.python = Path(sys.prefix), Path(sys.executable)

    def install(self) -> None:
        """Nothing; Absent where something is not here."""
        self.peer = found_here(self.peer)
        if self.peer.holds and importlib.util.find_spec(self.peer.holds) is None:
            raise Absent(f"{self.peer.package} {self.peer.version} holds no {self.peer.holds}")

    def _path(self) -> str:
        """This Ringside, and what the caller put on the path."""
        own = str(Path(ringside.__file__).parent.parent)
        return os.pathsep.join(filter(None, (own, os.environ.get("PYTHONPATH"))))


def gpus() -> list[str]:
    """Names of the GPUs that a process sees, by nvidia-smi; none where there is none."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = [command, "--query-gpu=name", "--format=csv,noheader"]
    ended = subprocess.run(query, capture_output=True, text=True, check=False)
    names = ended.stdout.splitlines() if ended.returncode == 0 else []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return names
    return names[: len([x for x in visible.split(",") if x.strip() not in ("", "-1")])]
