"""`ringside bench gpu --peer fa3` without a GPU: cases, lines, turns, and what is refused."""

import importlib.util
import statistics

import pytest
import ringside as rs
from ringside import cli
from ringside._bench.gpu import cases, fa3, run
from ringside._bench.gpu.cases import Workload
from typer.testing import CliRunner

LONG = Workload("16k x2", "causal", 16, 16, (128, 128))
SHORT = Workload("1k x32", "causal", 16, 16, (128, 128))


def test_cases_are_packs_of_32k_tokens():
    made = fa3.the_cases()
    assert len(set(made)) == len(made) == 11
    assert {sum(case.lengths) for case in made} == {32_768}
    assert {case.dims for case in made} == {(128, 128)}


@pytest.mark.parametrize(("case", "least"), [(LONG, 1.0), (SHORT, 1.05)])
def test_packs_are_to_be_faster_and_long_sequences_as_fast(case, least):
    ours, theirs = fa3.Timed(2.0, 5.0, 2.5, 8.0), fa3.Timed(2.0, 6.0, 2.0, 10.0)
    forward, backward = (
        fa3.line_of(case, work, "f", ours, theirs) for work in ("forward", "backward")
    )
    assert forward.numbers["gpu_over_fa3"] == 1.0 and forward.numbers["wall_over_fa3"] == 0.8
    assert backward.numbers["gpu_over_fa3"] == 1.2 and backward.numbers["wall_over_fa3"] == 1.25
    assert bool(forward.missed) == (least > 1) and not backward.missed
    on_gpu = fa3.line_of(case, "backward" + fa3.ON_GPU, "f", ours, theirs)
    assert on_gpu.numbers == backward.numbers and on_gpu.goals == backward.goals
    assert forward.numbers["gpu_tflops"] == pytest.approx(cases.pairs(case) * 512 / 2e9)


def test_cases_without_a_peer_are_of_other_head_dimensions_and_one_pack_of_each_has_aims():
    made = fa3.cases_alone()
    assert len(set(made)) == len(made) == 9
    assert {case.dims for case in made} == {(64, 64), (192, 128), (256, 256)}
    assert {sum(case.lengths) for case in made} == {32_768}
    lines = [fa3.line_alone(case, "backward", "f", 2.0) for case in made]
    assert [bool(line.goals) for line in lines] == [True, False, False] * 3
    rate = cases.pairs(made[0]) * 2 * 128 * 2.5 / 2e9
    assert lines[0].numbers["gpu_tflops"] == pytest.approx(rate)
    assert bool(lines[0].missed) == (rate < 374)
    assert fa3.line_alone(made[0], "forward", "f", 1e-3).goals[0].at_least == 424


@pytest.mark.parametrize(("spent", "missed"), [(1.75, False), (2.0, True)])
def test_a_deterministic_backward_is_measured_against_the_other(spent, missed):
    line = fa3.line_deterministic(SHORT, "f", {"other": 1.5, "deterministic": spent})
    assert line.work == "backward, deterministic" and bool(line.missed) == missed
    assert line.numbers["gpu_ms"] == spent


def test_sides_take_turns_and_medians_count(monkeypatch):
    told = []

    def gpu(call, sync, left_out=""):
        told.append((call(), left_out))
        return float(len(told))

    monkeypatch.setattr(fa3, "gpu_milliseconds", gpu)
    monkeypatch.setattr(fa3, "wall_milliseconds", lambda call, sync: 7.0)
    sides = [
        fa3.Passes(lambda i=i: f"forward {i}", lambda i=i: f"back {i}", lambda: "", id, out)
        for i, out in enumerate(("", "FlashAttnFwd"))
    ]
    first, second = fa3.timed(sides)
    forwards = [("forward 0", ""), ("forward 1", "")]
    backwards = [("back 0", ""), ("back 1", "FlashAttnFwd")]
    orders = set()
    for begin in range(0, len(told), 4):
        assert sorted(told[begin : begin + 2]) == forwards
        assert sorted(told[begin + 2 : begin + 4]) == backwards
        orders.add((told[begin], told[begin + 2]))
    assert len(told) == 4 * fa3.REPEATS and len(orders) == 4
    at = [k + 1 for k, (what, _) in enumerate(told) if what == "forward 0"]
    assert (first.forward, first.step_wall) == (statistics.median(at), 7.0)
    at = [k + 1 for k, (what, _) in enumerate(told) if what == "back 1"]
    assert second.backward == statistics.median(at)


def test_an_unknown_peer_lists_the_known_and_an_absent_one_says_how_to_get_it(monkeypatch):
    with pytest.raises(ValueError, match="--peer fa2; expected fa3"):
        run.check_peer("fa2")
    found = importlib.util.find_spec
    absent = "flash_attn3_jax"
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == absent else found(name)
    )
    with pytest.raises(
        rs.Unsupported, match=r"without .*flash_attn3_jax.* pip install flash-attn3"
    ):
        run.check_peer("fa3")


def test_without_a_gpu_the_command_says_so():
    result = CliRunner().invoke(cli.app, ["bench", "gpu", "--peer", "fa3"])
    assert result.exit_code != 0
