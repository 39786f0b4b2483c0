"""The hot code of every level of processor: it agrees, it is chosen by name, it stays in its place.

A module that is built here must run on any x86-64: instructions with VEX or EVEX prefixes (AVX and
wider) may lie only in the sections of the levels, which nothing enters before it asked the
processor.
"""

import collections
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ringside import _core

COMPUTE = """
import sys
import numpy as np
import ringside as rs
from ringside import _core
from ringside.testing import Case
layout = rs.PackedLayout([0, 37, 37, 300], [0, 40, 40, 310])
case = Case(layout, cp_size=3, num_heads=4, num_kv_heads=2, head_dim=20, head_dim_v=12, seed=3)
q, k, v, dout = case.arrays()
by_definition = rs.attention(q, k, v, layout, mask=case.plan().mask)
by_plan = case.plan().attention(q, k, v)
gradients = case.plan().attention_backward(dout, q, k, v, *by_plan)
np.savez(sys.argv[1], *by_definition, *by_plan, *gradients, level=np.array(_core.cpu_level()))
"""


def run(level, *arguments):
    """What a fresh interpreter prints and does under RINGSIDE_CPU_LEVEL."""
    environment = {**os.environ, "RINGSIDE_CPU_LEVEL": level}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def arrays_of(level, folder):
    path = folder / f"{level}.npz"
    done = run(level, "-c", COMPUTE, str(path))
    assert done.returncode == 0, done.stderr
    with np.load(path) as file:
        arrays = dict(file)
    assert str(arrays.pop("level")) == level
    return arrays


def test_every_level_computes_the_same(tmp_path):
    assert _core.cpu_levels()[0] == "baseline"
    results = {level: arrays_of(level, tmp_path) for level in _core.cpu_levels()}
    for level, arrays in results.items():
        assert len(arrays) == 7
        for name, wanted in results["baseline"].items():
            # Sums of at most 300 terms of order 1, in another order and with fused roundings.
            np.testing.assert_allclose(
                arrays[name], wanted, rtol=1e-12, atol=1e-12, err_msg=f"{level} {name}"
            )


def test_the_widest_level_is_the_default():
    command = "from ringside import _core; print(_core.cpu_level())"
    assert run("", "-c", command).stdout.strip() == _core.cpu_levels()[-1]


@pytest.mark.parametrize("level", ["v5", "native", "V3"])
def test_an_unknown_level_is_refused(level):
    done = run(level, "-c", "import ringside")
    assert done.returncode != 0
    said = f'RINGSIDE_CPU_LEVEL: got "{level}", expected one of "baseline"'
    assert said in done.stderr and "Unset it to use" in done.stderr


def wide_instructions(path):
    """How many instructions there are by section and register, xmm only with a VEX prefix."""
    dump = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
    )
    section, counts = "", collections.Counter()
    for line in dump.stdout.splitlines():
        if line.startswith("Disassembly of section"):
            section = line.split()[-1].rstrip(":")
        elif match := re.match(r"\s+[0-9a-f]+:\t(\w+)(.*)", line):
            mnemonic, operands = match.groups()
            for register in ("zmm", "ymm", "xmm"):
                if f"%{register}" in operands and (register != "xmm" or mnemonic[0] == "v"):
                    counts[section, register] += 1
                    break
    return counts


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")
@pytest.mark.skipif(sys.platform != "linux", reason="another linker takes no list of exports")
def test_a_module_exports_its_entry_alone():
    """Else two copies of the standard library mix: with one linked in, messages lost numbers."""
    for path in Path(_core.__file__).parent.glob("_*core.*.so"):
        names = subprocess.check_output(["nm", "-D", "--defined-only", path], text=True)
        assert [line.split()[-1] for line in names.splitlines()] == [
            f"PyInit_{path.name.split('.')[0]}"
        ]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")
@pytest.mark.skipif(
    _core.__cpu__ not in ("dispatch", "baseline"), reason=f"built for {_core.__cpu__} alone"
)
def test_wide_instructions_lie_in_their_sections_alone():
    counts = wide_instructions(_core.__file__)
    found = {
        section: {register for (place, register) in counts if place == section}
        for section, _ in counts
    }
    expected = {"ringside_v3": {"ymm", "xmm"}, "ringside_v4": {"zmm", "ymm", "xmm"}}
    assert found == (expected if _core.__cpu__ == "dispatch" else {})
