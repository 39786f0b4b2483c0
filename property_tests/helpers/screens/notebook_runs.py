"""Notebooks of the checkout, the answers to their exercises, and what running one shows."""

import inspect
import runpy
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[3]
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"), key=lambda path: int(path.name.split("_")[0]))
NUMBERS = [int(path.name.split("_")[0]) for path in PATHS]
SECONDS = 60  # for a cell; a loaded machine is several times slower than CI


class Answers:
    """answers/N.py: the right function, wrong ones called wrong_..., and what a small case is."""

    def __init__(self, number):
        path = ROOT / "property_tests" / "notebooks" / "answers" / f"{number}.py"
        names = runpy.run_path(str(path), run_name=f"answers_{number}")
        own = {
            name: value
            for name, value in names.items()
            if inspect.isfunction(value) and value.__module__ == f"answers_{number}"
        }
        self.is_small = own.pop("is_small")
        self.wrong = {name: value for name, value in own.items() if name.startswith("wrong_")}
        (self.right,) = [
            value
            for name, value in own.items()
            if name not in self.wrong and not name.startswith("_")
        ]
        self.source = inspect.getsource(self.right)


def read(path):
    return nbformat.read(path, as_version=4)


def exercise_of(notebook):
    """The place of the cell with the exercise."""
    (place,) = [
        i for i, cell in enumerate(notebook.cells) if "exercise" in cell.metadata.get("tags", [])
    ]
    return place


def text_of(cell):
    """All that a cell printed and showed in plain text."""
    shown = [out.get("text") or out.get("data", {}).get("text/plain", "") for out in cell.outputs]
    return "\n".join(shown)


def shows_a_picture(cell):
    return any(
        "image/png" in out.get("data", {}) or "<img" in out.get("data", {}).get("text/html", "")
        for out in cell.get("outputs", [])
    )


def run(path, answer):
    """(the notebook as shipped, run; its last text as shipped; its last text with the answer).

    The answer is put into the cell of the exercise and checked in the same kernel, as readers do.
    """
    notebook = read(path)
    place = exercise_of(notebook)
    client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3")
    with client.setup_kernel():
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
        (last,) = [c for c in notebook.cells[place + 1 :] if c.cell_type == "code"]
        shipped = text_of(last)
        notebook.cells[place].source = answer
        for index in (place, notebook.cells.index(last)):
            client.execute_cell(notebook.cells[index], index)
    return notebook, shipped, text_of(last)
