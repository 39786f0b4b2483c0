"""Plants one-line faults in the kernels; the GPU tests must notice each: ./dev gpu-mutants.

The faults are data (mutants_of_kernels.py). Each gets a copy of the sources; only the objects that
its file goes into are compiled again, by the commands of the healthy build, and linked in front of
the others. All are compiled at once, and tested one by one on each GPU until the first red: the
test that noticed it last time (noticed.json), then the suites that may (gpu_suites.py). Tests are
green without a fault before they are put to one. A fault that no test notices has survived: exit 1.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import itertools
import math
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from copies.scratch import ROOT, Failure, Patience, run
from gpu_suites import KERNELS, MUTANTS_OF_LINKS, PATIENCE, Place, Tests, named, suites_of
from mutants import Proofs, at_least_1, chosen, may_choose
from mutants import check_list as check
from mutants_list import Mutant
from noticed import Noticed

SOURCES = ("reference", "optimized", "bindings")
TEST = "optimized/ringside_optimized_test"


class Verdict(NamedTuple):
    """What became of a mutant."""

    killed_by: str = ""  # empty: it survived, or there is a problem
    built: float = 0  # seconds
    tested: float = 0
    problem: str = ""
    tried: bool = True  # False: time was up


class Healthy:
    """The build without a fault: ./dev gpu-test's, with its test and its Python package."""

    def __init__(self, build: Path):
        self.build = build
        self.test, self.package = build / TEST, build / "python"
        (module,) = (build / "bindings").glob("_cuda_core*.so")
        self.module = str(module.relative_to(build))
        self.objects = self._objects_by_source()

    def ninja(self, *tool: str) -> str:
        """The output of one of ninja's tools."""
        return subprocess.check_output(["ninja", "-C", str(self.build), "-t", *tool], text=True)

    def _objects_by_source(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        target = ""
        for line in self.ninja("deps").splitlines():
            if match := re.match(r"(\S+): #deps", line):
                target = match[1]
            elif (name := line.strip()) and re.search(
                r"ringside_(optimized|hopper|work_lists)\.dir", target
            ):
                path = (self.build / name).resolve()
                if path.is_relative_to(ROOT):
                    found.setdefault(str(path.relative_to(ROOT)), []).append(target)
        return found

    def command(self, target: str) -> str:
        """The one that makes a target: compiles it, or links it."""
        last = self.ninja("commands", target).splitlines()[-1]
        (made,) = (part for part in last.split(" && ") if f"-o {target}" in part)
        return made


def link(file: str, to: str) -> None:
    """One more name for a file, which takes a hundredth of the time of a copy; else a copy."""
    try:
        os.link(file, to)
    except OSError:  # on another disk
        shutil.copy2(file, to)


class Copy:
    """A tree with one fault, its objects, its test program and its Python package."""

    def __init__(self, mutant: Mutant, healthy: Healthy, folder: Path):
        self.mutant, self.healthy = mutant, healthy
        self.folder = folder / re.sub(r"\W+", "_", mutant.name)
        self.source, self.package = self.folder / "source", self.folder / "python"
        self.test = self.folder / "test"

    def plant(self) -> list[str]:
        """Copies the sources with the fault; the objects to compile."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in SOURCES:
            shutil.copytree(
                ROOT / name,
                self.source / name,
                ignore=shutil.ignore_patterns("*.so"),
                copy_function=link,
            )
        path = self.source / self.mutant.file
        text = path.read_text(encoding="utf-8")
        path.unlink()  # else the checkout's own file would have the fault
        path.write_text(text.replace(self.mutant.old, self.mutant.new), encoding="utf-8")
        objects = self.healthy.objects.get(self.mutant.file, [])
        if not objects:
            raise Failure(f"{self.mutant.file} goes into no object of {self.healthy.build}")
        return objects

    def compile(self, target: str) -> Path:
        """One object, from the sources with the fault; files of two folders may share a name."""
        made = self.folder / target.replace("/", "_")
        command = self.healthy.command(target).replace(f"-I{ROOT} ", f"-I{self.source} ")
        for name in SOURCES:
            command = command.replace(f"{ROOT}/{name}/", f"{self.source}/{name}/")
        self._shell(command.replace(target, str(made)))
        return made

    def link(self, objects: list[Path]) -> None:
        """The test and the module: an object that is named replaces the archive's."""
        shutil.copytree(self.healthy.build / "python", self.package)
        module = self.package / "ringside" / Path(self.healthy.module).name
        named = " ".join(map(str, objects))
        for target, made in ((TEST, self.test), (self.healthy.module, module)):
            made.unlink(missing_ok=True)
            command = self.healthy.command(target)
            self._shell(command.replace(f"-o {target}", f"-o {made} {named}"))

    def red(self, tests: Tests, gpu: str, seconds: float) -> str:
        """The first of these tests that notices the fault, or nothing; `seconds` without it."""
        patience = Patience(min(PATIENCE.seconds, math.ceil(60 + 4 * seconds)))
        return tests(Place(self.test, self.package, gpu, patience))

    def _shell(self, command: str) -> None:
        code, output = run(["/bin/sh", "-c", command], self.healthy.build)
        if code:
            raise Failure(f"'{self.mutant.name}' does not build\n{output[-2000:]}")


def gpus() -> list[str]:
    """Numbers of the GPUs that tests may use."""
    if seen := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return seen.split(",")
    query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    return subprocess.check_output(query, text=True).split()


class HealthyTests:
    """Without a fault tests are green, or no red would mean anything: each is proved once."""

    def __init__(self, healthy: Healthy):
        self.healthy, self.proofs, self.failure = healthy, Proofs(), ""

    def prove(self, tests: Tests, gpus: Gpus, tests_before: int) -> float:
        """How long they take; raises Failure where one is red, from then on for all.

        Who waits for a proof that another has begun keeps no place.
        """

        def run() -> str:
            with gpus.one(tests_before) as gpu:
                return tests(Place(self.healthy.test, self.healthy.package, gpu))

        if self.failure:
            raise Failure(self.failure)
        try:
            return self.proofs.of(tests, run)
        except Failure as failure:
            self.failure = str(failure)
            raise


class Gpus:
    """Places at which faults are tested: who has asked for fewer tests so far comes first."""

    def __init__(self, places: list[str]):
        self.free, self.waiting = list(places), []
        self.numbers, self.changed = itertools.count(), threading.Condition()

    @contextlib.contextmanager
    def one(self, tests_before: int) -> Iterator[str]:
        """A place for one suite, so that the long suites of some wait for the short ones of all."""
        ticket = (tests_before, next(self.numbers))
        with self.changed:
            heapq.heappush(self.waiting, ticket)
            self.changed.wait_for(lambda: self.free and self.waiting[0] == ticket)
            heapq.heappop(self.waiting)
            place = self.free.pop()
            self.changed.notify_all()  # who comes next may have a place, too
        try:
            yield place
        finally:
            with self.changed:
                self.free.append(place)
                self.changed.notify_all()


class Trial:
    """Builds and tests mutants: compiling waits for a core, testing for a place on a GPU."""

    def __init__(self, healthy: Healthy, folder: Path, jobs: int, until: float, noticed: Noticed):
        self.healthy, self.folder, self.noticed = healthy, folder, noticed
        self.tests = HealthyTests(healthy)
        self.compilers = ThreadPoolExecutor(jobs)
        self.linkers = ThreadPoolExecutor(
            math.ceil(jobs / 4)
        )  # behind compilers all would wait for all
        self.until = until  # of time.monotonic()

    def verdict_on(self, mutant: Mutant, gpus: Gpus | None) -> Verdict:
        """Without GPUs it is only built."""
        begin, copy = time.monotonic(), Copy(mutant, self.healthy, self.folder)
        try:
            planted = self.compilers.submit(copy.plant).result()
            waiting = [self.compilers.submit(copy.compile, target) for target in planted]
            objects = [compiled.result() for compiled in waiting]
            self.linkers.submit(copy.link, objects).result()
            built = time.monotonic() - begin
            if gpus is None:
                return Verdict("built, not tested", built)
            return self._tested(copy, gpus, built)
        except Failure as failure:
            return Verdict(problem=str(failure))
        finally:
            shutil.rmtree(copy.folder, ignore_errors=True)

    def _tested(self, copy: Copy, gpus: Gpus, built: float) -> Verdict:
        """By the tests that noticed it last, then by all, until the first red."""
        killed_by, tested = "", 0.0
        suites = [*map(named, self.noticed.likely(copy.mutant)), *suites_of(copy.mutant)]
        for number, tests in enumerate(suites):
            in_time = time.monotonic() <= self.until
            seconds = self.tests.prove(tests, gpus, number) if in_time else 0.0
            with gpus.one(number) as gpu:
                begin = time.monotonic()
                if begin > self.until:
                    return Verdict(built=built, tested=tested, tried=False)
                killed_by = copy.red(tests, gpu, seconds)
                tested += time.monotonic() - begin
            if killed_by:
                break
        self.noticed.tell(copy.mutant, killed_by)
        return Verdict(killed_by, built, tested)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev gpu-mutants", description=__doc__)
    may_choose(parser)
    parser.add_argument("--build-only", action="store_true", help="see that they build; no GPU")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no test after so many"
    )
    parser.add_argument("--build", default=ROOT / "build/gpu", type=Path, help="the healthy build")
    parser.add_argument(
        "--jobs", type=at_least_1, default=os.cpu_count() or 1, help="compilers at once"
    )
    parser.add_argument(
        "--at-once",
        type=at_least_1,
        default=1,
        help="faults tested at once on each GPU; default 1, as they wait for each other's launches",
    )
    return parser.parse_args(arguments)


