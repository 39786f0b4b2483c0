"""Every run draws other examples and says which; a third stays; a seed repeats a run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import draw_anew
import pytest
import ringside as rs
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import InvalidArgument
from ringside.testing import strategies

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


def shares_of(strategy, *questions):
    """Of 500 drawn cases, the share to which each question's answer is yes."""
    answers = []

    @seed(1)
    @settings(
        max_examples=500, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def draw(case):
        answers.append([bool(question(case)) for question in questions])

    draw()
    return [sum(each) / len(answers) for each in zip(*answers, strict=True)]


def busy_ranks(case):
    return int((case.plan().cost().pairs.sum(axis=1) > 0).sum())


def test_most_cases_have_pairs_on_several_ranks():
    several, none, no_document = shares_of(
        strategies.cases(),
        lambda case: busy_ranks(case) > 1,
        lambda case: busy_ranks(case) == 0,
        lambda case: case.layout_q.num_sequences == 0,
    )
    assert several > 0.5
    assert none < 0.2
    assert 0.01 < no_document < 0.15


def test_every_partition_and_transport_has_its_share():
    questions = [
        *(lambda case, name=name: case.partition == name for name in rs.PARTITIONS),
        *(lambda case, name=name: case.comm == name for name in rs.COMMS),
    ]
    shares = shares_of(strategies.cases(), *questions)
    assert min(shares) > 0.04 and max(shares) < 0.35, shares


def out_of_order(case):
    """Whether a rank has pieces in another order than sequences, their stripes and rows are in."""
    if isinstance(case.partition, str):
        return False
    places = [[(x.seq, x.pos % x.stride, x.pos) for x in shard] for shard in case.partition]
    return any(shard != sorted(shard) for shard in places)


def pieces(case):
    return [] if isinstance(case.partition, str) else [x for shard in case.partition for x in shard]


def in_thirds(case):
    """Whether a stripe of a sequence has three pieces or more."""
    stripes = [(piece.seq, piece.stride, piece.pos % piece.stride) for piece in pieces(case)]
    return any(stripes.count(stripe) > 2 for stripe in stripes)


MET = {
    "rows out of order": (out_of_order, 0.15),
    "strides": (lambda case: any(piece.stride > 1 for piece in pieces(case)), 0.15),
    "three pieces of a stripe": (in_thirds, 0.15),
    "padding": (lambda case: case.layout_q.num_rows > case.layout_q.num_tokens, 0.4),
    "an empty document": (lambda case: 0 in case.layout_q.lengths, 0.1),
    "a document of one token": (lambda case: 1 in case.layout_q.lengths, 0.1),
    "a long document": (lambda case: case.layout_q.lengths.max(initial=0) > 8, 0.4),
    "other keys": (lambda case: case.layout_k is not None, 0.25),
    "a window": (lambda case: 0 <= case.mask.window_size[0] < 2**31 - 1, 0.25),
    "chunks": (lambda case: 0 < case.mask.chunk_size < 2**31 - 1, 0.25),
    "bottom right": (lambda case: case.mask.align == "bottom_right", 0.25),
    "grouped heads": (lambda case: case.num_heads != case.num_kv_heads, 0.3),
    "several kv heads": (lambda case: case.num_kv_heads > 1, 0.25),
    "an option": (lambda case: len(case.options) > 1, 0.5),
}


def test_what_cases_are_to_meet_is_met_often():
    cases = strategies.cases(options=strategies.options)
    shares = shares_of(cases, *(question for question, _ in MET.values()))
    least = [share for _, share in MET.values()]
    rare = {name: x for name, x, y in zip(MET, shares, least, strict=True) if x < y}
    assert not rare


def test_lengths_of_any_range_are_drawn_and_wrong_ones_refused():
    seen = []

    @settings(max_examples=100, database=None, deadline=None)
    @given(strategies.lengths(min_sequences=4, min_length=3, max_length=10**9))
    def draw(lengths):
        seen.extend(lengths)

    draw()
    assert min(seen) >= 3 and max(seen) > 10**4
    assert 0.3 < sum(n < 12 for n in seen) / len(seen) < 0.9

    @given(strategies.lengths(min_length=3, max_length=2))
    def never(lengths):
        pass

    with pytest.raises(InvalidArgument, match="max_value=2"):
        never()
