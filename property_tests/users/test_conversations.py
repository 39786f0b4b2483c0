"""What users of six kinds would type, as scripts: each runs as it stands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ringside as rs

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


def test_there_are_six():
    names = ["engineer", "library_author", "packager", "researcher", "student", "torch_user"]
    assert [path.stem for path in SCRIPTS] == names


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs_as_it_stands(path, tmp_path):
    package = str(Path(rs.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": package}
    ended = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
