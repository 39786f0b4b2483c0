"""`ringside bench gpu` without a GPU: what is checked first, left out, refused, printed, written.

The GPU is played by objects that say how long they took; the real ones: test_cuda_bench.py.
"""

import csv
import json
import re
import subprocess
import sys

import pytest
import ringside as rs
from cuda_cases import REASON
from ringside import cli
from ringside._arrays import cuda as _cuda
from ringside._bench.gpu import cases, fill
from ringside._bench.gpu import run as _bench_gpu
from ringside._bench.gpu.cases import Line, Times, Workload, WrongResult
from ringside.cli import report as _report
from typer.testing import CliRunner

CAUSAL = Workload("16k x2", "causal", 16, 16, (128, 128))
WINDOW = Workload("16k x2", "window 1,024", 16, 16, (128, 128))


class Played:
    """A runner without a GPU: every call takes the milliseconds it is told."""

    def __init__(self, milliseconds, wrong="", family="played"):
        self.milliseconds, self.wrong, self.family = milliseconds, wrong, family

    def check(self):
        if self.wrong:
            raise WrongResult(self.wrong)

    def calls(self):
        works = ("forward", "backward", "backward, deterministic")
        return {work: (i + 1) * self.milliseconds for i, work in enumerate(works)}


class PlayedClock:
    def times(self, calls):
        return [Times(call=2 * call, kernels=call) for call in calls]


def play(monkeypatch, ours, peer):
    """Puts played runners in the place of those that need torch; returns the section."""

    class Runners:
        @staticmethod
        def Ours(problem, plan, family=None):
            return ours(plan)

        @staticmethod
        def FlashAttention2(problem):
            return peer()

    monkeypatch.setitem(sys.modules, "ringside._bench.gpu.runners", Runners)
    monkeypatch.setattr(_bench_gpu, "_problem", lambda case: None)
    return _bench_gpu.Attention(PlayedClock())


def test_ours_and_the_peer_take_turns_forward_first(monkeypatch):
    section = play(monkeypatch, lambda plan: Played(2.0), lambda: Played(3.0))
    lines = list(section.run(CAUSAL, None))
    assert [line.work for line in lines] == ["forward", "backward", "backward, deterministic"]
    assert [line.numbers["kernels_ms"] for line in lines] == [2, 4, 6]
    assert [line.numbers["peer_call_ms"] for line in lines] == [6, 12, 12]
    window = list(section.run(WINDOW, None))
    rate = cases.pairs(WINDOW) / cases.pairs(CAUSAL)
    assert window[0].numbers["kernels_rate_over_causal"] == pytest.approx(rate)


def test_a_plan_that_learns_its_lengths_on_the_device_has_lines_of_its_own(monkeypatch):
    plans = []
    section = play(monkeypatch, lambda plan: plans.append(plan) or Played(2.0), lambda: Played(3.0))
    lines = list(section.run(CAUSAL, None, room=64))
    assert plans == [64] and {line.section for line in lines} == {"lengths"}
    assert {line.numbers["sequences"] for line in lines} == {64}
    assert lines[0].numbers["call_over_peer"] == pytest.approx(1.5)


def test_a_wrong_result_is_a_fault_and_no_number(monkeypatch):
    wrong = "dk of row 7 is off"
    section = play(monkeypatch, lambda plan: Played(2.0, wrong), lambda: Played(3.0))
    (line,) = section.run(CAUSAL, None)
    assert (line.fault, line.numbers, line.goals) == (wrong, {}, ())


def test_a_peer_that_cannot_or_is_wrong_is_left_out_and_said_so(monkeypatch):
    def cannot():
        raise LookupError("it has no chunks")

    for peer, why in ((cannot, "it has no chunks"), (lambda: Played(3.0, "out is off"), "out is")):
        section = play(monkeypatch, lambda plan: Played(2.0), peer)
        note, *lines = section.run(CAUSAL, None)
        assert isinstance(note, str) and why in note and "FlashAttention 2" in note
        assert len(lines) == 3 and not any("peer_call_ms" in line.numbers for line in lines)


