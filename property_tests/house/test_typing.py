"""A type checker reads the keywords of every call: what it accepts, and what it refuses where."""

import re
import subprocess
import sys
from typing import get_args

import ringside as rs
from ringside._plan.names import Comm, PartitionName

PROGRAM = """\
import dataclasses

import numpy as np
import ringside as rs
from ringside._arrays.source import Source

x = np.zeros((4, 1, 8))
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


def takes(source: Source) -> int:
    return source.num_heads


takes(plan)
takes(on_device)

rs.attention(x, x, x, layout, soft_cap=1.0)  # call-arg
rs.attention(x, x, x, layout, softcap="1.0")  # arg-type
rs.attention_backward(x, x, x, x, out, lse, layout, causal=True)  # call-arg
plan.attention(x, x, x, dropout_p="often")  # arg-type
plan.attention_backward(x, x, x, x, out, lse, bias=x)  # arg-type
on_device.attention(x, x, x, backend="cuda")  # call-arg
rs.flash_attn_varlen_func(x, x, x, [0, 4], [0, 4], 4, 4, sinks=0.0)  # call-arg
rs.Options(soft_cap=1.0)  # call-arg
rs.plan(layout, cp_sizes=2)  # call-arg
rs.plan(layout, cp_size=2, comm="ring")  # arg-type
rs.partition("zagzig", layout, 2)  # arg-type
plan.attention(x, x, x, options={"softcap": 1.0})  # arg-type
layer.softcap = 2.0  # misc
"""


def told_by_mypy(folder, program):
    """(line, kind) of every error, sorted; Python 3.10, the oldest that the package runs on."""
    (folder / "program.py").write_text(program, encoding="utf-8")
    flags = ["--strict", "--follow-imports=silent", "--python-version=3.10", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *flags, "--cache-dir", "cache", "program.py"]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout
    errors = [line for line in told.splitlines() if ": note: " not in line]
    found = [re.fullmatch(r"program\.py:(\d+): error: .*\[([\w-]+)\]", line) for line in errors]
    assert errors and all(found), told
    return sorted((int(error[1]), error[2]) for error in found)


def test_a_typed_program_is_read_as_it_runs(tmp_path):
    lines = PROGRAM.splitlines()
    wanted = [(i, x.partition("  # ")[2]) for i, x in enumerate(lines, 1) if "  # " in x]
    assert told_by_mypy(tmp_path, PROGRAM) == wanted


def test_the_names_that_type_checkers_know_are_those_of_the_tables():
    assert get_args(PartitionName) == rs.PARTITIONS
    assert get_args(Comm) == rs.COMMS
