"""Plants one-line faults and expects the tests to notice each: ./dev mutants.

The faults are data (mutants_list.py). They are planted in copies of the tree, build/mutants, never
in the checkout. One copy is built, once, with all faults that lie in bodies of C++ functions: a
number switches one of them on when a test starts (copies/switches.py). The few others of C++ are
planted in its text at the end, one by one, and what they touch is rebuilt. A fault is put to the
test that noticed it last time (noticed.json), to the C++ tests of its folder, to all of them, then
to the property tests with few examples, until the first red one. A fault that no test notices has
survived: exit 1. With --jobs N so many seats use the build at once, each of which takes the next
fault.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from copies.scratch import ROOT, Failure, Joint, Scratch, Seat, is_compiled
from copies.suites import (
    CPP_TESTS,
    OF_SUITES,
    Suite,
    run_again,
    run_cpp_tests,
    run_explorer_tests,
    run_group_tests,
    run_property_tests,
    run_user_tests,
)
from mutants_list import MUTANTS, Mutant
from mutants_of_counts import MUTANTS_OF_COUNTS, MUTANTS_OF_PACKS
from mutants_of_exchange import MUTANTS_OF_EXCHANGE
from mutants_of_explorer import MUTANTS_OF_EXPLORER
from mutants_of_groups import MUTANTS_OF_GROUPS
from mutants_of_landings import MUTANTS_OF_LANDINGS
from mutants_of_notebooks import MUTANTS_OF_LEARNING, MUTANTS_OF_NOTEBOOKS
from mutants_of_outsiders import MUTANTS_OF_OUTSIDERS
from mutants_of_pictures import MUTANTS_OF_PICTURES
from mutants_of_primitives import MUTANTS_OF_PRIMITIVES
from mutants_of_schedules import MUTANTS_OF_SCHEDULES
from mutants_of_shared_paths import MUTANTS_OF_SHARED_PATHS
from mutants_of_times import MUTANTS_OF_TIMES
from mutants_of_users import MUTANTS_OF_USERS
from noticed import Noticed

AT_ONCE = 40  # likely tests that one process proves


class Verdict(NamedTuple):
    """What became of a mutant."""

    killed_by: str  # empty: it survived
    seconds: float


SUITES: dict[str, tuple[Suite, ...]] = {
    "all": (run_cpp_tests, run_property_tests),
    "cpp": (run_cpp_tests,),
    "python": (run_property_tests,),
    "users": (run_user_tests,),
    "group": (run_group_tests,),
    "explorer": (run_explorer_tests,),
}


def tests_of(mutant: Mutant, suite: str) -> tuple[Suite, ...]:
    """Those of the suite; faults of groups, pages and users are for their own tests to notice.

    No C++ test notices what is not in its program.
    """
    found = tests_of_its_kind(mutant, suite)
    if suite == "all" and Path(mutant.file).parts[0] not in CPP_TESTS:
        return tuple(tests for tests in found if tests is not run_cpp_tests)
    return found


def tests_of_its_kind(mutant: Mutant, suite: str) -> tuple[Suite, ...]:
    if suite == "all" and mutant in MUTANTS_OF_GROUPS + MUTANTS_OF_EXCHANGE:
        return run_cpp_tests, run_group_tests
    if suite == "all" and mutant in MUTANTS_OF_EXPLORER:
        return SUITES["explorer"]
    if suite == "all" and mutant in MUTANTS_OF_USERS:
        return SUITES["users"]
    return SUITES[suite]


def check_list(mutants: list[Mutant]) -> None:
    """Every fault still has exactly one place; names are unique."""
    stale = []
    for mutant in mutants:
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        count = text.count(mutant.old)
        if count != 1 or mutant.old == mutant.new:
            stale.append(f"{mutant.name}: {mutant.old!r} occurs {count} times in {mutant.file}")
    if len({mutant.name for mutant in mutants}) != len(mutants):
        stale.append("two mutants have the same name")
    if stale:
        raise Failure(
            "expected every old text exactly once; bring mutants_list.py up to date\n"
            + "\n".join(stale)
        )


class Proofs:
    """What is green without a fault, or no red would mean anything: each is run once, by one."""

    def __init__(self) -> None:
        self.green: dict[Callable[..., str], float] = {}  # and how many seconds it took
        self.lock = threading.Lock()
        self.locks: dict[Callable[..., str], threading.Lock] = {}

    def of(self, tests: Callable[..., str], run: Callable[[], str]) -> float:
        """How long these take in a copy without a fault; runs them there, unless somebody has."""
        with self.lock:
            lock = self.locks.setdefault(tests, threading.Lock())
        with lock:  # others go on with other tests meanwhile
            if tests in self.green:
                return self.green[tests]
            begin = time.monotonic()
            if red := run():
                raise Failure(
                    f"{red} is red without any fault; expected green. Mend it first: ./dev test"
                )
            self.green[tests] = time.monotonic() - begin
            print(f"healthy: {tests.__name__} is green, {self.green[tests]:.0f} s", flush=True)
            return self.green[tests]


def verdict_on(
    mutant: Mutant, scratch: Scratch, suite: str, proofs: Proofs, noticed: Noticed
) -> Verdict:
    """Asks the tests that may notice it, the likely ones first."""
    begin, killed_by = time.monotonic(), ""
    if suite == "all" and (likely := noticed.likely(mutant)):
        with scratch.planted(mutant):
            killed_by = run_again(scratch, likely)
    for tests in () if killed_by else tests_of(mutant, suite):
        proofs.of(tests, functools.partial(tests, scratch))
        with scratch.planted(mutant):
            killed_by = tests(scratch, mutant.file)
        if killed_by:
            break
    if suite == "all":
        noticed.tell(mutant, killed_by)
    return Verdict(killed_by, time.monotonic() - begin)


def prove_likely(scratch: Scratch, tests: list[str]) -> None:
    """These tests, which are asked first, are green without a fault."""
    begin = time.monotonic()
    if red := run_again(scratch, tests, OF_SUITES):
        raise Failure(f"{red} is red without any fault; expected green. Mend it first: ./dev test")
    seconds = time.monotonic() - begin
    print(f"healthy: {len(tests)} tests that noticed faults, {seconds:.0f} s", flush=True)


def joint_build(folder: Path, compilers: int) -> Joint:
    """The build of all faults that can be switched, whichever of them are asked for."""
    begin = time.monotonic()
    joint = Joint(folder, compilers, everything())
    joint.refresh()
    joint.configure()
    joint.make_all([*CPP_TESTS.values(), "ringside_core"])
    compiled = sum(map(is_compiled, everything()))
    print(
        f"{len(joint.numbers)} of {compiled} faults in C++ are switched, the others planted one by"
        f" one; built in {time.monotonic() - begin:.0f} s",
        flush=True,
    )
    return joint


def try_all(mutants: list[Mutant], suite: str, jobs: int, noticed: Noticed) -> list[str]:
    """The names of those that survive.

    The seats begin with proofs that likely tests are green without a fault. All tests of a suite
    are proved so before the first fault is put to them.
    """
    proofs = Proofs()
    compilers = int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", os.cpu_count() or 1))
    folder = ROOT / "build" / "mutants"
    joint = joint_build(folder, compilers)
    alone = [m for m in mutants if is_compiled(m) and m.name not in joint.numbers]
    likely = sorted({test for mutant in mutants for test in noticed.likely(mutant)})
    batches = iter([likely[i : i + AT_ONCE] for i in range(0, len(likely), AT_ONCE)])
    numbers, failed = itertools.count(1), threading.Event()

    def survivors_of(scratch: Scratch, left: Iterator[Mutant]) -> list[str]:
        survivors = []
        try:
            while not failed.is_set() and (batch := next(batches, None)):
                prove_likely(scratch, batch)
            while not failed.is_set() and (mutant := next(left, None)):
                verdict = verdict_on(mutant, scratch, suite, proofs, noticed)
                outcome = f"killed by {verdict.killed_by}" if verdict.killed_by else "SURVIVED"
                place = f"[{next(numbers):2}/{len(mutants)}] {verdict.seconds:4.0f} s"
                print(f"{place}  {mutant.name}: {outcome}", flush=True)
                survivors += [] if verdict.killed_by else [mutant.name]
        except BaseException:
            failed.set()  # the others end with the fault that they have
            raise
        return survivors

    def at_seat(number: int) -> list[str]:
        seat = Seat(folder / str(number), joint)
        seat.refresh()
        return survivors_of(seat, left)

    left = iter([mutant for mutant in mutants if mutant not in alone])
    with ThreadPoolExecutor(jobs) as workers:
        running = [workers.submit(at_seat, number) for number in range(1, jobs + 1)]
    found = [name for future in running for name in future.result()]
    return found + survivors_of(joint, iter(alone))


def may_choose(parser: argparse.ArgumentParser) -> None:
    """The options by which a run takes some of the faults: chosen()."""
    parser.add_argument("--list", action="store_true", help="print the faults and stop")
    parser.add_argument(
        "--only", metavar="NAME", action="append", help="only faults whose name has NAME in it"
    )
    parser.add_argument(
        "--share",
        metavar="I/N",
        type=share,
        default=(1, 1),
        help="the I-th of N parts of the faults, from 1/N; N such runs are a whole one",
    )


def chosen(everything: list[Mutant], options: argparse.Namespace) -> list[Mutant]:
    """Those that the options ask for."""
    part, parts = options.share
    only = options.only or [""]
    mutants = [m for m in everything if any(name in m.name for name in only)][part - 1 :: parts]
    if not mutants:
        raise Failure(f"no fault is called {options.only}; --list prints all names")
    return mutants


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev mutants", description=__doc__)
    may_choose(parser)
    parser.add_argument(
        "--suite", choices=SUITES, default="all", help="which tests must notice; default all"
    )
    parser.add_argument(
        "--jobs", type=at_least_1, default=1, help="faults tried at once; default 1"
    )
    return parser.parse_args(arguments)


def share(text: str) -> tuple[int, int]:
    """(I, N) out of "I/N"."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f'"{text}"; expected I/N with 1 <= I <= N, such as 1/16')
    return int(match[1]), int(match[2])


