"""Pictures show what the plan does: every pixel against the tiles, the mask and the shards."""

import numpy as np
import pytest
import ringside as rs
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside._pictures.colours import SEEN, contrast, ink_on, lightened, rank_colours, rgb
from ringside._pictures.layout import PALE, rank_of_heads
from ringside._pictures.raster import MISSED, NOBODY, PADDING, Shown, raster
from ringside._pictures.timeline import counted, told
from ringside._pictures.work import work_by_owner
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


def pairs_of(plan):
    """(rank, step, first head, end of heads, row, key) of all that is computed, pair by pair."""
    for rank in range(plan.cp_size):
        for number, step in enumerate(plan.steps(rank)):
            for tile in step.tiles:
                lengths = plan.layout_q.lengths[tile.q.seq], plan.layout_k.lengths[tile.k.seq]
                for q in tile.q.positions.tolist():
                    for k in tile.k.positions.tolist():
                        if plan.mask.allows(q, k, *map(int, lengths)):
                            row = plan.layout_q.cu_seqlens_padded[tile.q.seq] + q
                            key = plan.layout_k.cu_seqlens_padded[tile.k.seq] + k
                            yield rank, number, *step.heads, int(row), int(key)


def computed(plan, whole=None, head=0):
    """[rows_q, rows_k] rank and step of a head's pairs; MISSED where only the whole plan has it."""
    found = np.full((2, plan.layout_q.num_rows, plan.layout_k.num_rows), NOBODY)
    for rank, step, begin, end, row, key in pairs_of(whole or plan):
        if begin <= head < end:
            assert found[0, row, key] == NOBODY
            found[:, row, key] = (rank, step) if step < plan.num_steps else MISSED
    return found


@given(plans(), st.integers(1, 50), st.data())
@settings(max_examples=25)
def test_every_pixel_is_a_pair_of_the_plan(plan, pixels, data):
    head = data.draw(st.integers(0, plan.num_heads - 1))
    part = plan.first_steps(data.draw(st.integers(0, plan.num_steps)))
    image = raster(part, None, pixels, head)
    rank, step = computed(part, plan, head)
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


@given(plans())
@settings(max_examples=25)
def test_work_by_owner_is_that_of_the_tiles(plan):
    work, unit = work_by_owner(plan)
    assert unit == "pairs"  # packs are small here
    home, truth = owners(plan, "k"), np.zeros_like(work)
    for rank, _, begin, end, _, key in pairs_of(plan):
        truth[rank, home[key]] += end - begin
    np.testing.assert_array_equal(work, truth)


def test_work_by_owner_of_large_packs_is_in_blocks_as_far_as_owners_are_alone():
    layout = rs.PackedLayout.from_lengths([3000, 500])
    ring, gathered = (rs.plan(layout, cp_size=4, comm=comm) for comm in ("p2p", "all_gather"))
    work, unit = work_by_owner(ring)
    assert unit.startswith("blocks")
    np.testing.assert_array_equal(work.sum(axis=1), ring.cost().blocks.sum(axis=1))
    work, unit = work_by_owner(gathered)
    assert unit == "pairs"
    np.testing.assert_array_equal(work.sum(axis=1), gathered.cost().pairs.sum(axis=1))


@given(plans())
@settings(max_examples=25)
def test_heads_are_shown_where_they_are_computed(plan):
    rows = plan.layout_q.num_rows
    shown = rank_of_heads(plan, Shown.of(0, rows, max(rows, 1)))
    for rank, _, begin, end, row, _ in pairs_of(plan):
        assert (shown[begin:end, row] == rank).all()
    assert ((shown == PADDING) == (owners(plan, "q") == PADDING)).all()


@given(plans())
@settings(max_examples=25)
def test_bars_are_as_long_as_the_work_and_do_not_overlap(plan):
    times, cost = counted(plan), plan.cost()
    work = np.zeros((plan.cp_size, plan.num_steps))
    ends = dict.fromkeys(range(plan.cp_size), 0.0)
    for event in sorted(times.events, key=lambda event: event.begin):
        work[event.rank, event.step] += event.end - event.begin
        assert event.begin >= ends[event.rank]
        ends[event.rank] = event.end
        assert event.owners == plan.steps(event.rank)[event.step].owners
    np.testing.assert_array_equal(work, cost.pairs)
    assert times.total == cost.pairs.max(axis=0, initial=0).sum()
    assert times.ideal == pytest.approx(cost.pairs.sum() / plan.cp_size)


