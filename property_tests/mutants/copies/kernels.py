"""A build of kernels, and copies of it with a fault each.

A copy compiles the objects that a fault's file goes into, by the commands of the build, and links
them in front of the others.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from mutants_list import Mutant

from .scratch import ROOT, Failure, run

SOURCES = ("reference", "optimized", "bindings")
TEST = "optimized/ringside_optimized_test"


class Healthy:
    """The build without a fault: ./dev gpu-test's, with its test and its Python package."""

    def __init__(self, build: Path):
        self.build = build
        self.test, self.package = build / TEST, build / "python"
        self._bring_up_to_date()
        self.module = self._module()
        self.objects = self._objects_by_source()

    def _bring_up_to_date(self) -> None:
        """Objects beside older ones that lay out a struct otherwise are red without a fault."""
        code, output = run(["cmake", "--build", str(self.build), "--target", Path(TEST).name], ROOT)
        if code:
            raise Failure(f"{self.build} does not build without a fault\n{output[-2000:]}")

    def _module(self) -> str:
        (module,) = (self.build / "bindings").glob("_cuda_core*.so")
        return str(module.relative_to(self.build))

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
                r"ringside_(optimized|hopper|work_lists|interpreter)\.dir", target
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


class Interpreted(Healthy):
    """That of ./dev test without a GPU: the kernels' PTX is interpreted, by C++ tests alone."""

    def _module(self) -> str:
        return ""

    def command(self, target: str) -> str:
        """As above, without what checks the code that a GPU would run."""
        made = re.sub(r"^sh \S+unserialised\.sh --ptxas \S+ ", "", super().command(target))
        return re.sub(r" -include \S+cmake_pch\.hxx", "", made)


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
        if several := re.search(r" -c (\S+/Unity/(\S+))", command):  # names of files to compile
            here = made.with_suffix(Path(several[2]).suffix)
            here.write_text(self._from_here(Path(several[1]).read_text(encoding="utf-8")))
            command = command.replace(several[1], str(here))
        self._shell(self._from_here(command).replace(target, str(made)))
        return made

    def _from_here(self, text: str) -> str:
        for name in SOURCES:
            text = text.replace(f"{ROOT}/{name}/", f"{self.source}/{name}/")
        return text

    def link(self, objects: list[Path]) -> None:
        """The test, and the module if there is one: with its objects in place of the healthy ones.

        One that is named goes before the archive's; what is linked by name itself is left out.
        """
        targets = {TEST: self.test}
        if self.healthy.module:
            shutil.copytree(self.healthy.package, self.package)
            module = self.package / "ringside" / Path(self.healthy.module).name
            targets[self.healthy.module] = module
        named, own = " ".join(map(str, objects)), {made.name for made in objects}
        for target, made in targets.items():
            made.unlink(missing_ok=True)
            words = self.healthy.command(target).split(" ")
            command = " ".join(word for word in words if word.replace("/", "_") not in own)
            self._shell(command.replace(f"-o {target}", f"-o {made} {named}"))

    def _shell(self, command: str) -> None:
        code, output = run(["/bin/sh", "-c", command], self.healthy.build)
        if code:
            raise Failure(f"'{self.mutant.name}' does not build\n{output[-2000:]}")
