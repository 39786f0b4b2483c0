"""Times of notebook 7: the model's own, and refused where there are none."""

import pytest
import ringside as rs
from ringside import learn

LAYOUT = rs.PackedLayout.from_lengths([4096])
TIMELINE = rs.plan(LAYOUT, cp_size=2, num_heads=16).timeline("h200")


def test_times_by_ranks_are_those_of_plans():
    found = learn.times_by_ranks(LAYOUT, [2, 4], comm="all_gather", num_heads=16)
    for size, time in found.items():
        timeline = rs.plan(LAYOUT, cp_size=size, comm="all_gather", num_heads=16).timeline("h200")
        assert time.total == pytest.approx(timeline.total_us / 1e3)
        assert time.work == pytest.approx(timeline.work_us.max() / 1e3)
        assert time.exposed == pytest.approx(timeline.exposed_us.max() / 1e3)
        assert 0 < time.exposed < time.total


def test_the_first_that_is_exposed_is_the_smallest():
    hidden, waits = learn.Time(10.0, 10.0, 0.5), learn.Time(10.0, 8.0, 2.0)
    assert learn.first_exposed({64: waits, 8: hidden, 16: waits}) == 16
    assert learn.first_exposed({8: hidden}) is None
    assert learn.first_exposed({8: hidden}, share=0.01) == 8
    assert repr(hidden) == "10.00 ms, work 10.00, exposed 0.50"


def test_each_rank_has_a_bar_for_each_step():
    (axis,) = learn.figure_of_timelines({"p2p": TIMELINE}).axes
    bars = [len(part.get_paths()) for part in axis.collections]
    assert bars == [2, 1, 2, 1]  # of each rank: tiles of two steps, one exchange


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: learn.times_by_ranks(LAYOUT, []), r"got cp_sizes \[\]"),
        (lambda: learn.times_by_ranks(LAYOUT, [0]), r"got cp_sizes \[0\]"),
        (lambda: learn.figure_of_timelines({}), "got timelines of 0 ranks"),
        (lambda: learn.figure_of_times_by_ranks({}), "got no times"),
    ],
)
def test_nothing_to_show_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
