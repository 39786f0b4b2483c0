"""Names that the modules of ringside use of one another exist, also where only a GPU gets to."""

import ast
import importlib
import importlib.util
import types
from pathlib import Path

import pytest
import ringside as rs

FOLDER = Path(rs.__file__).parent
SOURCES = sorted(FOLDER.rglob("*.py"))
NEEDS_A_BUILD_WITH_CUDA = "ringside._cuda_core"


def imported(tree):
    """(module, name, alias) of every `from ringside... import name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ringside":
            for name in node.names:
                yield node.module, name.name, name.asname or name.name


def loaded(module):
    """The module, or None where it, or what it is made on, is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.startswith("ringside") and missing != NEEDS_A_BUILD_WITH_CUDA:
            raise
        return None


def absent_names(source):
    """What a source uses of other modules and is not there."""
    tree = ast.parse(source)
    modules = {}
    for origin, name, alias in imported(tree):
        holder = loaded(origin)
        value = getattr(holder, name, None) or loaded_part(holder, name)
        if isinstance(value, types.ModuleType):
            modules[alias] = value
        elif holder is not None and not hasattr(holder, name):
            yield f"{origin}.{name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            holder = modules.get(node.value.id)
            if holder is not None and not hasattr(holder, node.attr):
                yield f"{holder.__name__}.{node.attr}"


def loaded_part(package, name):
    """A module of a package that nobody has imported yet; None if there is none."""
    path = f"{getattr(package, '__name__', '')}.{name}"
    found = hasattr(package, "__path__") and importlib.util.find_spec(path)
    return loaded(path) if found else None


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_modules_use_names_that_exist(path):
    assert list(absent_names(path.read_text(encoding="utf-8"))) == []


def test_an_absent_name_is_noticed():
    source = "from ringside._arrays import cuda\ncuda.pointer(cuda.no_such_name)"
    assert list(absent_names(source)) == ["ringside._arrays.cuda.no_such_name"]
    absent = list(absent_names("from ringside._arrays.cuda import nothing"))
    assert absent == ["ringside._arrays.cuda.nothing"]
