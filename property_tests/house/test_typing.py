"""A type checker reads the keywords of every call: what it accepts, and what it refuses where."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import ringside as rs
from ringside._plan.names import Comm, PartitionName

PROGRAM = """\
import dataclasses

import numpy as np
import numpy.typing as npt
import ringside as rs
import torch
from ringside._arrays.source import Source
from ringside.torch import varlen_attention
from typing_extensions import assert_type

Floats = npt.NDArray[np.float64]
x, t = np.zeros((4, 1, 8)), torch.zeros(4, 1, 8)
layout = rs.PackedLayout([0, 4])
layer = rs.Options(softmax_scale=0.5, softcap=30.0, sink=[0.0], dropout_p=0.1, dropout_seed=3)
dataclasses.replace(layer, softcap=0.0)
plan: rs.Plan = rs.plan(layout, cp_size=2, partition="zigzag", comm="p2p", num_heads=1)
rs.plan(layout, cp_size=np.int64(2))
rs.plan(layout, cp_size=2, partition=[1], name="mine", comm="fetch", stages=1)
rs.plan(layout, cp_size=2, partition=lambda of, ranks: [0] * of.num_sequences)
cost: rs.PlanCost = rs.estimate(layout, cp_size=2, partition=rs.partition("balanced", layout, 2))
lengths: np.ndarray = rs.lengths.parse("5,7", cu_seqlens=False)
mine = rs.plan(layout, partition=[[rs.Segment(0, 0, 4)]])
again: rs.Plan = rs.Plan.from_json(plan.to_json())
on_device = rs.DevicePlan(max_sequences=1, num_rows_q=4)

out, lse = rs.attention(x, x, x, layout, options=layer, dropout_seed=4)
rs.attention_backward(x, x, x, x, out, lse, layout, softcap=1.0, alibi_slopes=np.ones(1))
plan.attention(x, x, x, softmax_scale=None, sink=0.0, return_max_logit=True)
plan.attention_backward(x, x, x, x, out, lse, options=layer, deterministic=True)
on_device.attention(x, x, x, options=layer, qkv_format="bshd", return_max_logit=True)
on_device.attention_backward(x, x, x, x, out, lse, sink=0.0, deterministic=True)
rs.flash_attn_varlen_func(x, x, x, [0, 4], [0, 4], 4, 4, softcap=1.0, sink=0.0, options=None)

assert_type(plan.attention(x, x, x), tuple[Floats, Floats])
assert_type(plan.attention(t, t, t), tuple[torch.Tensor, torch.Tensor])
assert_type(rs.attention(x, x, x, layout, return_max_logit=True), tuple[Floats, Floats, Floats])
assert_type(rs.attention(t, t, t, layout, softcap=2.0), tuple[torch.Tensor, torch.Tensor])
assert_type(on_device.attention(t, t, t), tuple[torch.Tensor, torch.Tensor])
assert_type(varlen_attention(t, t, t, plan), torch.Tensor)
assert_type(varlen_attention(t, t, t, plan, return_lse=True), tuple[torch.Tensor, torch.Tensor])
assert_type(plan.unshard([plan.shard(t, rank) for rank in range(2)]), torch.Tensor)
assert_type(plan.mask.visible(1, 4, 4), tuple[int, int])
Rows = npt.NDArray[np.int32]
assert_type(plan.mask.visible(np.arange(4), 4, 4), tuple[Rows, Rows])
assert_type(plan.steps(0)[0].owner, int | None)


def takes(source: Source) -> int:
    return source.num_heads


takes(plan)
takes(on_device)
assert_type(plan.cost(), rs.PlanCost)
assert_type(plan.cost(model="h200"), rs.TimedCost)
assert_type(rs.estimate(layout, cp_size=2, model=rs.TimeModel.preset("h200")), rs.TimedCost)
assert_type(plan.timeline("h200", direction="backward").events[0].owners, tuple[int, ...])
assert_type(plan.cost(model="h200").forward.total_us, float)

rs.attention(x, x, x, layout, soft_cap=1.0)  # call-overload
rs.attention(x, x, x, layout, softcap="1.0")  # call-overload
rs.attention_backward(x, x, x, x, out, lse, layout, causal=True)  # call-arg
plan.attention(x, x, x, dropout_p="often")  # call-overload
plan.attention_backward(x, x, x, x, out, lse, bias=x)  # arg-type
on_device.attention(x, x, x, backend="cuda")  # call-overload
rs.flash_attn_varlen_func(x, x, x, [0, 4], [0, 4], 4, 4, sinks=0.0)  # call-arg
rs.Options(soft_cap=1.0)  # call-arg
rs.plan(layout, cp_sizes=2)  # call-arg
rs.plan(layout, cp_size=2, comm="ring")  # arg-type
rs.partition("zagzig", layout, 2)  # arg-type
plan.timeline("h200", direction="sideways")  # arg-type
plan.attention(x, x, x, options={"softcap": 1.0})  # call-overload
assert_type(plan.attention(t, t, t), tuple[Floats, Floats])  # assert-type
layer.softcap = 2.0  # misc
"""


# Parts of torch that no line of the program names, and that take half of mypy's time.
UNNAMED = ("_dynamo", "_inductor", "distributed", "export", "fx", "nn", "onnx", "utils")
SETTINGS = f"""\
[mypy]
[mypy-{",".join(f"torch.{part}.*" for part in UNNAMED)}]
follow_imports = skip
"""

HERE = Path(rs.__file__).parents[1]  # checkers find what is installed by themselves
ELSEWHERE = [] if "site-packages" in HERE.parts else [str(HERE)]


def told_by_mypy(folder, program):
    """(line, kind) of every error, sorted; Python 3.10, the oldest that the package runs on."""
    (folder / "program.py").write_text(program, encoding="utf-8")
    (folder / "mypy.ini").write_text(SETTINGS, encoding="utf-8")
    flags = ["--strict", "--follow-imports=silent", "--python-version=3.10", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *flags, "--cache-dir", "cache", "program.py"]
    places = {"MYPYPATH": os.pathsep.join(ELSEWHERE)}
    told = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, **places}
    ).stdout
    ours = [line for line in told.splitlines() if line.startswith("program.py:")]
    errors = [line for line in ours if ": note: " not in line]
    found = [re.fullmatch(r"program\.py:(\d+): error: .*\[([\w-]+)\]", line) for line in errors]
    assert errors and all(found), told
    return sorted({(int(error[1]), error[2]) for error in found})


def told_by_pyright(folder, program):
    """Lines of errors, by basedpyright's build of the checker, strict as pyright is."""
    (folder / "program.py").write_text(program, encoding="utf-8")
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.10", "extraPaths": ELSEWHERE}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "program.py"]
    command += ["--pythonpath", sys.executable]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout
    found = json.loads(told)["generalDiagnostics"]
    return sorted({x["range"]["start"]["line"] + 1 for x in found if x["severity"] == "error"})


def refused():
    """(line, kind) of what a checker must refuse."""
    lines = enumerate(PROGRAM.splitlines(), 1)
    return [(number, line.partition("  # ")[2]) for number, line in lines if "  # " in line]


def test_a_typed_program_is_read_as_it_runs(tmp_path):
    assert told_by_mypy(tmp_path, PROGRAM) == refused()


def test_pyright_reads_it_alike(tmp_path):
    assert told_by_pyright(tmp_path, PROGRAM) == [line for line, _ in refused()]


def test_the_names_that_type_checkers_know_are_those_of_the_tables():
    assert get_args(PartitionName) == rs.PARTITIONS
    assert get_args(Comm) == rs.COMMS
