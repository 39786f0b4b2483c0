"""No false alarm: right implementations in torch are not called wrong. ./dev alarms runs 10,000."""

import numpy as np
import pytest
import ringside as rs
from false_alarms import KINDS, main, piece
from right_torch import Attention, Blocks, Ring
from ringside.testing import Case, Disagreement, check_attention


@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
def test_what_is_right_is_not_called_wrong(kind, seed_of_this_run):
    ran, alarms, largest = piece(kind, 25, seed_of_this_run)
    assert not alarms, alarms[0]
    assert ran >= 20 and 0.01 < largest < 1, "so small an error would mean that nothing was seen"


@pytest.fixture
def seed_of_this_run():
    return int(np.random.default_rng().integers(2**31))


@pytest.mark.parametrize(("store", "planted"), [("float32", 1e-4), ("bfloat16", 0.05)])
def test_it_would_have_been_called_wrong_had_it_been(store, planted, monkeypatch):
    right = Blocks.forward

    def wrong(self):
        out, lse = right(self)
        return out * (1 + planted), lse

    monkeypatch.setattr(Blocks, "forward", wrong)
    with pytest.raises(Disagreement, match="out is wrong"):
        check_attention(Attention(store), Case(rs.PackedLayout([0, 60]), dtype=store))


def test_alarms_are_counted_and_told(monkeypatch, capsys):
    monkeypatch.setattr(Ring, "order", lambda self, rank, size: [rank] * size)
    monkeypatch.setattr("sys.argv", ["false_alarms", "--cases", "24"])
    assert main() == 1
    said = capsys.readouterr().out
    assert (
        "one rank, float32: 4 cases, 0 alarms" in said and "disagrees with the definition" in said
    )
    assert (
        "24 cases of right implementations, " in said
        and ", 0 alarms, " not in said.splitlines()[-1]
    )
