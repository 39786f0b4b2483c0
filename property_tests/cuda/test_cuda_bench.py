"""`ringside bench gpu` where there is a GPU: it runs, and wrong results do not get timed."""

import csv
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import ringside as rs
from cuda_cases import needs_gpu
from ringside._bench.gpu import cases, fill
from ringside._bench.gpu import run as _bench_gpu
from ringside._bench.gpu.cases import Workload, WrongResult
from ringside._bench.gpu.clock import Clock

torch = pytest.importorskip("torch", reason="torch is not installed")

SIDE_BY_SIDE = "PYTEST_XDIST_WORKER" in os.environ  # then kernels of others are timed, too
NAMES = ("out", "dq", "dk", "dv")
CASES = [("causal", "bfloat16"), ("window", "float16"), ("chunks", "float32"), ("full", "bfloat16")]


@pytest.fixture(params=CASES, ids=str)
def problem(request, monkeypatch):
    """A small problem on the CPU, its float64 results by the definition, in chunks of queries."""
    from ringside._bench.gpu import problem as _bench_gpu_problem

    masks = {"window": rs.Mask.sliding_window(40, 0), "chunks": rs.Mask.chunked(64)}
    monkeypatch.setattr(cases, "PACKS", {"small": [300, 17, 1, 130]})
    monkeypatch.setattr(cases, "MASKS", cases.MASKS | masks)
    monkeypatch.setattr(_bench_gpu_problem, "CHUNK", 70)
    mask, dtype = request.param
    case = Workload("small", mask, 4, 2, (24, 16), dtype)
    made = _bench_gpu_problem.SampledOperands(case, device="cpu")
    q, k, v = (x.detach().double().numpy() for x in made.leaves)
    layout, dout = rs.PackedLayout.from_lengths(case.lengths), made.dout.double().numpy()
    out, lse = rs.attention(q, k, v, layout, mask=case.mask)
    grads = rs.attention_backward(dout, q, k, v, out, lse, layout, mask=case.mask)
    results = {n: torch.tensor(x) for n, x in zip(NAMES, (out, *grads), strict=True)}
    return made, results


def test_the_samples_are_what_the_definition_says(problem):
    made, results = problem
    assert made.check(results) < 1e-6
    lengths = np.array(made.case.lengths)
    assert {300, 1} <= {sample.rows.stop - sample.rows.start for sample in made.samples}
    assert {sample.rows.start for sample in made.samples} <= set(lengths.cumsum() - lengths)


def test_results_rounded_to_the_type_pass(problem):
    made, results = problem
    dtype = getattr(torch, made.case.dtype)
    assert made.check({name: x.to(dtype) for name, x in results.items()}) < 0.5


@pytest.mark.parametrize("name", NAMES)
def test_one_row_that_is_a_tenth_off_is_noticed(problem, name):
    made, results = problem
    sample = made.samples[0]
    row, head = sample.rows.start + 90, sample.kv_head if name in ("dk", "dv") else 2
    head = sample.heads.start if name in ("out", "dq") else head
    results[name][row, head] *= 1.1
    with pytest.raises(WrongResult, match=f"{name} of row {row}, head {head} is off"):
        made.check(results)
    results[name][row, head, 0] = math.nan
    with pytest.raises(WrongResult, match=f"{name} of row {row}, head {head} is off by inf"):
        made.check(results)


@needs_gpu
def test_blocks_stand_beside_what_kernels_take():
    group = fill.Group(Workload("1k x4", "causal", 4, 4, (64, 64)), 4, "balanced")
    lines = list(fill.run(Clock(3), group))
    assert [line.case.split()[-1] for line in lines[::2]] == list(fill.COMMS), lines
    for line in lines:
        assert not line.fault and line.numbers["blocks_over_one_rank"] == 1, line
        assert line.numbers["kernels_over_one_rank"] > 0.5, line


@needs_gpu
@pytest.mark.parametrize("section", ["attention", "plans", "syncs"])
def test_a_short_pass_finds_nothing_wrong(section):
    lines = []
    for task in _bench_gpu.tasks([section], quick=True):
        lines += [line for line in task.run() if not isinstance(line, str)]
    assert lines and not any(line.fault for line in lines), lines
    for line in lines:
        assert all(math.isfinite(x) and x > 0 for x in line.numbers.values()), line
        if line.numbers and not SIDE_BY_SIDE:  # a call is longer than its own kernels
            assert line.numbers["call_ms"] > 0.9 * line.numbers["kernels_ms"], line


@needs_gpu
def test_a_kernel_that_computes_something_else_is_not_timed(monkeypatch):
    from ringside._bench.gpu import runners

    right = runners.varlen_attention
    monkeypatch.setattr(
        runners, "varlen_attention", lambda *x, **keywords: right(*x, **keywords) * 1.1
    )
    (task, *_) = _bench_gpu.tasks(["attention"], quick=True)
    (line,) = task.run()
    assert "out of row" in line.fault and not line.numbers


FIRST = """
import time, torch, ringside as rs
from ringside.torch import varlen_attention
x = torch.randn(4096, 4, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
plan = rs.plan(rs.PackedLayout.from_lengths([1024] * 4), cp_size=1, num_heads=4)
loss = varlen_attention(x, x, x, plan).float().sum()
torch.cuda.synchronize()
begin = time.perf_counter()
loss.backward()
torch.cuda.synchronize()
print(time.perf_counter() - begin)
"""


@needs_gpu
def test_the_first_backward_pass_of_a_process_takes_no_seconds():
    """Of a loss: given a gradient, torch imports sympy to compare shapes, for two seconds."""
    run = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 0.5


@needs_gpu
def test_the_command_writes_its_table(tmp_path):
    testing = pytest.importorskip("typer.testing", reason="typer is not installed")
    from ringside.cli import app

    arguments = ["bench", "gpu", "--quick", "--section", "syncs", "--csv", str(tmp_path / "x.csv")]
    result = testing.CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    comment, *rows = (tmp_path / "x.csv").read_text().splitlines()
    assert comment.startswith("# gpu ") and "driver " in comment
    assert [row["section"] for row in csv.DictReader(rows)] == ["syncs"]
