"""The guard of the folders notices each kind of wrong arrow, and an import loads what it must."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("rooms", ROOT / ".dev" / "rooms.py")
rooms = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(rooms)

PLAN = "bindings/ringside/_plan/plan.py"
PACKAGE = [
    Path(PLAN),
    Path("bindings/ringside/cli/commands.py"),
    Path("bindings/ringside/torch.py"),
]


def reader(path, text):
    """Every file is empty but for one."""
    return lambda asked: text if asked == Path(path) else ""


@pytest.mark.parametrize(
    ("path", "include", "offends"),
    [
        ("reference/plan/plan.h", "reference/rows/mask.h", False),
        ("reference/plan/plan.h", "optimized/tables/capacity.h", True),
        ("optimized/tables/capacity.h", "optimized/device/memory.h", True),
        ("optimized/exchange/move.h", "optimized/program/program.h", True),
        ("optimized/program/forward.cpp", "optimized/exchange/move.h", False),
        ("optimized/tables/work_list_test.cpp", "reference/thd/reorder.h", False),
        ("optimized/tables/work_list.h", "reference/thd/reorder.h", True),
        ("optimized/new/thing.h", "reference/rows/mask.h", True),
    ],
)
def test_an_include_points_down_the_table(path, include, offends):
    read = reader(path, f'#include "{include}"\n')
    assert bool(list(rooms.wrong_includes([Path(path)], read))) == offends


@pytest.mark.parametrize(
    ("text", "offends"),
    [
        ("from ringside import _core", False),
        ("from ringside._arrays.programs import Call", False),
        ("from ringside.cli.commands import main", True),
        ("from ringside.cli import commands", True),
        ("def late():\n    import ringside.torch", True),
        ("import numpy", False),
    ],
)
def test_an_import_points_down_the_table(text, offends):
    assert bool(list(rooms.wrong_imports(PACKAGE, reader(PLAN, text)))) == offends


def test_a_row_that_climbs_is_named(monkeypatch):
    assert list(rooms.climbing_rows()) == []
    climbing = {"low": {"high"}, "high": set()}
    monkeypatch.setattr(rooms, "MAY_INCLUDE", climbing)
    assert len(list(rooms.climbing_rows())) == 1


def test_a_crowded_folder_is_named_and_tests_beside_sources_do_not_count():
    files = [Path(f"room/{n}.h") for n in range(rooms.MAX_FILES)]
    assert list(rooms.crowded_folders([*files, Path("room/0_test.cpp")])) == []
    assert len(list(rooms.crowded_folders([*files, Path("room/one_more.h")]))) == 1


def test_importing_the_package_loads_neither_drawing_nor_commands_nor_benchmarks():
    heavy = ("matplotlib", "typer", "rich", "hypothesis", "torch", "jax")
    ours = ("ringside.cli", "ringside.testing", "ringside._bench", "ringside._pictures.whole")
    code = "import ringside, sys; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert [name for name in loaded if name.startswith((*heavy, *ours))] == []
