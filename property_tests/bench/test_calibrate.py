"""ringside calibrate on GPUs that are played: what it measures of them is what they are."""

import itertools

import numpy as np
import pytest
import ringside as rs
from ringside._bench import calibration
from ringside._bench.calibration import Asked, Budget, calibrated
from ringside._time import model_json
from ringside.cli.commands import app
from typer.testing import CliRunner

ASKED = Asked("bfloat16", 128, 16, "nccl")
FORWARD, BACKWARD = np.array([1.5, 0.4, 2.5, 6.0]), np.array([4.5, 1.0, 5.0, 14.0])


class Played:
    """GPUs of known rates, whose times scatter by a thousandth."""

    name, multiprocessors = "Played GPU", 100

    def __init__(self, gpus=4):
        self.gpus, self.asked = gpus, []
        self.scatter = np.random.default_rng(2)

    def attention_us(self, lengths, mask, asked):
        self.asked.append(tuple(lengths))
        cost = rs.estimate(
            rs.PackedLayout.from_lengths(lengths), mask=mask, cp_size=1, num_heads=asked.num_heads
        )
        counts = [cost.blocks.sum(), cost.partial_blocks.sum(), cost.visits.sum()]
        counts = np.array([*(n / self.multiprocessors for n in counts), 1.0])
        return tuple(float(counts @ x) * self._about(1) for x in (FORWARD, BACKWARD))

    def exchange_us(self, kind, size, exchange):
        assert exchange == "nccl"
        late = 400.0 if size == calibration.SIZES[0] else 20.0  # the host is slow to begin
        return (late + size / 300e3) * self._about(1)

    def copy_gb_per_s(self):
        return 3000.0

    def _about(self, x):
        return x * self.scatter.uniform(0.999, 1.001)


def clock(step):
    seconds = itertools.count(0, step)
    return Budget(60, lambda: next(seconds))


def test_a_played_machine_is_told_as_it_is():
    model = calibrated(Played(), ASKED, clock(1), "2026-11-22")
    kernel = model.kernel(128, "bfloat16")
    for got, wanted in ((kernel.forward, FORWARD), (kernel.backward, BACKWARD)):
        np.testing.assert_allclose(got, wanted, rtol=0.1)
    table = model.links[0].us_of_bytes["hop"]
    for size in calibration.SIZES[1:]:
        assert table(size) == pytest.approx(20 + size / 300e3, rel=0.01)
    assert calibration.SIZES[0] not in table.bytes  # it took longer than a larger one
    assert (model.multiprocessors, model.memory.gb_per_s) == (100, 3000)
    assert not model.overlap and "begin when a launch of tiles ends" in model.source
    for told in (model.source, kernel.source, model.links[0].source, model.memory.source):
        assert told.startswith("ringside calibrate on 4 x Played GPU, 2026-11-22")


def test_what_it_makes_is_a_model_that_times_a_plan(tmp_path):
    model = calibrated(Played(), ASKED, clock(1), "today")
    model.save(tmp_path / "played.json")
    plan = rs.plan(rs.PackedLayout([0, 8192]), cp_size=4, num_heads=16)
    assert rs.TimeModel.load(tmp_path / "played.json") == model
    assert plan.timeline(tmp_path / "played.json").total_us == plan.timeline(model).total_us > 0
    assert model_json.from_dict(model_json.to_dict(model), "x") == model


def test_when_time_is_over_fewer_packs_and_sizes_are_measured():
    machine = Played()
    model = calibrated(machine, ASKED, clock(100), "today")
    assert len(machine.asked) == calibration.FEWEST
    assert max(len(t.bytes) for t in model.links[0].us_of_bytes.values()) <= 2


def test_one_gpu_exchanges_nothing():
    model = calibrated(Played(1), ASKED, clock(1), "today")
    assert (model.links[0].ranks, dict(model.links[0].us_of_bytes)) == (1, {})
    assert model.exchange_multiprocessors == 0
    layout = rs.PackedLayout([0, 8192])
    assert rs.plan(layout, cp_size=1).timeline(model).total_us > 0
    with pytest.raises(rs.Unsupported, match="links among 1 ranks only"):
        rs.plan(layout, cp_size=2).timeline(model)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("x.txt",), "expected one that ends in .json"),
        (("x.json", "--exchange", "pigeon"), 'exchange="pigeon" is unknown; expected one of peer'),
        (("x.json", "--dtype", "int8"), 'dtype="int8" is unknown; expected one of bfloat16'),
        (("x.json", "--gpus", "0"), "--gpus 0; expected a number from 1"),
        (("x.json", "--head-dim", "0"), "--head-dim 0; expected a number above 0"),
        (("x.json", "--seconds", "nan"), "--seconds nan; expected a number above 0"),
    ],
)
def test_flags_that_are_wrong_are_refused_and_nothing_is_written(flags, words, tmp_path):
    path = tmp_path / flags[0]
    result = CliRunner().invoke(app, ["calibrate", str(path), *flags[1:]])
    assert result.exit_code == 1 and words in str(result.exception)
    assert not path.exists()


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path):
    from ringside._arrays import cuda

    if not cuda.problem():
        pytest.skip("there is a GPU")
    result = CliRunner().invoke(app, ["calibrate", str(tmp_path / "x.json")])
    assert isinstance(result.exception, rs.Unsupported)
    assert not (tmp_path / "x.json").exists()
