"""The tests that faults are put to: a suite says which of its tests is red first, if one is."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from .scratch import Patience, Scratch, run

Suite = Callable[..., str]  # of a scratch, and of a file whose own tests come first
# The concepts a fault can touch, those that notice most first.
PROPERTIES = (
    *("plan_independence", "plans", "broken_plans", "partitions", "layouts", "masks", "exchanges"),
    *("padding", "packing", "rows_that_see_nothing", "merge", "cost", "gradients", "options"),
    *("estimate", "timelines", "errors_of_time_models"),
    *("shared_paths", "not_finite"),
    *("options_spelled", "errors_of_options", "pickles"),
    *("errors", "errors_of_layouts", "errors_of_plans", "errors_of_json", "errors_of_formats"),
    *("memory_of_plans", "oracle_vs_jax"),
    *("array_arguments", "conversions", "rounding", "threads", "balanced", "gathered", "schedules"),
    *("thd_rows", "thd_segments", "thd_steps", "thd_chunks", "thd_micro_sequences"),
    *("micro_sequences", "flash", "formats", "kit_judging", "docs"),
    *("kit_checks", "kit_misuse", "kit_findings", "kit_cases"),
    *("kit_locate", "kit_rings", "kit_tolerance", "kit_reports_of_gradients"),
    *("lengths", "own_partitions", "ranges", "thd_check", "explore"),
    *("exercises", "learn", "learn_moves", "learn_merging", "learn_times", "learn_traffic"),
    *("pictures", "places", "displays", "saved_pictures"),
)
# Those that notice faults in what users hand in and get back, in packages of others and in cases.
OF_USERS = (
    *("api", "lengths", "own_partitions", "ranges", "thd_check", "explore", "flash"),
    *("kit_strategies", "kit_stand_ins", "kit_dense", "arrays_in_kind", "peers", "peers_table"),
    *("stand_ins", "kit_processes", "torch_on_cpu", "quick_kernels"),
    *("torch_gradients", "errors_of_gradients", "errors_of_torch", "errors_of_options"),
    *("constants", "torch_compiled"),
)
CPP_TESTS = {"reference": "ringside_reference_test", "optimized": "ringside_work_list_test"}
NO_SUCH_TEST = 4  # pytest's exit code
OF_SUITES = Patience(600, 240)  # a fault may hang
OF_FEW = Patience(300, 40)  # of all C++ tests healthy ones take 35


def run_cpp_tests(scratch: Scratch, file: str = "") -> str:
    """The first failing C++ test; empty if none fails."""
    room = Path(file).parts[0] if file else ""
    near = tests_beside(scratch.source / file) if room in CPP_TESTS else ""
    if near and (red := run_gtest(scratch, room, near, OF_FEW)):
        return red
    for other in (
        ("optimized",) if room == "optimized" else CPP_TESTS
    ):  # which reference/ is without
        if red := run_gtest(scratch, other, f"*-{near}" if other == room and near else "*"):
            return red
    return ""


def tests_beside(path: Path) -> str:
    """The C++ tests of a file's own folder, as GoogleTest takes them."""
    texts = [test.read_text(encoding="utf-8") for test in sorted(path.parent.glob("*_test.cpp"))]
    suites = dict.fromkeys(re.findall(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+),", "".join(texts), re.M))
    return ":".join(f"*{suite}.*:*{suite}/*" for suite in suites)


def run_gtest(scratch: Scratch, room: str, names: str = "*", patience: Patience = OF_SUITES) -> str:
    """The first of a room's C++ tests that fails; empty if none fails."""
    target = CPP_TESTS[room]
    scratch.make(target)
    program = scratch.build / room / target
    options = ["--gtest_fail_fast", f"--gtest_filter={names}"]
    code, output = run([str(program), *options], scratch.source, patience, **scratch.env)
    if not code:
        return ""
    return f"{room}: {red_gtest(code, output)}"


def red_gtest(code: int, output: str) -> str:
    """The test that a red run of GoogleTest's names, or in which it ended."""
    failed = re.search(r"\[  FAILED  \] ([\w/.]+)", output)
    started = re.findall(r"\[ RUN      \] (\S+)", output)
    return failed[1] if failed else f"{started[-1] if started else 'start'} ({ending(code)})"


def run_property_tests(scratch: Scratch, file: str = "") -> str:
    """The first failing property; empty if none fails."""
    return run_pytest(scratch, nearest_first(tests_called(scratch, PROPERTIES), file))


def run_user_tests(scratch: Scratch, file: str = "") -> str:
    """The first failing test of what users meet; empty if none fails."""
    return run_pytest(scratch, nearest_first(tests_called(scratch, OF_USERS), file))


def run_group_tests(scratch: Scratch, file: str = "") -> str:
    """The first failing test of several processes; empty if none fails."""
    return run_pytest(scratch, nearest_first(tests_in(scratch, "group"), file))


def run_explorer_tests(scratch: Scratch, file: str = "") -> str:
    """The first failing test of pages; empty if none fails."""
    return run_pytest(scratch, nearest_first(tests_in(scratch, "explorer"), file))


def tests_called(scratch: Scratch, names: tuple[str, ...]) -> list[Path]:
    """Their files, in this order, wherever they lie."""
    folder = scratch.source / "property_tests"
    return [path for name in names for path in folder.rglob(f"test_{name}.py")]


def tests_in(scratch: Scratch, folder: str) -> list[Path]:
    """All files of tests in a folder."""
    return sorted((scratch.source / "property_tests" / folder).glob("test_*.py"))


def nearest_first(tests: list[Path], file: str) -> list[Path]:
    """Those that say the name of a file most often come first, others as before."""
    if not file:
        return tests
    name = re.compile(rf"(?<![a-z]){re.escape(Path(file).stem.strip('_'))}(?![a-z])")
    return sorted(tests, key=lambda test: -len(name.findall(test.read_text(encoding="utf-8"))))


def run_again(scratch: Scratch, tests: list[str], patience: Patience = OF_FEW) -> str:
    """The first of these that fails, which noticed faults before; empty if none does."""
    for room in CPP_TESTS:
        names = [test.partition(": ")[2] for test in tests if test.startswith(f"{room}: ")]
        if names and (red := run_gtest(scratch, room, ":".join(names), patience)):
            return red
    known = [f"property_tests/{test}" for test in tests if ": " not in test.partition("::")[0]]
    return run_pytest(scratch, known, patience) if known else ""


def run_pytest(
    scratch: Scratch, tests: Sequence[Path | str], patience: Patience = OF_SUITES
) -> str:
    """The first test of these files that fails; empty if none fails."""
    scratch.make("ringside_core")
    package = scratch.source / "bindings" / "ringside"
    for module in (scratch.build / "bindings").glob("_core*.so"):
        shutil.copy2(module, package)
    options = ["-x", "-v", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-profile=mutants"]
    code, output = run(
        [sys.executable, "-m", "pytest", *options, *map(str, tests)],
        scratch.source,
        patience,
        PYTHONPATH=str(package.parent),
        PYTHONDONTWRITEBYTECODE="1",
        **scratch.env,
    )
    if not code or (code == NO_SUCH_TEST and "not found: " in output):
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) property_tests/(.+?)(?: - .*)?$", output, re.MULTILINE)
    started = re.findall(r"^property_tests/(\S+)", output, re.MULTILINE)
    return failed[1] if failed else f"{started[-1] if started else 'start'} ({ending(code)})"


def ending(code: int) -> str:
    return "takes too long" if code in (124, -signal.SIGXCPU) else f"crash, exit code {code}"