def print_line(mutant: Mutant, verdict: Verdict) -> None:
    untried = "" if verdict.tried else "not tried, time was up"
    outcome = untried or verdict.problem or verdict.killed_by or "SURVIVED"
    times = f"{verdict.built:4.0f} s {verdict.tested:4.0f} s"
    print(f"{times}  {mutant.name}: {outcome}", flush=True)


def try_all(mutants: list[Mutant], trial: Trial, gpus: Gpus | None) -> list[Verdict]:
    """All are built, each is tested where there is a place for it, and reported."""
    print(f"{'build':>6} {'test':>6}  fault: killed by", flush=True)
    with trial.compilers, trial.linkers, ThreadPoolExecutor(len(mutants)) as all_at_once:
        running = [all_at_once.submit(trial.verdict_on, mutant, gpus) for mutant in mutants]
        for future in as_completed(running):
            print_line(mutants[running.index(future)], future.result())
        return [future.result() for future in running]


def everything() -> list[Mutant]:
    """All faults that tests on a GPU are to notice."""
    return KERNELS + MUTANTS_OF_LINKS


def main(arguments: list[str] | None = None) -> int:
    options, begin = parse(arguments), time.monotonic()
    mutants = chosen(everything(), options)
    check(mutants)
    if options.list:
        print("\n".join(f"{mutant.name}  [{mutant.file}]" for mutant in mutants))
        return 0
    folder, until = ROOT / "build" / "gpu_mutants", begin + 60 * options.minutes
    trial = Trial(
        Healthy(options.build.resolve()), folder, options.jobs, until, Noticed(everything())
    )
    places = None if options.build_only else Gpus(gpus() * options.at_once)
    verdicts = try_all(mutants, trial, places)
    done = sum(bool(verdict.killed_by) for verdict in verdicts)
    word, seconds = "built" if options.build_only else "killed", time.monotonic() - begin
    untried = sum(not verdict.tried for verdict in verdicts)
    left = f", {untried} not tried" if untried else ""
    print(f"{done} of {len(mutants)} {word}{left}, in {seconds:.0f} s")
    return 0 if done == len(mutants) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"gpu_mutants: {failure}")
