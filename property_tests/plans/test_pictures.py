"""Pictures show what the plan does: every pixel against the tiles, the mask and the shards."""

import numpy as np
import pytest
import ringside as rs
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside._pictures.colours import lightened, rank_colours
from ringside._pictures.figure import SMALL
from ringside._pictures.raster import NOBODY, PADDING, raster
from ringside.testing.strategies import plans


def owners(plan, side):
    """[rows] whose row each is, from the shards of row numbers; PADDING."""
    layout = plan.layout_q if side == "q" else plan.layout_k
    owner = np.full(layout.num_rows, PADDING)
    rows = np.arange(layout.num_rows)
    for rank in range(plan.cp_size):
        owner[plan.shard(rows, rank, side=side)] = rank
    for start, length, end in zip(
        layout.cu_seqlens_padded, layout.lengths, layout.cu_seqlens_padded[1:], strict=False
    ):
        owner[start + length : end] = PADDING
    return owner


def computed(plan):
    """[rows_q, rows_k] rank and step of head 0's pairs, pair by pair."""
    found = np.full((2, plan.layout_q.num_rows, plan.layout_k.num_rows), NOBODY)
    for rank in range(plan.cp_size):
        for number, step in enumerate(plan.steps(rank)):
            for tile in step.tiles if step.heads[0] == 0 < step.heads[1] else ():
                lengths = plan.layout_q.lengths[tile.q.seq], plan.layout_k.lengths[tile.k.seq]
                for i in range(tile.q.len):
                    for j in range(tile.k.len):
                        q, k = tile.q.pos + i * tile.q.stride, tile.k.pos + j * tile.k.stride
                        if plan.mask.allows(q, k, *map(int, lengths)):
                            row = plan.layout_q.cu_seqlens_padded[tile.q.seq] + q
                            column = plan.layout_k.cu_seqlens_padded[tile.k.seq] + k
                            assert found[0, row, column] == NOBODY
                            found[:, row, column] = rank, number
    return found


@given(plans(), st.integers(1, 50))
@settings(max_examples=25)
def test_every_pixel_is_a_pair_of_the_plan(plan, pixels):
    image = raster(plan, None, pixels)
    rank, step = computed(plan)
    shown = np.ix_(image.q.rows, image.k.rows)
    np.testing.assert_array_equal(image.rank, rank[shown])
    np.testing.assert_array_equal(image.step, step[shown])
    np.testing.assert_array_equal(image.owner_q, owners(plan, "q")[image.q.rows])
    np.testing.assert_array_equal(image.owner_k, owners(plan, "k")[image.k.rows])


@given(plans(), st.integers(1, 50), st.data())
@settings(max_examples=25)
def test_one_document_is_a_part_of_the_whole(plan, pixels, data):
    if not plan.layout_q.num_sequences:
        return
    sequence = data.draw(st.integers(0, plan.layout_q.num_sequences - 1))
    part, whole = raster(plan, sequence, pixels), raster(plan, None, 10**6)
    starts = plan.layout_q.cu_seqlens_padded
    assert (part.q.begin, part.q.end) == (starts[sequence], starts[sequence + 1])
    shown = np.ix_(part.q.rows, part.k.rows)
    np.testing.assert_array_equal(part.rank, whole.rank[shown])
    np.testing.assert_array_equal(part.step, whole.step[shown])


def test_colours_tell_ranks_and_steps_apart():
    for cp_size in (1, 4, 8, 9, 16, 64):
        colours = rank_colours(cp_size)
        assert len(np.unique(colours.round(3), axis=0)) == cp_size
        steps = lightened(colours[:1].repeat(8, axis=0), np.arange(8), 8)
        assert (np.diff(steps.sum(axis=1)) > 0).all() and steps.max() <= 1
        np.testing.assert_array_equal(steps[0], colours[0])


@pytest.mark.parametrize(
    ("lengths", "cp_size", "comm"),
    [([5, 0, 3], 2, "p2p"), ([], 2, "all_gather"), ([3000, 40], 16, "fetch"), ([64], 4, "a2a")],
)
def test_a_saved_picture_can_be_read(tmp_path, lengths, cp_size, comm):
    layout, heads = rs.PackedLayout.from_lengths(lengths), {"num_heads": 4, "num_kv_heads": 4}
    plan = rs.plan(layout, cp_size=cp_size, comm=comm, **heads)
    figure = plan.draw(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 5_000
    figure.canvas.draw()
    texts = [text for axis in figure.axes for text in axis.texts]
    texts += [t for axis in figure.axes for t in (axis.title, axis.xaxis.label, axis.yaxis.label)]
    assert all(text.get_fontsize() >= SMALL for text in texts if text.get_text())
    pixels_an_inch = 840 / figure.get_figwidth()
    assert SMALL / 72 * pixels_an_inch >= 11
    time = next(axis for axis in figure.axes if axis.get_ylabel() == "rank")
    bars = next(x for x in time.collections if x.get_label() == "work") if sum(lengths) else None
    cost = plan.cost()
    work = cost.blocks if sum(lengths) > 1024 else cost.pairs
    widths = [np.ptp(path.vertices[:, 0]) for path in bars.get_paths()] if bars else []
    assert sum(widths) == pytest.approx(work.sum())
    if bars:
        np.testing.assert_allclose(bars.get_facecolor()[0][:3], rank_colours(cp_size)[0])