def test_families_that_no_case_ran_are_named(monkeypatch):
    class Core:
        KERNEL_FAMILIES = ("new", "played")

    monkeypatch.setattr(_cuda, "cuda_core", Core)
    section = play(monkeypatch, lambda plan: Played(2.0), lambda: Played(3.0))
    list(section.run(CAUSAL, None))
    assert list(section.others()) == ["kernels of new: no case ran them"]


def test_plans_are_measured_against_the_plan_of_one_rank(monkeypatch):
    def ours(plan):
        return Played(1.0 if plan.cp_size == 1 else 1.5, "off" if plan.comm == "a2a" else "")

    play(monkeypatch, ours, None)
    group = (4, "zigzag", ("p2p", "a2a", "all_gather"))
    fault, *lines = _bench_gpu.plans(PlayedClock(), group, None)
    assert (fault.case, fault.fault) == ("cp 4 zigzag a2a", "off")
    assert [line.case for line in lines] == ["cp 4 zigzag p2p"] * 2 + ["cp 4 zigzag all_gather"] * 2
    assert {line.numbers["kernels_over_one_rank"] for line in lines} == {1.5}
    assert all(line.missed for line in lines)


def test_nothing_is_measured_against_a_wrong_plan_of_one_rank(monkeypatch):
    play(monkeypatch, lambda plan: Played(1.0, "off" if plan.cp_size == 1 else ""), None)
    (line,) = _bench_gpu.plans(PlayedClock(), (2, "striped", ("p2p",)), None)
    assert (line.case, line.fault) == ("one rank", "off")


def test_row_movers_are_taken_as_they_come_or_said_to_be_absent(monkeypatch):
    class Rows:
        __spec__ = object()

        @staticmethod
        def rows():
            return [{"case": "reorder", "cp_size": 4, "GB/s": 3_900.0}]

    monkeypatch.setattr(_bench_gpu, "ROWS", "ringside._no_such_module")
    (note,) = _bench_gpu.rows()
    assert "left out" in note
    monkeypatch.setitem(sys.modules, "ringside._no_such_module", Rows)
    (line,) = _bench_gpu.rows()
    assert (line.case, line.numbers) == ("reorder", {"cp_size": 4, "GB/s": 3_900.0})


LINES = [
    cases.attention_line(CAUSAL, "forward", "f", Times(4.0, 3.0), peer=Times(5.0, 2.0)),
    cases.plan_line("cp 4 zigzag p2p", "forward", "f", Times(4.0, 1.1), Times(2.0, 1.0)),
    Line("rows", "reorder", numbers={"cp_size": 4, "GB/s": 3_900.0}),
    Line("syncs", "cp 4 zigzag p2p", family="f", fault="called a synchronizing operation"),
]


def test_tables_say_what_was_measured_what_was_missed_and_what_is_wrong(capsys):
    _report.gpu_benchmarks(LINES, ["x: left out"], "The caption.")
    printed = re.sub(r"\s+", " ", capsys.readouterr().out)
    for part in ("d128 h16 16k x2 causal", "550 1.25 733 0.67", "4.00 2.00 1.10 1.10 ok", "3900"):
        assert part in printed
    assert "missed: kernels / FA2 >= 0.9" in printed and "WRONG: called a" in printed
    assert "2 of 3 goals met. The caption." in printed and "x: left out" in printed


def run_command(monkeypatch, lines, *arguments, stopped=None):
    machine = {"gpu": "NVIDIA X1", "driver": "1.2", "commit": "abc", "date": "2026-11-21"}
    monkeypatch.setattr(_bench_gpu, "machine", lambda: machine)
    monkeypatch.setattr(_bench_gpu, "the_gpu", lambda: "0")
    tasks = [_bench_gpu.Task("all", lambda: iter([*lines, "a note"]))]
    tasks += [_bench_gpu.Task("stopped", stopped)] if stopped else []
    monkeypatch.setattr(_bench_gpu, "tasks", lambda sections, quick, peer: tasks)
    return CliRunner().invoke(cli.app, ["bench", "gpu", *map(str, arguments)])


