"""The planted faults still have their places; whether tests notice them, ./dev mutants says."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import gpu_mutants
import gpu_suites
import mutants
import noticed
import pytest
import ringside as rs
from copies import suites
from copies.scratch import Failure, Scratch
from copies.suites import OF_USERS, PROPERTIES
from mutants import Verdict, check_list, main
from mutants_list import MUTANTS, Mutant
from mutants_of_counts import MUTANTS_OF_COUNTS, MUTANTS_OF_PACKS
from mutants_of_groups import MUTANTS_OF_GROUPS
from mutants_of_notebooks import MUTANTS_OF_LEARNING, MUTANTS_OF_NOTEBOOKS
from mutants_of_outsiders import MUTANTS_OF_OUTSIDERS
from mutants_of_pictures import MUTANTS_OF_PICTURES
from mutants_of_primitives import MUTANTS_OF_PRIMITIVES
from mutants_of_schedules import MUTANTS_OF_SCHEDULES
from mutants_of_shared_paths import MUTANTS_OF_SHARED_PATHS
from mutants_of_times import MUTANTS_OF_TIMES
from mutants_of_users import MUTANTS_OF_USERS
from noticed import Noticed

HERE = Path(__file__).parents[1]


def test_every_fault_has_exactly_one_place_and_its_own_name():
    check_list(MUTANTS + MUTANTS_OF_PRIMITIVES + MUTANTS_OF_SHARED_PATHS)
    check_list(MUTANTS_OF_COUNTS + MUTANTS_OF_TIMES + MUTANTS_OF_PICTURES)
    check_list(MUTANTS_OF_SCHEDULES + MUTANTS_OF_OUTSIDERS + MUTANTS_OF_PACKS)
    check_list(gpu_mutants.everything())
    check_list(MUTANTS_OF_GROUPS + MUTANTS_OF_USERS + MUTANTS_OF_LEARNING)
    check_list(MUTANTS_OF_NOTEBOOKS)


@pytest.mark.parametrize("plant", [main, gpu_mutants.main])
def test_shares_are_together_the_whole(capsys, plant):
    def names(*options):
        assert plant(["--list", *options]) == 0
        return capsys.readouterr().out.splitlines()

    parts = [names("--share", f"{i}/3") for i in (1, 2, 3)]
    assert sorted(itertools.chain(*parts)) == sorted(names()) and min(map(len, parts)) > 60
    for wrong in ("0/3", "4/3", "3", "a/b"):
        with pytest.raises(SystemExit):
            plant(["--list", "--share", wrong])
        assert "expected I/N with 1 <= I <= N" in capsys.readouterr().err


def test_every_test_that_is_to_notice_is_there_and_imports_in_the_copy(tmp_path):
    scratch = Scratch(tmp_path, compilers=1)
    scratch.refresh()
    folder = scratch.source / "property_tests"
    files = {name: [*folder.rglob(f"test_{name}.py")] for name in PROPERTIES + OF_USERS}
    assert not [name for name, found in files.items() if len(found) != 1]
    options = ["-q", "-p", "no:cacheprovider", "--assert=plain", "--collect-only"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *itertools.chain(*files.values())],
        cwd=scratch.source,
        env={**os.environ, "PYTHONPATH": str(Path(rs.__file__).parents[1])},
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.fixture
def played_trials(monkeypatch):
    """Seats at a build of nothing; of faults, those called "seen" are noticed."""
    tried = []

    class Played:
        def __init__(self, folder, joint):
            self.folder, self.numbers = folder, {"seen, switched": 1}

        def refresh(self):
            pass

    def verdict_on(mutant, scratch, *_):
        tried.append((mutant.name, scratch.folder))
        return Verdict("a test" if "seen" in mutant.name else "", 0.0)

    monkeypatch.setattr(mutants, "joint_build", lambda *_: Played("joint", None))
    monkeypatch.setattr(mutants, "Seat", Played)
    monkeypatch.setattr(mutants, "verdict_on", verdict_on)
    return tried


@pytest.fixture
def nobody(tmp_path):
    """Nobody has noticed anything."""
    return Noticed([], tmp_path / "noticed.json")


@pytest.mark.parametrize("jobs", [1, 3])
def test_seats_share_the_faults_and_name_each_survivor(played_trials, nobody, jobs):
    faults = [Mutant(f"{'seen' if i % 4 else 'missed'} {i}", "dev", "a", "b") for i in range(20)]
    survivors = mutants.try_all(faults, "cpp", jobs, nobody)
    assert sorted(survivors) == sorted(f.name for f in faults if "missed" in f.name)
    assert sorted(name for name, _ in played_trials) == sorted(f.name for f in faults)
    assert 1 <= len({folder for _, folder in played_trials}) <= jobs


def test_what_must_be_built_is_tried_at_the_end_in_the_joint_copy(played_trials, nobody):
    names = ("seen, planted", "seen, switched", "seen, of python")
    files = ("room/x.h", "room/x.cpp", "room/x.py")
    faults = [Mutant(name, file, "a", "b") for name, file in zip(names, files, strict=True)]
    assert mutants.try_all(faults, "cpp", 1, nobody) == []
    assert [name for name, _ in played_trials] == [names[1], names[2], names[0]]
    assert [folder == "joint" for _, folder in played_trials] == [False, False, True]


def test_trials_count_for_nothing_where_a_likely_test_is_red_without_a_fault(
    monkeypatch, played_trials, nobody
):
    asked = []

    def run_again(scratch, tests, *_):
        asked.extend(tests)
        return tests[-1] if "reference: X.Y7" in tests else ""

    monkeypatch.setattr(mutants, "run_again", run_again)
    monkeypatch.setattr(mutants, "AT_ONCE", 3)
    faults = [Mutant(f"seen {i}", "dev", "a", "b") for i in range(8)]
    for i, fault in enumerate(faults):
        nobody.tell(fault, f"reference: X.Y{i}")
    with pytest.raises(Failure, match="Y7 is red without any fault"):
        mutants.try_all(faults, "cpp", 1, nobody)
    assert asked == [f"reference: X.Y{i}" for i in range(8)] and played_trials == []


def test_the_tests_of_a_faults_own_folder_are_asked_before_all_others(monkeypatch, tmp_path):
    folder = tmp_path / "reference/rows"
    folder.mkdir(parents=True)
    (folder / "a_test.cpp").write_text("TEST(A, X) {}\nTEST_P(Ps, X) {}\nTYPED_TEST(Ts, X) {}\n")
    asked, scratch = [], Room()
    scratch.source = tmp_path

    def run_gtest(scratch, room, names="*", *_):
        asked.append((room, names))
        return "reference: A.X" if names != "*" else ""

    monkeypatch.setattr(suites, "run_gtest", run_gtest)
    proofs = mutants.Proofs()
    proofs.green = {suites.run_cpp_tests: 0.0}
    memory = Noticed([], tmp_path / "noticed.json")
    fault = Mutant("seen", "reference/rows/a.h", "a", "b")
    beside = "*A.*:*A/*:*Ps.*:*Ps/*:*Ts.*:*Ts/*"
    assert mutants.verdict_on(fault, scratch, "cpp", proofs, memory).killed_by == "reference: A.X"
    assert asked == [("reference", beside)]

    monkeypatch.setattr(suites, "run_gtest", lambda *asking: asked.append(asking[1:3]) or "")
    for file, others in {
        "reference/rows/a.h": [
            ("reference", beside),
            ("reference", f"*-{beside}"),
            ("optimized", "*"),
        ],
        "reference/plan/a.h": [("reference", "*"), ("optimized", "*")],
        "optimized/tables/a.h": [("optimized", "*")],
    }.items():
        asked.clear()
        assert suites.run_cpp_tests(scratch, file) == "" and asked == others


def test_tests_that_name_the_file_come_first(tmp_path):
    texts = {"test_a.py": "auto, automatic", "test_b.py": "+" * 9, "test_c.py": "_auto and auto"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    tests = [tmp_path / name for name in texts]
    nearest = suites.nearest_first(tests, "bindings/ringside/_ranks/auto.py")
    assert [test.name for test in nearest] == ["test_c.py", "test_a.py", "test_b.py"]
    assert suites.nearest_first(tests, "") == tests


SEEN = [Mutant(f"seen {i}", f"room/file_{i % 2}.cpp", "a", "b") for i in range(6)]


def test_who_noticed_a_fault_is_asked_first_and_else_who_noticed_its_neighbours(tmp_path):
    path = tmp_path / "noticed.json"
    noticed = Noticed(SEEN, path)
    assert noticed.likely(SEEN[0]) == []
    noticed.tell(SEEN[0], "reference: Masks.Left/0")
    noticed.tell(SEEN[2], "plans/test_masks.py::test_left (takes too long)")
    noticed.tell(SEEN[4], "plans/test_masks.py::test_left")
    again = Noticed(SEEN, path)
    assert again.likely(SEEN[0]) == ["reference: Masks.Left/0"]
    assert again.likely(SEEN[2]) == ["plans/test_masks.py::test_left"]
    assert again.likely(SEEN[1]) == []
    again.tell(SEEN[2], "")
    assert again.likely(SEEN[2]) == ["reference: Masks.Left/0", "plans/test_masks.py::test_left"]
    others = Noticed([Mutant("of others", "file.py", "a", "b")], path)
    others.tell(SEEN[1], "kernels: Masks.Left")
    assert Noticed(SEEN, path).likely(SEEN[0]) == ["reference: Masks.Left/0"]


def test_what_tests_noticed_is_of_faults_and_tests_that_there_are():
    tests = json.loads(noticed.FILE.read_text(encoding="utf-8"))
    faults = mutants.everything() + gpu_mutants.everything()
    assert not tests.keys() - {fault.name for fault in faults}
    rooms = {*suites.CPP_TESTS, gpu_suites.ROOM}
    for test in tests.values():
        file = test.partition("::")[0]
        assert file.partition(": ")[0] in rooms or (HERE / file).is_file(), test


class Room:
    """A copy in which nothing is planted or built."""

    planted = contextlib.nullcontext


@pytest.mark.parametrize(
    ("likely", "again", "asked"),
    [
        ("", "", ["proof", "all"]),
        ("plans/test_x.py::test_y", "plans/test_x.py::test_y", ["likely"]),
        ("plans/test_x.py::test_y", "", ["likely", "proof", "all"]),
    ],
)
def test_all_are_asked_where_the_likely_ones_notice_nothing(
    monkeypatch, tmp_path, likely, again, asked
):
    told, fault = [], Mutant("seen", "file.cpp", "a", "b")

    def suite(scratch, file=""):
        told.append("proof" if "proof" not in told and "all" not in told else "all")
        return "" if told[-1] == "proof" else "plans/test_other.py::test_z"

    def run_again(scratch, tests, *_):
        told.append("likely")
        assert tests == [likely]
        return again

    monkeypatch.setattr(mutants, "tests_of_its_kind", lambda *_: (suite,))
    monkeypatch.setattr(mutants, "run_again", run_again)
    memory = Noticed([fault], tmp_path / "noticed.json")
    if likely:
        memory.tell(fault, likely)
    verdict = mutants.verdict_on(fault, Room(), "all", mutants.Proofs(), memory)
    assert told == asked and memory.likely(fault) == [verdict.killed_by]


def test_a_fault_that_is_noticed_waits_for_no_proof_of_other_tests(monkeypatch, tmp_path):
    told = []

    def first(scratch, file=""):
        told.append(f"first {file}")
        return "reference: X.Y" if file else ""

    def second(scratch, file=""):
        told.append("second")
        return ""

    monkeypatch.setattr(mutants, "tests_of_its_kind", lambda *_: (first, second))
    fault = Mutant("seen", "file.cpp", "a", "b")
    memory = Noticed([fault], tmp_path / "noticed.json")
    verdict = mutants.verdict_on(fault, Room(), "all", mutants.Proofs(), memory)
    assert verdict.killed_by == "reference: X.Y" and told == ["first ", "first file.cpp"]


def test_a_suite_that_is_red_without_a_fault_clears_nobody():
    proofs = mutants.Proofs()
    with pytest.raises(Failure, match="is red without any fault"):
        proofs.of(test_a_stale_fault_is_refused, lambda: "plans/test_x.py::test_y")


@pytest.mark.parametrize(
    ("file", "cpp"),
    [
        ("bindings/ringside/x.py", False),
        ("bindings/core/plan.cpp", False),
        ("reference/rows/mask.h", True),
        ("optimized/tables/capacity.cpp", True),
    ],
)
def test_no_cpp_test_is_asked_about_a_file_that_its_program_does_not_have(file, cpp):
    asked = mutants.tests_of(Mutant("seen", file, "a", "b"), "all")
    assert (suites.run_cpp_tests in asked) == cpp and len(asked) == 1 + cpp


@pytest.mark.parametrize("wrong", ["0", "-1", "many"])
@pytest.mark.parametrize(
    ("plant", "flag"),
    [(main, "--jobs"), (gpu_mutants.main, "--jobs"), (gpu_mutants.main, "--at-once")],
)
def test_nobody_at_once_is_refused(capsys, plant, flag, wrong):
    with pytest.raises(SystemExit):
        plant(["--list", flag, wrong])
    assert "expected at least 1" in capsys.readouterr().err


def test_a_stale_fault_is_refused():
    with pytest.raises(Failure, match="occurs 0 times in dev"):
        check_list([Mutant("no such line", "dev", "this line is nowhere in dev", "")])