def test_times_of_a_model_are_shown_as_they_are():
    class Event:
        def __init__(self, rank, step, kind, begin_us, end_us, owners):
            self.rank, self.step, self.kind, self.owners = rank, step, kind, owners
            self.begin_us, self.end_us = begin_us, end_us

    class Model:
        events = [  # noqa: RUF012
            *(Event(0, 0, "work", 0.0, 10.0, (0,)), Event(0, 1, "work", 14.0, 20.0, (1,))),
            *(Event(1, 0, "work", 0.0, 8.0, (1,)), Event(1, 1, "exchange", 0.0, 5.0, (0,))),
        ]
        total_us = 20.0
        direction, source = "backward", "mine"

    plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
    assert told(Model, 2).ideal == 12
    figure = plan.draw_timeline(timeline=Model)
    (axis,) = figure.axes
    assert "1.67 x the ideal (dotted); backward, mine" in axis.get_title(loc="left")
    spans = {}
    for drawn in axis.collections:
        boxes = [path.vertices for path in drawn.get_paths()]
        spans[drawn.get_label()] = [(float(b[:, 0].min()), float(b[:, 0].max())) for b in boxes]
    assert spans["work"] == [(0, 10), (14, 20), (0, 8)] and spans["exchange"] == [(0, 5)]
    assert spans["owners"] == spans["work"]
    with pytest.raises(TypeError, match=r"timeline is a int; expected \.total_us and \.events"):
        plan.draw_timeline(timeline=5)


def test_colours_tell_ranks_and_steps_apart_and_can_be_written_on():
    for cp_size in (1, 4, 8, 9, 16, 64):
        colours = rank_colours(cp_size)
        assert len(np.unique(colours.round(3), axis=0)) == cp_size
        steps = lightened(colours[:1].repeat(8, axis=0), np.arange(8), 8)
        assert (np.diff(steps.sum(axis=1)) > 0).all() and steps.max() <= 1
        np.testing.assert_array_equal(steps[0], colours[0])
        for step in range(8):
            for ground in lightened(colours, np.full(cp_size, step), 8):
                ink = rgb("#FFFFFF" if ink_on(ground) == "white" else "#000000")
                assert contrast(ink, ground) >= 4.5


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda p: p.draw_mask(head=1), rs.InvalidArgument, "head 1; expected 0 to 0"),
        (lambda p: p.draw_mask(sequence=2), rs.InvalidArgument, "sequence 2; expected 0 to 1"),
        (lambda p: p.draw_mask(mark=5), TypeError, r"mark is a int; expected \(row, key\)"),
        (lambda p: p.draw_work(ax=5), TypeError, "ax is a int; expected matplotlib's Axes"),
        (
            lambda p: rs.plan(p.layout_q, cp_size=17).draw_ranks(),
            rs.Unsupported,
            r"17 ranks; nearest supported: up to 16, or plan\.draw_work\(\)",
        ),
        (
            lambda p: rs.draw_mask(p.mask, p.layout_q, rs.PackedLayout([0, 4])),
            rs.InvalidArgument,
            "layout has 2 documents and layout_k 1",
        ),
        (
            lambda p: rs.draw_mask(p.mask, p.layout_q, against=np.ones((8, 7), bool)),
            rs.InvalidArgument,
            r"against has shape \(8, 7\) and dtype bool; expected \(8, 8\), bool",
        ),
    ],
)
def test_bad_input_says_what_was_expected(call, error, text):
    with pytest.raises(error, match=text):
        call(rs.plan(rs.PackedLayout([0, 5, 8]), cp_size=2))


def test_of_more_documents_than_pixels_each_pixel_is_a_row():
    layout = rs.PackedLayout.from_lengths([3, 17, 1, 9] * 600, pad_to_multiple_of=4)
    strip = rs.draw_layout(layout).axes[0]
    (image,) = strip.images
    pixels = np.asarray(image.get_array())[0]
    assert len(pixels) < layout.num_sequences and not strip.collections
    starts, lengths = layout.cu_seqlens_padded[:-1], layout.lengths
    for pixel, found in enumerate(pixels):
        row = pixel * layout.num_rows // len(pixels)
        document = int(np.flatnonzero(starts <= row)[-1])
        if row < starts[document] + lengths[document]:
            shade = rgb(SEEN if document % 2 else PALE)
            np.testing.assert_allclose(found, [*shade, 1], atol=1e-6)
        else:
            assert found[3] == 0  # the hatch of padding is seen through it
    whole = rs.plan(layout, cp_size=2).draw()
    (box,) = next(x for x in whole.axes if not x.get_xlabel()).collections[0].get_paths()
    assert box.get_extents().bounds[0] == starts[1]  # the longest is told, however thin it is
