"""Where the ringside command writes, checked before anything is read or computed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ringside._core import InvalidArgument

PICTURES = (".png", ".pdf", ".svg")


def check_outputs(
    outputs: Mapping[str, Path | None], inputs: Mapping[str, str | Path | None] | None = None
) -> None:
    """Refuses a folder, a file that is read, and one file for two options.

    Args:
        outputs: what is written, by its option.
        inputs: what is read, by its name; one that is no file is left out.

    >>> check_outputs({"--json": Path("a.json"), "--csv": Path("b.csv")}, {"--lengths": "1,2"})
    >>> check_outputs({"--json": Path("a.json"), "--csv": Path("./a.json")})
    Traceback (most recent call last):
    ringside._core.InvalidArgument: --csv a.json: --json is the same file; expected one that \
nothing else of this command is. Pass another
    """
    taken = {name: path for name, path in (inputs or {}).items() if path and os.path.isfile(path)}
    for option, path in outputs.items():
        if path is None:
            continue
        if path.is_dir():
            raise InvalidArgument(
                f"{option} {path}: it is a folder; expected a file that can be written. "
                "Pass another"
            )
        for name, other in taken.items():
            if _are_one_file(path, other):
                raise InvalidArgument(
                    f"{option} {path}: {name} is the same file; expected one that nothing else of "
                    "this command is. Pass another"
                )
        taken[option] = path


def check_picture(path: Path | None) -> None:
    """Refuses a --draw whose name does not say what it is to be.

    >>> check_picture(Path("plan.bmp"))
    Traceback (most recent call last):
    ringside._core.InvalidArgument: --draw plan.bmp; expected a name that ends in .png, .pdf or \
.svg. Pass such a one
    """
    if path is not None and path.suffix.lower() not in PICTURES:
        *most, last = PICTURES
        raise InvalidArgument(
            f"--draw {path}; expected a name that ends in {', '.join(most)} or {last}. "
            "Pass such a one"
        )


def _are_one_file(path: Path, other: str | Path) -> bool:
    """Whatever links lead there; devices may be written to twice."""
    if os.path.exists(path) and os.path.exists(other):
        return os.path.isfile(path) and os.path.samefile(path, other)
    return os.path.realpath(path) == os.path.realpath(other)
