"""Copies of the tree: one is built and holds all faults that can be switched, others use it."""

from __future__ import annotations

import contextlib
import filecmp
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from mutants_list import Mutant

from .switches import ADDED, VARIABLE, number_of, switched

ROOT = Path(__file__).resolve().parents[3]
COPIED = (
    ".dev",
    "CMakeLists.txt",
    "pyproject.toml",
    "LICENSE",
    "README.md",
    "reference",
    "optimized",
    "bindings",
    "property_tests",
    "data",
    "notebooks",
)
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.so", "*.pyc", ".hypothesis")
MEMORY = 8 << 30  # bytes of address space for one suite; a fault may allocate without end


class Failure(Exception):
    """Something is wrong with the mutants or the machine, not with the tests."""


class Patience(NamedTuple):
    """How long a command may take, and each of its processes on a processor."""

    seconds: int | None = None
    of_processor: int | None = None

    def limit(self) -> None:
        """Too much memory fails in the test instead of starving the machine, and a loop ends.

        Soft limits: the browser in which tests open pages reserves more addresses than it uses.
        """
        if self.of_processor:
            limits = (resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, self.of_processor)
            for of, most in limits:
                resource.setrlimit(of, (most, resource.getrlimit(of)[1]))


ENDLESS = Patience()


def run(command: list[str], cwd: Path, patience: Patience = ENDLESS, **env: str) -> tuple[int, str]:
    """Exit code and output; a command that takes too long is killed with its children."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=patience.limit,
    )
    try:
        output, _ = process.communicate(timeout=patience.seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return 124, process.communicate()[0]
    return process.returncode, output


class Scratch:
    """A copy of the tree with a build folder of its own."""

    def __init__(self, folder: Path, compilers: int):
        self.source, self.build = folder / "source", folder / "build"
        self.compilers = compilers
        self.env: dict[str, str] = {}  # of its tests

    def edit(self, fresh: Path) -> None:
        """Makes it differ from the checkout."""

    def refresh(self) -> None:
        """Copies the checkout; what is as it was keeps its time and is not rebuilt."""
        fresh = self.source.with_name("fresh")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for name in COPIED:
            path = ROOT / name
            if path.is_dir():
                shutil.copytree(path, fresh / name, ignore=LEFT_OUT)
            else:
                shutil.copy2(path, fresh / name)
        self.edit(fresh)
        for path in [p for p in fresh.rglob("*") if p.is_file()]:
            old = self.source / path.relative_to(fresh)
            if old.is_file() and filecmp.cmp(path, old, shallow=False):
                shutil.copystat(old, path)
            else:
                path.touch()
        shutil.rmtree(self.source, ignore_errors=True)
        fresh.rename(self.source)
        if (ROOT / ".venv").exists():  # with the packages of others, each in a folder of its own
            (self.source / ".venv").symlink_to(ROOT / ".venv")

    def configure(self) -> None:
        """Optimised a little: faster to build than a release, and tests still run fast."""
        pybind11 = subprocess.check_output(
            [sys.executable, "-m", "pybind11", "--cmakedir"], text=True
        )
        settings = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_CXX_FLAGS_RELEASE": "-O1",
            "RINGSIDE_CPU": "",
            "RINGSIDE_CUDA": "OFF",
            "RINGSIDE_PRECOMPILED_HEADERS": "ON",
            "RINGSIDE_TEST_FLAGS": "-O0",
            "CMAKE_UNITY_BUILD": "ON",  # half the time
            "CMAKE_UNITY_BUILD_BATCH_SIZE": "4",
            "CMAKE_INTERPROCEDURAL_OPTIMIZATION": "OFF",
            "RINGSIDE_BUILD_PYTHON": "ON",
            "RINGSIDE_BUILD_TESTS": "ON",
            "Python_EXECUTABLE": sys.executable,
            "pybind11_DIR": pybind11.strip(),
        }
        command = ["cmake", "-S", str(self.source), "-B", str(self.build), "-G", "Ninja"]
        code, output = run(command + [f"-D{k}={v}" for k, v in settings.items()], ROOT)
        if code:
            raise Failure(f"cmake failed\n{output[-2000:]}")

    def make(self, target: str) -> None:
        """Builds one target."""
        code, output = self.compile(target)
        if code:
            raise Failure(f"{target} does not build\n{output[-2000:]}")

    def compile(self, *targets: str) -> tuple[int, str]:
        """Exit code and output; what can be built is built."""
        command = ["cmake", "--build", str(self.build), "--target", *targets]
        return run([*command, "-j", str(self.compilers), "--", "-k", "0"], ROOT)

    @contextlib.contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """The fault is in the copy, and afterwards it is not."""
        path = self.source / mutant.file
        text = path.read_text(encoding="utf-8")
        with replaced(path, text.replace(mutant.old, mutant.new)):
            yield


class Joint(Scratch):
    """The copy that is built with all faults that can be switched; others go into its text."""

    def __init__(self, folder: Path, compilers: int, faults: Iterable[Mutant]):
        super().__init__(folder, compilers)
        self.faults: dict[str, dict[int, Mutant]] = defaultdict(dict)
        for mutant in filter(is_compiled, faults):
            self.faults[mutant.file][number_of(mutant)] = mutant
        self.numbers: dict[str, int] = {}  # of the faults that are switched, by their names
        self.plain: dict[str, str] = {}  # the texts of their files without them

    def edit(self, fresh: Path) -> None:
        for name, text in ADDED.items():
            (fresh / name).write_text(text, encoding="utf-8")
        for name, faults in self.faults.items():
            text = (fresh / name).read_text(encoding="utf-8")
            new, numbers = switched(text, faults)
            self.numbers.update({faults[number].name: number for number in numbers})
            if numbers:
                self.plain[name] = text
                (fresh / name).write_text(new, encoding="utf-8")

    def make_all(self, targets: Iterable[str]) -> None:
        """Builds all; a file in which switches do not compile goes back to its plain text."""
        while True:
            code, output = self.compile(*targets)
            if not code:
                return
            moved = self.plain.keys() & files_with_errors(output, self.source)
            if not moved:
                raise Failure(f"the copy does not build\n{output[-2000:]}")
            for name in sorted(moved):
                self.unswitch(name)
                print(f"{name}: does not compile with switches, its faults are planted", flush=True)

    def unswitch(self, name: str) -> None:
        """The file is as in the checkout, and its faults wait to be planted."""
        (self.source / name).write_text(self.plain.pop(name), encoding="utf-8")
        for mutant in self.faults[name].values():
            self.numbers.pop(mutant.name, None)

    @contextlib.contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        path = self.source / mutant.file
        text = path.read_text(encoding="utf-8")
        plain = self.plain.get(mutant.file, text)
        with replaced(path, plain.replace(mutant.old, mutant.new)):
            yield


class Seat(Scratch):
    """A copy that nobody builds: what it runs is the joint build, with a fault switched on."""

    def __init__(self, folder: Path, joint: Joint):
        super().__init__(folder, joint.compilers)
        self.build, self.joint = joint.build, joint

    def make(self, target: str) -> None:
        pass

    @contextlib.contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        if mutant.name not in self.joint.numbers:
            with super().planted(mutant):
                yield
            return
        self.env = {VARIABLE: str(self.joint.numbers[mutant.name])}
        try:
            yield
        finally:
            self.env = {}


def is_compiled(mutant: Mutant) -> bool:
    """Whether its file is one of C++."""
    return Path(mutant.file).suffix in {".h", ".cpp"}


def files_with_errors(output: str, source: Path) -> set[str]:
    """Those of the copy that a compiler calls wrong."""
    found = re.findall(rf"^{re.escape(str(source))}/([^\s:]+):[\d:]+ error:", output, re.MULTILINE)
    return set(found)


@contextlib.contextmanager
def replaced(path: Path, text: str) -> Iterator[None]:
    """The file says this, and afterwards what it said before."""
    before = path.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")
