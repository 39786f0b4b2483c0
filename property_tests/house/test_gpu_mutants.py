"""What the runner of faults in kernels counts as noticed, played without a GPU."""

import os
import threading
import types
from pathlib import Path
from typing import NamedTuple

import gpu_mutants
import pytest
from copies.scratch import Failure
from mutants_list import Mutant
from noticed import Noticed


@pytest.mark.parametrize(
    ("minutes", "code", "said"),
    [("60", 0, "a red test on GPU 5"), ("0", 1, "0 of 1 killed, 1 not tried")],
)
def test_a_fault_that_time_left_untried_is_not_killed(
    monkeypatch, capsys, tmp_path, minutes, code, said
):
    class Copy:
        def __init__(self, mutant, healthy, folder):
            self.mutant, self.folder = mutant, folder / "played"

        def plant(self):
            return []

        def link(self, objects):
            pass

        def red(self, tests, gpu, healthy):
            return f"a red test on GPU {gpu}"

    monkeypatch.setattr(gpu_mutants, "Copy", Copy)
    monkeypatch.setattr(gpu_mutants, "Healthy", lambda build: None)
    monkeypatch.setattr(gpu_mutants, "Noticed", lambda all_: Noticed(all_, tmp_path / "noticed"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    assert gpu_mutants.main(["--only", "float32: output is not", "--minutes", minutes]) == code
    assert said in capsys.readouterr().out


class WithTests(NamedTuple):
    """A build, as far as proofs ask for it."""

    test: str
    package: str = ""


def test_gpu_tests_are_green_without_a_fault_before_they_are_put_to_one(monkeypatch, tmp_path):
    asked, fault = [], Mutant("seen", "file.cu", "a", "b")

    def suite(place):
        asked.append((place.test, place.gpu))
        return "" if place.test == "healthy" else "kernels: Plans.Agree"

    healthy = gpu_mutants.HealthyTests(WithTests("healthy"))
    copy = gpu_mutants.Copy(fault, None, tmp_path)
    for _ in range(2):
        assert copy.red(suite, "1", healthy) == "kernels: Plans.Agree"
    assert asked == [("healthy", "1"), (copy.test, "1"), (copy.test, "1")]


def test_long_suites_wait_until_all_faults_have_had_the_short_ones():
    gpus, order, begun = gpu_mutants.Gpus(["0"]), [], threading.Barrier(4)

    def ask(number):
        begun.wait()
        with gpus.one(number) as place:
            order.append((number, place))

    with gpus.one(0):
        waiting = [threading.Thread(target=ask, args=[number]) for number in (2, 0, 1)]
        for thread in waiting:
            thread.start()
        begun.wait()
        while len(gpus.waiting) < 3:
            pass
    for thread in waiting:
        thread.join()
    assert order == [(0, "0"), (1, "0"), (2, "0")]


def test_a_fault_is_planted_in_the_copy_alone(tmp_path):
    fault = gpu_mutants.KERNELS[0]
    own = gpu_mutants.ROOT / fault.file
    before = own.read_text(encoding="utf-8")
    healthy = types.SimpleNamespace(objects={fault.file: ["x.o"]}, build=tmp_path)
    copy = gpu_mutants.Copy(fault, healthy, tmp_path)
    assert copy.plant() == ["x.o"] and own.read_text(encoding="utf-8") == before
    planted = (copy.source / fault.file).read_text(encoding="utf-8")
    assert planted == before.replace(fault.old, fault.new) != before


class Touches(NamedTuple):
    """A build whose commands make empty files."""

    build: Path

    def command(self, target):
        return f"touch {target}"


def test_objects_of_two_folders_may_share_a_name(tmp_path):
    copy = gpu_mutants.Copy(Mutant("seen", "file.h", "a", "b"), Touches(tmp_path), tmp_path)
    copy.folder.mkdir()
    made = [copy.compile(f"x.dir/{folder}/parts.cpp.o") for folder in ("program", "ranks")]
    assert len({*made}) == 2 and all(path.is_file() for path in made)


def test_gpu_tests_that_are_red_without_a_fault_clear_nobody():
    healthy, asked = gpu_mutants.HealthyTests(WithTests("healthy")), []

    def suite(place):
        asked.append(place)
        return "kernels: Plans.Agree"

    for _ in range(2):  # for all faults to come, too
        with pytest.raises(Failure, match="is red without any fault"):
            healthy.prove(suite, "0")
    assert len(asked) == 1


def played_test(folder, *lines):
    """A test program that only says some lines."""
    test = folder / "test"
    test.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    test.chmod(0o755)
    return test


def test_one_that_wants_more_gpus_is_skipped_and_the_others_count(tmp_path):
    test = played_test(tmp_path, "[  PASSED  ] 99 tests.", "[  SKIPPED ] 1 test.")
    assert gpu_mutants.red_conformance(test, "0", "*") == ""


def test_a_suite_of_which_nothing_ran_clears_nobody(tmp_path):
    test = played_test(tmp_path, "[  PASSED  ] 0 tests.", "[  SKIPPED ] 100 tests.")
    with pytest.raises(Failure, match="nothing was tested"):
        gpu_mutants.red_conformance(test, "0", "*")
    assert gpu_mutants.red_conformance(test, "0", "Plans.NoMore") == ""


@pytest.mark.parametrize(
    ("script", "red"),
    [("echo RACECHECK SUMMARY: 0 hazards", ""), ("echo RACECHECK SUMMARY; exit 1", "racecheck")],
)
def test_a_race_is_what_the_sanitizer_says(monkeypatch, tmp_path, script, red):
    assert gpu_mutants.red_race(played_sanitizer(monkeypatch, tmp_path, script), "0") == red


def test_a_sanitizer_that_does_not_end_clears_nobody(monkeypatch, tmp_path):
    test = played_sanitizer(monkeypatch, tmp_path, "echo no driver; exit 1")
    with pytest.raises(Failure, match="no driver"):
        gpu_mutants.red_race(test, "0")


def played_sanitizer(monkeypatch, folder, script):
    """A compute-sanitizer in front of any other, that only runs a script."""
    played = folder / "compute-sanitizer"
    played.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    played.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "test"