def at_least_1(text: str) -> int:
    """A count."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'"{text}"; expected at least 1')
    return int(text)


def everything() -> list[Mutant]:
    """All faults that the CPU's tests are to notice."""
    faults = MUTANTS + MUTANTS_OF_PRIMITIVES + MUTANTS_OF_SHARED_PATHS
    faults += MUTANTS_OF_SCHEDULES + MUTANTS_OF_OUTSIDERS + MUTANTS_OF_PACKS
    faults += MUTANTS_OF_LANDINGS + MUTANTS_OF_TIMES
    faults += MUTANTS_OF_LEARNING + MUTANTS_OF_NOTEBOOKS
    faults += MUTANTS_OF_PICTURES
    faults += MUTANTS_OF_GROUPS + MUTANTS_OF_COUNTS + MUTANTS_OF_USERS + MUTANTS_OF_EXCHANGE
    return faults + MUTANTS_OF_EXPLORER


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    mutants = chosen(everything(), options)
    check_list(mutants)
    if options.list:
        for mutant in mutants:
            print(
                f"{mutant.name}  [{mutant.file}]" + (f"  like {mutant.like}" if mutant.like else "")
            )
        return 0
    begin = time.monotonic()
    survivors = try_all(mutants, options.suite, options.jobs, Noticed(everything()))
    killed = len(mutants) - len(survivors)
    seconds = time.monotonic() - begin
    print(f"{killed} of {len(mutants)} killed ({killed / len(mutants):.0%}) in {seconds:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"mutants: {failure}")
