"""The length traces in data/lengths: they parse, and are what data/README.md says."""

from pathlib import Path

import numpy as np
import pytest
import ringside as rs

LENGTHS = Path(__file__).parents[2] / "data" / "lengths"
HISTOGRAM = "pretraining_mix_histogram"
TRACES = sorted(path.stem for path in LENGTHS.glob("*.csv") if path.stem != HISTOGRAM)


def read(name):
    """(comment lines, column names, rows)"""
    lines = (LENGTHS / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    comments = [line for line in lines if line.startswith("#")]
    header, *rows = [line.split(",") for line in lines if not line.startswith("#")]
    return comments, header, rows


def test_there_are_at_least_five_traces():
    assert len(TRACES) >= 5


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_is_one_positive_length_a_line_and_says_where_it_is_from(name):
    comments, header, rows = read(name)
    assert header == ["tokens"]
    lengths = [int(value) for (value,) in rows]
    assert lengths
    assert min(lengths) >= 1
    assert comments[0].startswith(f"# {name}: ")
    if name != "long_tail_pack":
        assert any("tokens = ceil(bytes / 4)" in line for line in comments)
        documents = [int(line.split(", ")[1].split()[0]) for line in comments if "sha256" in line]
        assert sum(documents) == len(lengths)


def test_the_histogram_holds_shares_of_rising_bins():
    comments, header, rows = read(HISTOGRAM)
    assert header[0] == "max_tokens"
    bins = [int(row[0]) for row in rows]
    assert bins == sorted(set(bins))
    assert any("source" in line for line in comments)
    shares = np.array([float(row[1]) for row in rows])
    assert (shares > 0).all()
    unit = 100 if shares.sum() > 2 else 1
    assert shares.sum() == pytest.approx(unit, rel=1e-3)  # published rounded


def test_the_long_tail_pack_is_a_pack_of_four_to_six_thousand_tokens():
    lengths = [int(value) for (value,) in read("long_tail_pack")[2]]
    assert 4096 <= sum(lengths) <= 6144
    assert max(lengths) > 8 * np.median(lengths)


@pytest.mark.parametrize("name", TRACES)
def test_every_trace_makes_a_layout(name):
    lengths = [int(value) for (value,) in read(name)[2]]
    layout = rs.PackedLayout.from_lengths(lengths)
    assert layout.num_tokens == sum(lengths)
