"""What the ringside command writes: JSON and CSV, in folders that it makes."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Annotated, Any

from ringside import _extras

with _extras.extra("cli", "the ringside command"):
    import typer

JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the results there.")]


def make_room_for(path: Path) -> Path:
    """The path, in a folder that is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_json(path: Path | None, result: Any) -> None:
    """A file of JSON, where a path is given."""
    if path is not None:
        text = json.dumps(_finite(result), indent=1, allow_nan=False)
        make_room_for(path).write_text(text + "\n", encoding="utf-8")


def _finite(x: Any) -> Any:
    """JSON knows no infinity: null takes its place."""
    if isinstance(x, dict):
        return {name: _finite(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [_finite(value) for value in x]
    return x if not isinstance(x, float) or math.isfinite(x) else None


def write_csv(path: Path | None, rows: list[dict[str, Any]], comment: str = "") -> None:
    """A line a row, under all their columns, where a path is given."""
    if path is not None:
        columns = list(dict.fromkeys(name for row in rows for name in row))
        with make_room_for(path).open("w", encoding="utf-8", newline="") as file:
            file.write(f"# {comment}\n" if comment else "")
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
