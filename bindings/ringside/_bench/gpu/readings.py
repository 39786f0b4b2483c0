"""The GPU's clocks and power while something is measured: they limit it, and drift."""

from __future__ import annotations

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

FIELDS = {  # by nvidia-smi's names
    "sm_clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "power_w": "power.draw",
    "temperature_c": "temperature.gpu",
}
BUSY = 50  # percent of a period in which a kernel ran
EVERY_MS = 500  # each asks the driver, which what is measured does, too


class Readings:
    """What nvidia-smi reads of a GPU, twice a second, for as long as the context lasts.

    Where there is no nvidia-smi, or it knows a number not, that number is missing.

    Args:
        gpu: as nvidia-smi names it, by its UUID or index.
    """

    def __init__(self, gpu: str) -> None:
        """Nothing is read yet."""
        self._gpu = gpu
        self._process: subprocess.Popen[bytes] | None = None
        self._read: list[tuple[float, float | None, dict[str, float]]] = []

    def __enter__(self) -> Readings:
        """Begins to read."""
        query = ",".join(("utilization.gpu", *FIELDS.values()))
        command = ["nvidia-smi", f"--id={self._gpu}", f"--query-gpu={query}"]
        command += ["--format=csv,noheader,nounits", f"--loop-ms={EVERY_MS}"]
        ours, its = os.openpty()  # into a pipe it would write by pages
        try:
            quiet = subprocess.DEVNULL
            self._process = subprocess.Popen(command, stdin=quiet, stdout=its, stderr=quiet)
        except OSError:
            os.close(ours)
        else:
            threading.Thread(target=self._take, args=(ours,), daemon=True).start()
        finally:
            os.close(its)
        return self

    def __exit__(self, *_: object) -> None:
        """Ends."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def medians(self, since: float) -> dict[str, float]:
        """Of readings since then (time.monotonic()) in which the GPU was busy, or else of all.

        >>> Readings("0").medians(0.0)
        {}
        """
        recent = [x for x in list(self._read) if x[0] >= since]
        busy = [x for x in recent if x[1] is not None and x[1] >= BUSY] or recent
        found = {name: [x[2][name] for x in busy if name in x[2]] for name in FIELDS}
        return {name: statistics.median(values) for name, values in found.items() if values}

    def _take(self, ours: int) -> None:
        for line in _lines(ours):
            utilization, *numbers = (_number(word) for word in line.split(","))
            if len(numbers) == len(FIELDS):
                named: dict[str, Any] = dict(zip(FIELDS, numbers, strict=True))
                known = {name: x for name, x in named.items() if x is not None}
                self._read.append((time.monotonic(), utilization, known))


def _lines(terminal: int) -> Iterator[str]:
    with os.fdopen(terminal, encoding="utf-8", errors="replace") as text:
        try:
            yield from text
        except OSError:  # as a terminal says that nobody writes any more
            return


def _number(word: str) -> float | None:
    """None where nvidia-smi says [N/A].

    >>> _number(" 1980"), _number("[N/A]")
    (1980.0, None)
    """
    try:
        return float(word)
    except ValueError:
        return None
