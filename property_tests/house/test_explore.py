"""ringside explore: what it says of a choice is what the plan costs, and what it recommends."""

import csv
import json

import numpy as np
import pytest
import ringside as rs
from ringside.cli.choices import Comparison, Settings, cp_sizes_from
from ringside.cli.commands import app
from ringside.cli.explore_picture import best_of_partitions
from ringside.cli.verify import Heads
from ringside.testing._problems import a2a_size
from typer.testing import CliRunner

LENGTHS = "900,30,211,5,640,1,77,300,12,512"
LAYOUT = rs.PackedLayout.from_lengths([int(n) for n in LENGTHS.split(",")])


def compared(*cp_sizes, **more):
    job = Comparison(Settings(LAYOUT, rs.Mask.causal(), Heads(4, 2, 64), cp_sizes, **more))
    assert len(list(job.run())) == job.settings.num_choices
    return job


def run(*words):
    result = CliRunner().invoke(app, [*map(str, words)])
    return result.exit_code, result.stdout, result.exception


def test_what_is_said_of_a_choice_is_what_its_plan_costs():
    job = compared(2, 4)
    assert len(job.choices) == 2 * len(rs.PARTITIONS) * len(rs.COMMS) and not job.refused
    one_rank = rs.plan(LAYOUT, cp_size=1, num_heads=4, num_kv_heads=2).cost(head_dim=64)
    for choice in job.choices:
        plan = rs.plan(
            LAYOUT,
            cp_size=choice.cp_size,
            partition=choice.partition,
            comm=choice.comm,
            a2a_size=a2a_size(choice.comm, choice.cp_size),
            num_heads=4,
            num_kv_heads=2,
        )
        cost = plan.cost(head_dim=64)
        share = one_rank.blocks.sum() / choice.cp_size
        assert choice.work == pytest.approx(cost.blocks.sum(axis=1).max() / share)
        ring = cost.blocks.max(axis=0).sum() / share
        keeps_step = choice.comm in ("p2p", "a2a+p2p")
        assert choice.critical == pytest.approx(ring if keeps_step else choice.work)
        assert choice.imbalance == cost.imbalance and choice.fill == cost.fill
        into = cost.bytes_received.sum(1) + cost.result_bytes_received
        assert choice.mib_in * 2**20 == (into + cost.backward_bytes_received.sum(1)).max()
        out = cost.bytes_sent.sum(1) + cost.result_bytes_sent
        assert choice.mib_out * 2**20 == (out + cost.backward_bytes_sent.sum(1)).max()
        assert choice.rows_kv == cost.rows_kv.max() and choice.steps == plan.num_steps
        assert choice.ms is None and choice.pace == choice.critical


def test_a_model_tells_the_time_of_each_choice():
    job = Comparison(
        Settings(
            LAYOUT, rs.Mask.causal(), Heads(4, 2, 128), (4,), model=rs.TimeModel.preset("h200")
        )
    )
    assert len(list(job.run())) == len(job.choices) == len(rs.PARTITIONS) * len(rs.COMMS)
    for choice in job.choices:
        plan = rs.plan(
            LAYOUT,
            cp_size=4,
            partition=choice.partition,
            comm=choice.comm,
            a2a_size=a2a_size(choice.comm, 4),
            num_heads=4,
            num_kv_heads=2,
        )
        assert choice.forward_ms == plan.timeline("h200").total_us / 1e3
        assert choice.backward_ms == plan.timeline("h200", direction="backward").total_us / 1e3
        assert choice.ms in choice.price and choice.pace == choice.ms
    chosen, reason = job.recommended(4)
    fastest = min(choice.ms for choice in job.choices)
    close = [choice for choice in job.choices if choice.ms <= 1.05 * fastest]
    assert chosen.mib_in == min(choice.mib_in for choice in close)
    assert f"{chosen.ms:,.2f} ms predicted" in reason


def test_times_are_told_on_the_command_line(tmp_path):
    flags = ("explore", "--lengths", LENGTHS, "--cp", 2, "--comm", "p2p")
    for more, told in (((), True), (("--head-dim", 64), False), (("--model", "h200-mma"), True)):
        code, out, error = run(*flags, *more, "--json", tmp_path / "x.json")
        assert code == 0, error
        assert " ms " in out and ("ms predicted" in out) == told
        words = " ".join(out.split())
        model = "h200-mma" if "h200-mma" in more else "h200"
        said = f"ms: both passes, predicted by model {model}, bfloat16 heads of 128."
        assert (said if told else "ms: none, as model h200 knows no bfloat16 heads of 64.") in words
        for choice in json.loads((tmp_path / "x.json").read_text())["choices"]:
            assert (choice["forward_ms"] is not None) == told


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--model", "h300"), "model='h300' is no preset; expected one of h200, h200-mma"),
        (("--model", "nowhere.json"), "nowhere.json cannot be read"),
        (("--model", "h200", "--head-dim", 96), "dtype=bfloat16, head_dim=96: model h200 has no"),
    ],
)
def test_a_model_that_cannot_tell_is_refused_before_anything_is_written(more, words, tmp_path):
    out = tmp_path / "x.json"
    code, _, error = run("explore", "--lengths", LENGTHS, "--cp", 2, *more, "--json", out)
    assert code == 1 and isinstance(error, ValueError | rs.Unsupported) and words in str(error)
    assert not out.exists()


