"""The wheel that ./dev built works where there is nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEELS = sorted((ROOT / "build" / "wheel").glob("ringside-*.whl"))


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """The python of an environment with the wheel and what its command and test kit need."""
    assert len(WHEELS) == 1, "./dev test builds it"
    folder = tmp_path_factory.mktemp("environment")
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--python", sys.executable, folder], check=True)
    python = folder / "bin" / "python"
    wanted = f"{WHEELS[0]}[cli,testing]"
    subprocess.run([*uv, "pip", "install", "--python", python, wanted], check=True)
    return python


def said(python, *words):
    """What it prints, outside of the checkout and without a word of this environment."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
    ended = subprocess.run(
        [python, *words], cwd=python.parent, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_it_is_imported_from_there(empty):
    where = said(empty, "-c", "import ringside; print(ringside.__file__)")
    assert Path(where.strip()).is_relative_to(empty.parents[1])


def test_it_verifies_plans(empty):
    assert "agree" in said(empty.parent / "ringside", "verify", "--random", "20", "--seed", "1")


def test_it_shows_plans(empty):
    show = "import ringside as rs; print(rs.plan(rs.PackedLayout([0, 8]), cp_size=2).show().html)"
    assert said(empty, "-c", show).startswith("<!DOCTYPE html>")


def test_it_brings_traces_pictures_need_another_extra(empty):
    assert "man_pages" in said(empty, "-c", "import ringside as rs; print(rs.lengths.names())")
    draw = "import ringside as rs; rs.plan(rs.PackedLayout([0, 8]), cp_size=2).draw('plan.png')"
    ended = subprocess.run([empty, "-c", draw], capture_output=True, text=True)
    assert ended.returncode == 1 and "pip install matplotlib" in ended.stderr


def test_it_brings_the_notebooks(empty, tmp_path):
    printed = said(empty.parent / "ringside", "learn", tmp_path / "notebooks")
    wanted = {path.name: path.read_bytes() for path in (ROOT / "notebooks").glob("*.ipynb")}
    copied = {path.name: path.read_bytes() for path in (tmp_path / "notebooks").iterdir()}
    assert copied == wanted and all(name in printed for name in wanted)
