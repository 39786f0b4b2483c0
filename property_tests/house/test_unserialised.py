"""Builds of Hopper's kernels fail where the compiler serialises products or spills registers."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "optimized/attention/hopper/unserialised.sh"
SERIALISED = (
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
    "serialized due to insufficient register resources in the function 'attention'"
)
QUIET = ["ptxas info    : Compiling entry function 'attention' for 'sm_90a'"]
PTX = ".version 9.0\n.target sm_90a\n.visible .entry attention()\n.visible .entry of6__half()\n"


def spills(stores):
    return f"ptxas info    : 16 bytes stack frame, {stores} bytes spill stores, 8 bytes spill loads"


@pytest.fixture
def run(tmp_path):
    """run(remarks, ...) of a compiler that says so: the ended process, and how ptxas was asked."""

    def program(name, text):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def compile_(remarks, *, source="forward.cu", status=0, by_ptxas=None, ptx=PTX):
        said = "\n".join(remarks)
        object_ = tmp_path / "made.o"
        program("nvcc", f"printf '%s\\n' '{said.replace(chr(39), '')}' >&2\nexit {status}")
        words = ["sh", str(SCRIPT)]
        if by_ptxas is not None:
            object_.write_bytes(b"\x7fELF\0fatbin\0" + ptx.encode() + b"\0behind it\0")
            text = "\n".join(by_ptxas).replace("'", "")
            asked = tmp_path / "asked"
            words += ["--ptxas", str(program("ptxas", f"echo $@ > {asked}\necho '{text}'"))]
        words += [str(tmp_path / "nvcc"), "-c", source, "-o", str(object_)]
        environment = os.environ | {"LC_ALL": "C"}
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    compile_.asked = lambda: (tmp_path / "asked").read_text(encoding="utf-8")
    return compile_


def test_products_that_are_serialised_fail_the_build(run):
    ended = run([*QUIET, SERIALISED])
    assert ended.returncode == 1
    assert "(C7510)" in ended.stderr and "serialises products" in ended.stderr


@pytest.mark.parametrize(
    ("source", "most"), [("forward_128.cu", 400), ("forward_128_softcap_options.cu", 180)]
)
def test_spills_beyond_those_that_are_known_fail_the_build(run, source, most):
    within = run([*QUIET, spills(8), spills(most), spills(0)], source=source)
    assert (within.returncode, within.stderr) == (0, "")
    beyond = run([*QUIET, spills(8), spills(most + 1), spills(0)], source=source)
    assert beyond.returncode == 1 and f"spills {most + 1} bytes" in beyond.stderr


def test_what_the_compiler_says_otherwise_is_shown(run):
    ended = run([*QUIET, "forward.cu(3): warning: unused", spills(0)])
    assert ended.returncode == 0
    assert ended.stderr.splitlines() == ["forward.cu(3): warning: unused"]


def test_an_error_of_the_compiler_is_its_own(run):
    ended = run(["forward.cu(3): error: expected a ;"], status=2)
    assert ended.returncode == 2 and "expected a ;" in ended.stderr


def test_readable_ptx_is_put_to_ptxas(run):
    fine = run([], by_ptxas=[*QUIET, spills(16)])
    assert (fine.returncode, fine.stderr) == (0, "")
    assert "-arch=sm_90a --entry=attention -o /dev/null" in run.asked(), "float16 is its twin"
    assert run([], by_ptxas=[SERIALISED]).returncode == 1
    assert run([], by_ptxas=[spills(401)]).returncode == 1


def test_an_object_without_readable_ptx_fails_the_build(run):
    ended = run([], by_ptxas=QUIET, ptx="nothing")
    assert ended.returncode == 1 and "expected --no-compress" in ended.stderr
