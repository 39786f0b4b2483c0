"""Pictures of long packs take two seconds of one processor, displays a fraction of one.

So do pictures and words of many documents: none of them takes a step of Python for each pair.
"""

import time

import pytest
import ringside as rs


def test_long_packs_are_drawn_in_two_seconds(tmp_path):
    lengths = rs.lengths.pack(rs.lengths.load("man_pages"), 131_072)
    layout = rs.PackedLayout.from_lengths(lengths)
    assert layout.num_tokens == 131_072
    rs.plan(rs.PackedLayout([0, 300]), cp_size=2).draw(
        tmp_path / "first.png"
    )  # what matplotlib does once
    for cp_size, partition in ((8, "zigzag"), (16, "striped")):
        plan = rs.plan(layout, cp_size=cp_size, partition=partition)
        seconds = [seconds_of(plan, tmp_path)]
        if seconds[0] > 2:  # the machine may have been busy
            seconds.append(seconds_of(plan, tmp_path))
        assert min(seconds) <= 2, seconds


def seconds_of(plan, folder):
    """Of a processor, to draw and save."""
    started = time.process_time()
    plan.draw(folder / "plan.png")
    return time.process_time() - started


MANY = rs.PackedLayout.from_lengths([3, 17, 1, 9] * 30_000)
OF_MANY = {
    "explain": lambda plan, _: plan.explain(),
    "draw": lambda plan, path: plan.draw(path),
    "draw_mask": lambda plan, path: plan.draw_mask(path),
    "draw_layout": lambda _, path: rs.draw_layout(MANY, path),
}


@pytest.mark.parametrize("name", OF_MANY)
def test_many_documents_are_told_in_two_seconds(tmp_path, name):
    plan = rs.plan(MANY, cp_size=4, partition="balanced")
    seconds = []
    for _ in range(2):  # at first matplotlib makes ready, and the machine may be busy
        started = time.process_time()
        OF_MANY[name](plan, tmp_path / "picture.png")
        seconds.append(time.process_time() - started)
        if seconds[-1] <= 2:
            return
    pytest.fail(f"{name} takes {seconds} s")


@pytest.mark.parametrize("cp_size", [8, 64])
def test_a_display_takes_half_a_second(cp_size):
    layout = rs.PackedLayout.from_lengths(rs.lengths.pack(rs.lengths.load("man_pages"), 131_072))
    plan = rs.plan(layout, cp_size=cp_size)
    for value in (layout, plan.mask, plan):
        started = time.process_time()
        assert value._repr_html_()
        assert time.process_time() - started <= 0.5
