"""A virtual environment for each peer: the package as PyPI has it, and Ringside beside it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import ringside
from ringside.testing.peers.adapter import AdapterError, Peer
from ringside.testing.peers.settings import Settings, settings_to
from ringside.testing.peers.verdict import Verdict

__all__ = ["Absent", "Environment"]

OF_RINGSIDE = ("numpy", "hypothesis", "ml_dtypes")
INSTALL_S = 900


class Absent(RuntimeError):
    """A package that cannot be had here, and why."""


class Environment:
    """Where a peer runs.

    Args:
        place: the folder of all environments.
        folder: of the peer.
        peer: what is installed.
    """

    def __init__(self, place: Path, folder: Path, peer: Peer) -> None:
        self.folder, self.peer = folder.resolve(), peer
        self.root = (place / f"{folder.name}-{peer.version}").resolve()
        self.python = self.root / "bin" / "python"
        self._stamp = self.root / "ringside-installed.json"

    def install(self) -> None:
        """Makes it where it is not there yet, in the requirements of today; Absent if it cannot."""
        wanted = json.dumps([self.peer.requirements, OF_RINGSIDE, sys.version])
        if not self._stamp.is_file() or self._stamp.read_text(encoding="utf-8") != wanted:
            self._make()
            self._stamp.write_text(wanted, encoding="utf-8")
        self._require_held()

    def _make(self) -> None:
        uv = _uv()
        _run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(self.root)])
        install = [*uv, "pip", "install", "--quiet", "--python", str(self.python)]
        own, *others = self.peer.requirements
        if self.peer.without_dependencies:
            _run([*install, "--no-deps", own])
            _run([*install, *OF_RINGSIDE, *others])
        else:
            _run([*install, *OF_RINGSIDE, own, *others])

    def _require_held(self) -> None:
        """Names on PyPI are held by packages with nothing in them."""
        if not (module := self.peer.holds):
            return
        look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        ended = subprocess.run([str(self.python), "-c", look], capture_output=True, check=False)
        if ended.returncode:
            raise Absent(f"PyPI's {self.peer.package} {self.peer.version} holds no {module}")

    def run(self, features: list[str], settings: Settings, limit_s: float) -> Iterator[Verdict]:
        """Verdicts as they come.

        Args:
            features: names; none for all.
            settings: of the trial.
            limit_s: seconds after which all of it is ended.
        """
        module = "ringside.testing.peers.worker"
        command = [str(self.python), "-m", module, str(self.folder), settings_to(settings)]
        process = subprocess.Popen(
            [*command, *features],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": self._path(), "PYTHONWARNINGS": "ignore"},
        )
        limit = threading.Timer(limit_s, process.kill)
        limit.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                told = json.loads(line)
                if "broken" in told:
                    raise AdapterError(told["broken"])
                yield Verdict(**told)
            code = process.wait()
        finally:
            limit.cancel()
            process.kill()
            process.wait()
        if code:
            raise RuntimeError(
                f"{self.peer.package} {self.peer.version} ended with exit code {code} before all "
                "verdicts were told; see above what it printed"
            )

    def _path(self) -> str:
        """A folder that holds this Ringside and nothing of its environment."""
        folder = self.root / "beside"
        folder.mkdir(exist_ok=True)
        link, package = folder / "ringside", Path(ringside.__file__).parent
        if not link.is_symlink() or link.readlink() != package:
            link.unlink(missing_ok=True)
            link.symlink_to(package)
        return str(folder)


def _uv() -> list[str]:
    if importlib.util.find_spec("uv") is not None:
        return [sys.executable, "-m", "uv"]
    found = shutil.which("uv")
    if found is None:
        raise Absent("uv is not here, which makes its environment: pip install uv")
    return [found]


def _run(command: list[str]) -> None:
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=INSTALL_S
        )
    except subprocess.TimeoutExpired as error:
        raise Absent(f"its installation took more than {INSTALL_S} s") from error
    if ended.returncode:
        lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
        raise Absent(" ".join(lines[-3:])[:400] or f"{command[0]} failed")
