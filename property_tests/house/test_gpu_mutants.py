"""What the runner of faults in kernels counts as noticed, played without a GPU."""

import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import gpu_mutants
import gpu_suites
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

    monkeypatch.setattr(gpu_mutants.HealthyTests, "prove", lambda *_: 0.0)
    monkeypatch.setattr(gpu_mutants, "Copy", Copy)
    monkeypatch.setattr(
        gpu_mutants, "red", lambda copy, tests, gpu, seconds: f"a red test on GPU {gpu}"
    )
    monkeypatch.setattr(gpu_mutants, "Healthy", lambda build: None)
    monkeypatch.setattr(gpu_mutants, "Noticed", lambda all_: Noticed(all_, tmp_path / "noticed"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    assert gpu_mutants.main(["--only", "float32: output is not", "--minutes", minutes]) == code
    assert said in capsys.readouterr().out


HERE = Path(__file__).parents[1]


class WithTests(NamedTuple):
    """A build, as far as proofs ask for it."""

    test: str
    package: str = ""


def test_gpu_tests_are_green_without_a_fault_before_they_are_put_to_one(monkeypatch, tmp_path):
    asked, fault = [], Mutant("seen", "file.cu", "a", "b")

    def suite(place):
        asked.append((place.test, place.gpu))
        return "" if place.test == "healthy" else "kernels: Plans.Agree"

    healthy, gpus = gpu_mutants.HealthyTests(WithTests("healthy")), gpu_mutants.Gpus(["1"])
    copy = gpu_mutants.Copy(fault, None, tmp_path)
    for _ in range(2):
        seconds = healthy.prove(suite, gpus, 0)
        assert gpu_mutants.red(copy, suite, "1", seconds) == "kernels: Plans.Agree"
    assert asked == [("healthy", "1"), (copy.test, "1"), (copy.test, "1")]


def test_a_kernel_that_hangs_is_ended_after_a_few_times_what_the_suite_takes(tmp_path):
    given = []

    def suite(place):
        given.append(place.patience.seconds)
        return "kernels: Plans.Agree"

    copy = gpu_mutants.Copy(Mutant("seen", "file.cu", "a", "b"), None, tmp_path)
    for seconds in (0.1, 15.0, 1000.0):
        gpu_mutants.red(copy, suite, "0", seconds)
    assert given == [61, 120, gpu_suites.PATIENCE.seconds]


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


def test_every_test_of_a_gpu_that_is_to_notice_is_there():
    """Else pytest runs none of those named beside it."""
    named = {"cuda": gpu_suites.PROPERTIES, "group_cuda": gpu_suites.PROPERTIES_OF_LINKS}
    tests = [HERE / folder / name for folder, suites in named.items() for x in suites for name in x]
    of_several = gpu_suites.OF_SEVERAL_GPUS.values()
    tests += [HERE / "group_cuda" / name for names in of_several for name in names]
    tests += [HERE / name for _, names in gpu_suites.MADE_FOR for name in names if ".py" in name]
    options = ["-q", "-p", "no:cacheprovider", "--collect-only"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_a_fault_is_planted_in_the_copy_alone(tmp_path):
    fault = gpu_suites.KERNELS[0]
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


def test_who_waits_for_the_proof_of_a_suite_keeps_no_gpu():
    def suite(place):
        asked.append(place.gpu)
        begun.set()
        assert go_on.wait(60)
        return ""

    asked, begun, go_on = [], threading.Event(), threading.Event()
    gpus, healthy = gpu_mutants.Gpus(["0", "1"]), gpu_mutants.HealthyTests(WithTests("healthy"))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(healthy.prove, suite, gpus, 0)
        assert begun.wait(60)
        second = pool.submit(healthy.prove, suite, gpus, 0)
        with gpus.one(1) as other:
            healthy.proofs.of(test_objects_of_two_folders_may_share_a_name, lambda: "")
            assert other != asked[0] and not second.done()
            go_on.set()
            assert first.result(60) == second.result(60)
    assert len(asked) == 1


def test_gpu_tests_that_are_red_without_a_fault_clear_nobody():
    healthy, asked = gpu_mutants.HealthyTests(WithTests("healthy")), []

    def suite(place):
        asked.append(place)
        return "kernels: Plans.Agree"

    for _ in range(2):  # for all faults to come, too
        with pytest.raises(Failure, match="is red without any fault"):
            healthy.prove(suite, gpu_mutants.Gpus(["0"]), 0)
    assert len(asked) == 1


def played_test(folder, *lines):
    """A place with a test program that only says some lines."""
    test = folder / "test"
    test.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    test.chmod(0o755)
    return gpu_suites.Place(test, folder, "0")


def test_one_that_wants_more_gpus_is_skipped_and_the_others_count(tmp_path):
    place = played_test(tmp_path, "[  PASSED  ] 99 tests.", "[  SKIPPED ] 1 test.")
    assert gpu_suites.red_conformance(place, "*") == ""


def test_a_suite_of_which_nothing_ran_clears_nobody(tmp_path):
    place = played_test(tmp_path, "[  PASSED  ] 0 tests.", "[  SKIPPED ] 100 tests.")
    with pytest.raises(Failure, match="nothing was tested"):
        gpu_suites.red_conformance(place, "*")
    assert gpu_suites.red_conformance(place, "Plans.NoMore") == ""


def test_faults_are_put_to_the_tests_made_for_their_kind_first():
    def first(fault):
        return gpu_suites.suites_of(fault)[0].__name__

    assert first(gpu_suites.MUTANTS_OF_LINKS[0]).startswith("group_cuda, ")
    assert first(gpu_suites.MUTANTS_OF_NOT_FINITE[0]) == "kernels: CudaProgram.*"
    assert first(Mutant("played", "a/f32/b.cu", "x", "y")) == "Float32/EveryPlan*"
    assert first(Mutant("played", "a/mma/b.cu", "x", "y")) == gpu_suites.IN_BINARY[0]
    twice = [gpu_suites.suites_of(gpu_suites.KERNELS[0]) for _ in range(2)]
    assert twice[0] == twice[1]  # or each would be proved again


def test_faults_of_time_are_put_to_the_interpreter(capsys):
    def listed(*options):
        assert gpu_mutants.main(["--list", *options]) == 0
        return {line.rpartition("  [")[0] for line in capsys.readouterr().out.splitlines()}

    everything = {mutant.name for mutant in gpu_mutants.everything()}
    assert listed("--interpreted") == gpu_suites.OF_INTERPRETER
    assert listed() == everything - gpu_suites.OF_INTERPRETER
    one = next(iter(gpu_suites.OF_INTERPRETER))
    assert listed("--only", one) == {one}


def test_faults_that_show_between_gpus_alone_are_tried_where_tests_see_several(
    monkeypatch, capsys, tmp_path
):
    seen = []
    monkeypatch.setattr(gpu_suites, "red_property", lambda place, _: seen.append(place.gpu) or "")
    everything = {mutant.name: mutant for mutant in gpu_mutants.everything()}
    options = gpu_mutants.parse([])
    for numbers in ("5", "4,5"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", numbers)
        tried = {mutant.name for mutant in gpu_mutants.faults(options)}
        several = [name for name in gpu_suites.OF_SEVERAL_GPUS if name in tried]
        assert bool(several) == ("," in numbers) == (not capsys.readouterr().out)
    for tests in gpu_suites.suites_of(everything[several[0]]):
        tests(gpu_suites.Place(tmp_path, tmp_path, "5"))
    assert seen == ["4,5"]


@pytest.mark.parametrize("interpreted", [False, True])
def test_a_run_tells_only_of_faults_that_it_is_to_notice(monkeypatch, tmp_path, interpreted):
    """One seen over the interpreter has not been noticed on a GPU."""
    monkeypatch.setattr(gpu_mutants.HealthyTests, "prove", lambda *_: 0.0)
    monkeypatch.setattr(gpu_mutants, "red", lambda *_: "kernels: Plans.Agree")
    everything = gpu_mutants.everything()
    kind = gpu_mutants.Interpreted if interpreted else gpu_mutants.Healthy
    memory = Noticed(everything, tmp_path / "noticed.json")
    trial = gpu_mutants.Trial(object.__new__(kind), tmp_path, 1, float("inf"), memory)
    of_time = next(fault for fault in everything if fault.name in gpu_suites.OF_INTERPRETER)
    for fault in (everything[0], of_time):
        copy = gpu_mutants.Copy(fault, None, tmp_path)
        verdict = trial._tested(copy, gpu_mutants.Gpus(["0"]), 0.0)
        assert verdict.killed_by == "kernels: Plans.Agree"
    assert memory.tests.keys() == {(of_time if interpreted else everything[0]).name}


def test_files_that_compile_together_are_those_with_the_fault(tmp_path):
    together = tmp_path / "Unity" / "unity_0_cxx.cxx"
    together.parent.mkdir()
    together.write_text(f'#include "{gpu_mutants.ROOT}/optimized/a.cpp"\n')

    class Compiles(NamedTuple):
        build: Path

        def command(self, target):
            return f"copy() {{ cp $2 $3; }}; copy -c {together} {target}"

    copy = gpu_mutants.Copy(Mutant("seen", "file.h", "a", "b"), Compiles(tmp_path), tmp_path)
    copy.folder.mkdir()
    made = copy.compile("x.dir/Unity/unity_0_cxx.cxx.o").read_text()
    assert made == f'#include "{copy.source}/optimized/a.cpp"\n'
