"""Which NCCL a process uses: found, never linked.

The one that the process has loaded, torch's as a rule; else the one that torch's wheels bring; else
the system's. RINGSIDE_NCCL names another. What cannot be used says why.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SONAME = "libnccl.so.2"
OLDEST = (2, 19)
VARIABLE = "RINGSIDE_NCCL"


@dataclass(frozen=True)
class Nccl:
    """A library, or why there is none.

    Attributes:
        path: for dlopen.
        version: as "2.28.9".
        problem: empty where it can be used.
    """

    path: str = ""
    version: str = ""
    problem: str = ""


def find() -> Nccl:
    """The library that this process would use."""
    if path := os.environ.get(VARIABLE):
        return _opened(path, f"{VARIABLE}={path}")
    tried = []
    for path, mode in _places():
        try:
            ctypes.CDLL(path, mode=mode)
        except OSError as error:
            tried.append(str(error))
            continue
        return _opened(path, path)
    return Nccl(problem=f"there is no {SONAME} ({'; '.join(tried[1:])})")


def _places() -> Iterator[tuple[str, int]]:
    yield SONAME, os.RTLD_NOW | os.RTLD_NOLOAD
    if wheel := _of_wheel():
        yield wheel, os.RTLD_NOW
    yield SONAME, os.RTLD_NOW


def _of_wheel() -> str | None:
    """nvidia/nccl/lib/libnccl.so.2 of the package nvidia-nccl."""
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ImportError:  # no package nvidia at all
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder) / "lib" / SONAME).exists():
            return str(path)
    return None


def _opened(path: str, name: str) -> Nccl:
    try:
        library = ctypes.CDLL(path)
        number = ctypes.c_int()
        if library.ncclGetVersion(ctypes.byref(number)) != 0:
            return Nccl(problem=f"{name} does not tell its version")
    except (OSError, AttributeError) as error:
        return Nccl(problem=f"{name} is not NCCL ({error})")
    version = version_of(number.value)
    text = ".".join(map(str, version))
    if version[:2] < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return Nccl(problem=f"{name} is NCCL {text}; expected {oldest} or newer")
    return Nccl(path, text)


def version_of(number: int) -> tuple[int, int, int]:
    """As NCCL counts.

    >>> version_of(22809), version_of(2708)
    ((2, 28, 9), (2, 7, 8))
    """
    major = 10000 if number >= 10000 else 1000
    return number // major, number % major // 100, number % 100
