"""Plants one-line faults in the kernels; the GPU tests must notice each: ./dev gpu-mutants.

The faults are data (in_kernels). Each gets a copy of the sources; only the objects that
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
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from copies.kernels import Copy, Healthy, Interpreted
from copies.scratch import ROOT, Failure, Patience
from gpu_suites import (
    KERNELS,
    MUTANTS_OF_LINKS,
    OF_INTERPRETER,
    OF_SEVERAL_GPUS,
    PATIENCE,
    ROOM,
    Place,
    Tests,
    gpus,
    named,
    over_interpreter,
    suites_of,
)
from mutants import Proofs, at_least_1, chosen, may_choose
from mutants import check_list as check
from mutants_list import Mutant
from noticed import Noticed


class Verdict(NamedTuple):
    """What became of a mutant."""

    killed_by: str = ""  # empty: it survived, or there is a problem
    built: float = 0  # seconds
    tested: float = 0
    problem: str = ""
    tried: bool = True  # False: time was up


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


def red(copy: Copy, tests: Tests, gpu: str, seconds: float) -> str:
    """The first of these tests that notices a fault, or nothing; they take `seconds` without it."""
    patience = Patience(min(PATIENCE.seconds, math.ceil(60 + 4 * seconds)))
    return tests(Place(copy.test, copy.package, gpu, patience))


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
        self.interpreted = isinstance(healthy, Interpreted)  # C++ tests alone are

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

    def _suites_of(self, mutant: Mutant) -> list[Tests]:
        if mutant.name in OF_SEVERAL_GPUS:
            return [*suites_of(mutant)]
        likely = self.noticed.likely(mutant)
        if self.interpreted:
            likely = [test for test in likely if test.startswith(f"{ROOM}: ")]
        own = over_interpreter if self.interpreted else suites_of
        return [*map(named, likely), *own(mutant)]

    def _tested(self, copy: Copy, gpus: Gpus, built: float) -> Verdict:
        """By the tests that noticed it last, then by all, until the first red."""
        killed_by, tested = "", 0.0
        suites = self._suites_of(copy.mutant)
        for number, tests in enumerate(suites):
            in_time = time.monotonic() <= self.until
            seconds = self.tests.prove(tests, gpus, number) if in_time else 0.0
            with gpus.one(number) as gpu:
                begin = time.monotonic()
                if begin > self.until:
                    return Verdict(built=built, tested=tested, tried=False)
                killed_by = red(copy, tests, gpu, seconds)
                tested += time.monotonic() - begin
            if killed_by:
                break
        if is_of(copy.mutant, interpreted=self.interpreted):
            self.noticed.tell(copy.mutant, killed_by)  # else it says nothing of where it must be
        return Verdict(killed_by, built, tested)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev gpu-mutants", description=__doc__)
    may_choose(parser)
    parser.add_argument("--build-only", action="store_true", help="see that they build; no GPU")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no test after so many"
    )
    parser.add_argument(
        "--interpreted",
        action="store_true",
        help="those that only the interpreter notices; no GPU, but the build of ./dev test",
    )
    parser.add_argument(
        "--build", type=Path, help="the healthy build; default build/gpu, or build/ci"
    )
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
    """All faults that tests on a GPU, or over the interpreter, are to notice."""
    return KERNELS + MUTANTS_OF_LINKS


def is_of(mutant: Mutant, *, interpreted: bool) -> bool:
    """Whether such a run is to notice it."""
    return (mutant.name in OF_INTERPRETER) == interpreted


def faults(options: argparse.Namespace) -> list[Mutant]:
    """Those that a run tries; one that is named may be of either kind."""
    check(everything())
    of_this_kind = [
        mutant for mutant in everything() if is_of(mutant, interpreted=options.interpreted)
    ]
    all_ = everything() if options.only else of_this_kind
    on_gpus = not (options.interpreted or options.build_only or options.list)
    if on_gpus and len(gpus()) < 2:
        for name in OF_SEVERAL_GPUS:
            print(f"not tried, as here is one GPU: {name}", flush=True)
        all_ = [mutant for mutant in all_ if mutant.name not in OF_SEVERAL_GPUS]
    return chosen(all_, options)


def places(options: argparse.Namespace) -> Gpus | None:
    """Where the faults are tested."""
    if options.build_only:
        return None
    if not options.interpreted:
        return Gpus(gpus() * options.at_once)
    os.environ |= {"RINGSIDE_FEW_CASES": "1", "CUDA_VISIBLE_DEVICES": ""}
    return Gpus(["none"] * (os.cpu_count() or 1))


def main(arguments: list[str] | None = None) -> int:
    options, begin = parse(arguments), time.monotonic()
    mutants = faults(options)
    if options.list:
        print("\n".join(f"{mutant.name}  [{mutant.file}]" for mutant in mutants))
        return 0
    folder, until = ROOT / "build" / "gpu_mutants", begin + 60 * options.minutes
    kind, build = (Interpreted, "build/ci") if options.interpreted else (Healthy, "build/gpu")
    healthy = kind((options.build or ROOT / build).resolve())
    trial = Trial(healthy, folder, options.jobs, until, Noticed(everything()))
    verdicts = try_all(mutants, trial, places(options))
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
