"""Every run draws other examples and says which; a third stays; a seed repeats a run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import draw_anew
import pytest

TESTS_OF_ALL = Path(__file__).parents[1]
TESTS = """
import json, pathlib
from hypothesis import given, settings, strategies as st
seen = {"module": [], "nested": []}

@settings(max_examples=60)
@given(st.integers(0, 2**60))
def test_module(x):
    seen["module"].append(x)

def test_nested():
    @given(st.integers(0, 2**60))
    def check(x):
        seen["nested"].append(x)
    check()
    pathlib.Path("seen.json").write_text(json.dumps(seen))

def test_red():
    assert False
"""


def run(folder, *arguments, **environment):
    """What a run drew, and what it said."""
    (folder / "test_it.py").write_text(TESTS)
    for source in ("conftest.py", "helpers/draw_anew.py"):
        path = TESTS_OF_ALL / source
        (folder / path.name).write_text(path.read_text())
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, "test_it.py"]
    inherited = {k: v for k, v in os.environ.items() if k != draw_anew.VARIABLE}
    done = subprocess.run(
        command, cwd=folder, env={**inherited, **environment}, text=True, capture_output=True
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return json.loads((folder / "seen.json").read_text()), done.stdout


CI = "--hypothesis-profile=ci"


@pytest.mark.parametrize("machine", ["", "true"])
def test_every_run_draws_anew_and_keeps_a_third(tmp_path, machine):
    (one, _), (other, _) = run(tmp_path, CI, CI=machine), run(tmp_path, CI, CI=machine)
    assert one["nested"] != other["nested"]
    same = [a for a, b in zip(one["module"], other["module"], strict=False) if a == b]
    assert 15 <= len(same) <= 35, (len(same), len(one["module"]))  # a third of 60, and chance
    assert one["module"][:15] == other["module"][:15]


@pytest.mark.parametrize("how", ["variable", "option"])
def test_the_seed_that_is_told_repeats_a_run(tmp_path, how):
    first, said = run(tmp_path, CI)
    line = next(x for x in said.splitlines() if x.startswith(draw_anew.VARIABLE))
    number = line.partition("=")[2].split()[0]
    assert said.count(line) == 2, "in the header and beside the failure"
    if how == "variable":
        again, said = run(tmp_path, CI, **{draw_anew.VARIABLE: number})
    else:
        again, said = run(tmp_path, CI, f"--hypothesis-seed={number}")
    assert again == first
    assert line in said


def test_the_profile_of_the_mutants_never_changes(tmp_path):
    profile = "--hypothesis-profile=mutants"
    (one, said), (other, _) = run(tmp_path, profile), run(tmp_path, profile)
    assert one == other
    assert draw_anew.VARIABLE not in said


@pytest.mark.parametrize("text", ["", "-1", "x", "4294967296", "\u00b2"])
def test_a_wrong_seed_says_what_is_expected(text):
    with pytest.raises(ValueError, match="expected an integer from 0 to 4294967295"):
        draw_anew.seed_from(text)