def test_the_marked_choices_are_those_that_nothing_beats():
    counted = compared(4).choices
    prices = np.array([choice.price for choice in counted])
    for choice, price in zip(counted, prices, strict=True):
        no_worse = (prices <= price).all(axis=1) & (prices < price).any(axis=1)
        assert choice.best == (not no_worse.any())


def test_what_is_recommended_is_close_to_the_fastest_and_moves_least():
    job = compared(4)
    chosen, reason = job.recommended(4)
    fastest = min(choice.critical for choice in job.choices)
    close = [choice for choice in job.choices if choice.critical <= 1.05 * fastest]
    assert chosen.mib_in == min(choice.mib_in for choice in close)
    assert f"{chosen.critical:.2f} times" in reason and f"{chosen.mib_in:,.1f} MiB in" in reason
    assert job.recommended(8) is None


def test_the_command_compares_says_which_to_take_and_writes_files(tmp_path):
    as_json, as_csv = tmp_path / "new" / "x.json", tmp_path / "x.csv"
    for name in ("explore", "compare"):
        code, out, error = run(
            *(name, "--lengths", LENGTHS, "--cp", "2..4", "--comm", "p2p", "--comm", "fetch"),
            *("--json", as_json, "--csv", as_csv),
        )
        assert code == 0, error
    assert "10 documents, 2,688 tokens" in out and out.count("take ") == 2
    assert out.count("zigzag ") >= 2 and "critical" in out
    choices = json.loads(as_json.read_text())["choices"]
    rows = list(csv.DictReader(as_csv.read_text().splitlines()))
    assert len(choices) == len(rows) == 2 * len(rs.PARTITIONS) * 2
    assert [row["comm"] for row in rows] == [choice["comm"] for choice in choices]


@pytest.mark.parametrize(
    ("text", "sizes"),
    [("8", [8]), ("2,4", [2, 4]), ("2..64", [2, 4, 8, 16, 32, 64]), ("3..7", [3, 6, 7])],
)
def test_numbers_of_ranks(text, sizes):
    assert cp_sizes_from(text) == sizes


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--cp", "8..2"), "--cp 8..2; expected FIRST..LAST that rise"),
        (("--cp", "two"), "--cp two; expected numbers of ranks: 8, or 2,4,8, or 2..64"),
        (("--cp", "0"), "--cp 0; expected a number of ranks"),
        (("--cp", "2,100000"), "--cp 100000: counts of all ranks and steps would take about 968"),
        (("--comm", "pigeon"), 'comm="pigeon" is unknown; expected one of p2p'),
        (("--partition", "x"), 'partition="x" is unknown; expected one of contiguous'),
        (("--heads", 3, "--kv-heads", 2), "--heads 3 --kv-heads 2; expected a multiple"),
        (("--lengths", "0,0"), "holds no tokens; expected a document"),
    ],
)
def test_what_cannot_be_compared_is_refused(flags, words):
    code, _, error = run("explore", *flags)
    assert code == 1 and isinstance(error, ValueError) and words in str(error)


def test_the_picture_shows_pairs_beside_blocks(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    made = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, path: (made.append(self), save(self, path)))
    picture = tmp_path / "new" / "balance.png"
    flags = ("--cp", "2,4", "--lengths", LENGTHS, "--heads", 4, "--kv-heads", 2, "--head-dim", 64)
    code, said, error = run("explore", *flags, "--draw", picture)
    assert code == 0, error
    assert picture.stat().st_size > 5_000 and f"drawn: {picture}" in said
    pairs, blocks = made[0].axes
    best = best_of_partitions(compared(2, 4).choices)
    assert [line.get_label() for line in blocks.get_lines()] == list(best) == list(rs.PARTITIONS)
    for line, choices in zip(pairs.get_lines(), best.values(), strict=True):
        assert line.get_ydata().tolist() == [choice.imbalance for choice in choices]
    for line, choices in zip(blocks.get_lines(), best.values(), strict=True):
        assert line.get_xdata().tolist() == [2, 4]
        assert line.get_ydata().tolist() == [choice.critical for choice in choices]
    low, high = blocks.get_ylim()
    assert all(low <= choice.critical <= high for choices in best.values() for choice in choices)
