"""The notebooks that travel with the package."""

from __future__ import annotations

import importlib.resources
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, SupportsIndex

from ringside._core import InvalidArgument, arguments

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def notebooks() -> dict[int, str]:
    """Names of the notebooks by their numbers.

    >>> from ringside import learn
    >>> learn.notebooks()[1]
    '1_what_is_a_pack.ipynb'
    """
    return {number: file.name for number, file in _files().items()}


def copy_notebooks(
    folder: str | os.PathLike[str], only: Sequence[SupportsIndex] = ()
) -> list[Path]:
    """Copies notebooks into a folder, which is made; nothing is written over.

    Args:
        folder: where to.
        only: the numbers of some; default all.

    Returns:
        The files written, in the order of their numbers.

    Raises:
        InvalidArgument: a number that no notebook has, or a file that is there already; then none
            is written.
        OSError: the folder cannot be written to.

    >>> import tempfile
    >>> from ringside import learn
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in learn.copy_notebooks(folder, [1])]
    ['1_what_is_a_pack.ipynb']
    """
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"got a folder of type {type(folder).__name__}; expected a path")
    files = _chosen(only)
    targets = [Path(folder) / file.name for file in files]
    there = [str(target) for target in targets if target.exists()]
    if there:
        raise InvalidArgument(
            f"got {there[0]}, which is there already; expected a folder without these notebooks. "
            "Name another folder, or move yours away; nothing was written"
        )
    Path(folder).mkdir(parents=True, exist_ok=True)
    for file, target in zip(files, targets, strict=True):
        target.write_bytes(file.read_bytes())
    return targets


def _chosen(only: Sequence[SupportsIndex]) -> list[Traversable]:
    """The files of these numbers, each once; all by default."""
    files = _files()
    if not files:
        raise InvalidArgument(
            "got an installation without notebooks; expected those that travel with the package. "
            "Install it anew, or run this in a checkout"
        )
    wanted = sorted({arguments.integer(number, "only") for number in only}) or sorted(files)
    for number in wanted:
        if number not in files:
            known = ", ".join(map(str, files))
            raise InvalidArgument(
                f"got notebook {number}; expected one of {known}. Pass such a number"
            )
    return [files[number] for number in wanted]


def _files() -> dict[int, Traversable]:
    """The notebooks of the installed package, or else of the checkout around it, by number."""
    shipped = importlib.resources.files("ringside") / "notebooks"
    checkout = Path(__file__).resolve().parents[3] / "notebooks"
    folder = shipped if shipped.is_dir() else checkout
    if not folder.is_dir():
        return {}
    numbered = {
        int(match[1]): file
        for file in folder.iterdir()
        if (match := re.fullmatch(r"(\d+)_\w+\.ipynb", file.name))
    }
    return dict(sorted(numbered.items()))
