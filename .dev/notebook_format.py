"""What a notebook of this project looks like: few cells, no outputs, no logic, one exercise.

Standard library only; .dev/style.py asks it about every file in notebooks/.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_CELLS, MAX_CODE_COLUMNS, MAX_TEXT_COLUMNS, MAX_CODE_LINES = 15, 100, 120, 15
MAY_IMPORT = {"ringside", "numpy", "matplotlib", "hypothesis"}
LOGIC = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.For, ast.While, ast.If),
    *(ast.Try, ast.With, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp),
)
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
PREDICTION = re.compile(r"prediction = None  # your guess\b.*")


def wrong_notebooks(files: list[Path], root: Path) -> Iterator[str]:
    """Offences of the notebooks among these files, and of numbers that are not 1, 2, 3, ..."""
    numbers = []
    for path in files:
        if path.suffix == ".ipynb":
            name = re.fullmatch(r"notebooks/([1-9]\d*)_[a-z0-9_]+\.ipynb", path.as_posix())
            if name is None:
                yield f"{path}: expected notebooks/N_words_in_small_letters.ipynb"
                continue
            numbers.append(int(name[1]))
            for fault in faults((root / path).read_text(encoding="utf-8"), int(name[1])):
                yield f"{path}: {fault}"
    for number in sorted(numbers):
        if numbers.count(number) > 1:
            yield f"notebooks: {numbers.count(number)} have the number {number}; expected one"


def faults(text: str, number: int) -> Iterator[str]:
    """What is wrong with the text of notebook `number`."""
    try:
        notebook = json.loads(text)
    except ValueError as error:
        yield f"no JSON: {error}"
        return
    written = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if text != written:
        yield "other spaces or another order of keys than json.dumps(indent=1, sort_keys=True)"
    if notebook.get("metadata") != METADATA or notebook.get("nbformat") != 4:
        yield f"metadata or format of its own; expected format 4 and {METADATA}"
    cells = notebook.get("cells", [])
    if not 1 <= len(cells) <= MAX_CELLS:
        yield f"{len(cells)} cells; expected at most {MAX_CELLS}"
    if not cells or not re.match(rf"# {number}\. .*\?$", "".join(cells[0]["source"][:1]).strip()):
        yield f'begins otherwise; expected a first cell with the title "# {number}. ...?"'
    for place, cell in enumerate(cells, 1):
        for fault in _faults_of(cell):
            yield f"cell {place}: {fault}"
    yield from _faults_of_exercise(cells, number)


def _faults_of(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    is_code = cell["cell_type"] == "code"
    widest = MAX_CODE_COLUMNS if is_code else MAX_TEXT_COLUMNS
    for line in source.splitlines():
        if len(line) > widest:
            yield f"a line of {len(line)} columns; expected at most {widest}: {line[:40]}..."
    if source != source.strip():
        yield "blank lines around it"
    if not is_code:
        return
    if cell.get("outputs") or cell.get("execution_count") is not None:
        yield "outputs; strip them (nbstripout, or clear all outputs in Jupyter)"
    if len(source.splitlines()) > MAX_CODE_LINES:
        yield f"{len(source.splitlines())} lines of code; expected at most {MAX_CODE_LINES}"
    if not _is_exercise(cell):
        yield from _logic(source)


def _logic(source: str) -> Iterator[str]:
    """Statements that belong into ringside.learn, where they are tested; imports of others."""
    code = re.sub(r"^%matplotlib inline$", "", source, flags=re.MULTILINE)
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        yield f"no Python: {error}"
        return
    for node in ast.walk(tree):
        if isinstance(node, LOGIC):
            yield f"logic ({type(node).__name__}); put it into ringside.learn and call that"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [name.name for name in node.names]
            for name in [node.module or ""] if isinstance(node, ast.ImportFrom) else names:
                if name.split(".")[0] not in MAY_IMPORT:
                    yield f"imports {name}; expected only {', '.join(sorted(MAY_IMPORT))}"


def _is_exercise(cell: dict[str, Any]) -> bool:
    return "exercise" in cell.get("metadata", {}).get("tags", [])


def _faults_of_exercise(cells: list[dict[str, Any]], number: int) -> Iterator[str]:
    """A prediction is taken, then one function is asked for, and checked in the last code cell."""
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in code]
    if not any(PREDICTION.fullmatch(line) for source in sources for line in source.splitlines()):
        yield 'no prediction; expected a line "prediction = None  # your guess, in ..."'
    marked = [place for place, cell in enumerate(code) if _is_exercise(cell)]
    if len(marked) != 1:
        yield f'{len(marked)} cells with the tag "exercise"; expected one'
        return
    name = re.search(r"^def (\w+)\(", sources[marked[0]], re.MULTILINE)
    last = f"learn.check({number}, {name[1] if name else '...'})"
    if sources[marked[0] + 1 :] != [last]:
        yield f"ends otherwise; expected {last} in one last code cell behind the exercise"
