"""Stubs of ringside._core: pybind11-stubgen's, without the docstrings, which the module has itself.

Run: python3 .dev/stubs.py (./dev stubs does), with ringside installed.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
from pathlib import Path

# pybind11 makes unhashable classes and narrow comparisons, which object does not foresee; an array
# of no dimension is an integer, too.
HEADER = '# mypy: disable-error-code="assignment,override,overload-overlap"\n'
# The package puts functions of Python's around some methods; the stub is of what is below.
WRITE = """
import ringside._core, pybind11_stubgen
for method in vars(kind := ringside._core.PackedLayout).copy():
    if hasattr(vars(kind)[method], "__wrapped__"):
        setattr(kind, method, vars(kind)[method].__wrapped__)
for kind in (ringside._core.PackedLayout, ringside._core.Mask):
    del kind._repr_html_
pybind11_stubgen.main()
"""
PACKAGE = Path(__file__).resolve().parent.parent / "bindings" / "ringside"


def without_docstrings(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Expr(ast.Constant(...))]
    tree.body = [node for node in tree.body if "__all__" not in ast.unparse(node).split(":")[0]]
    return HEADER + ast.unparse(tree) + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = ["ringside._core", "--output-dir", folder, "--numpy-array-use-type-var"]
        subprocess.run([sys.executable, "-c", WRITE, *command], check=True)
        for stub in (Path(folder) / "ringside" / "_core").glob("*.pyi"):
            text = without_docstrings(stub.read_text(encoding="utf-8"))
            (PACKAGE / "_core").mkdir(exist_ok=True)
            (PACKAGE / "_core" / stub.name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