def test_a_folder_gets_a_csv_named_after_the_gpu(monkeypatch, tmp_path):
    result = run_command(monkeypatch, LINES[:3], "--csv", tmp_path, "--json", tmp_path / "x.json")
    assert result.exit_code == 0, result.output
    comment, *rows = (tmp_path / "bench_gpu_nvidia_x1.csv").read_text().splitlines()
    assert comment == "# gpu NVIDIA X1; driver 1.2; commit abc; date 2026-11-21"
    first, second, third = csv.DictReader(rows)
    assert float(first["kernels_over_peer"]) == pytest.approx(2 / 3) and first["met"] == "no"
    assert (second["met"], second["goals"]) == ("yes", "kernels / cp 1 1.10, goal <= 1.15")
    assert (third["GB/s"], third["met"], third["call_ms"]) == ("3900.0", "", "")
    written = json.loads((tmp_path / "x.json").read_text())
    assert written["notes"] == ["a note"] and len(written["results"]) == 3


def test_a_fault_exits_with_1_and_is_written(monkeypatch, tmp_path):
    result = run_command(monkeypatch, LINES, "--csv", tmp_path / "new" / "x.csv")
    assert result.exit_code == 1 and "WRONG" in result.output
    assert "called a synchronizing operation" in (tmp_path / "new" / "x.csv").read_text()


def test_a_run_that_is_stopped_leaves_what_it_measured(monkeypatch, tmp_path):
    def stopped():
        yield LINES[3]
        raise KeyboardInterrupt

    result = run_command(monkeypatch, LINES[:3], "--csv", tmp_path / "x.csv", stopped=stopped)
    assert result.exit_code != 0
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 2 + 3


def test_help_shows_an_example_that_parses(monkeypatch, tmp_path):
    text = CliRunner().invoke(cli.app, ["bench", "gpu", "--help"], terminal_width=200).output
    example = re.search(r"Example: ringside bench gpu (.*?)\s*(│|\n\s*\n)", text, re.S)[1]
    monkeypatch.chdir(tmp_path)
    assert run_command(monkeypatch, LINES[:1], *example.split()).exit_code == 0
    assert (tmp_path / "build" / "bench_gpu.csv").exists()


def test_an_unknown_section_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match="one of attention, plans, rows, lengths, syncs"):
        _bench_gpu.tasks(["atention"])
    assert _bench_gpu.check_sections([]) == _bench_gpu.SECTIONS
    assert _bench_gpu.check_sections(["syncs", "plans"]) == ("plans", "syncs")


def test_what_blocks_predict_is_counted_for_every_partition():
    """Half of all blocks of a ring are empty; nothing is asked of a partition that is in order."""
    case = fill.CASES[0]
    assert len(fill.groups(quick=False)) == 2 * 3 * len(rs.PARTITIONS)
    ring, gathered, balanced = (
        fill.counts_of(case, 32, partition, comm)
        for partition, comm in (("zigzag", "p2p"), ("zigzag", "all_gather"), ("balanced", "fetch"))
    )
    assert ring.fill < 0.12 and ring.blocks > 8
    assert gathered.fill == pytest.approx(0.49, abs=0.01)
    assert gathered.blocks == pytest.approx(1.99, abs=0.01)
    assert balanced == fill.counts_of(case, 1, "contiguous", "p2p")


@pytest.mark.skipif(not REASON, reason="there is a GPU")
def test_without_a_gpu_the_command_names_what_is_near():
    run = subprocess.run(
        [sys.executable, "-m", "ringside", "bench", "gpu", "--quick"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 2 and run.stdout == ""
    assert run.stderr.startswith("Error: ") and "Nearest supported" in run.stderr
