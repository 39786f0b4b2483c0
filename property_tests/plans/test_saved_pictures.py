"""What is saved can be read: letters, their ground, no text on another, colours that are true."""

import numpy as np
import pytest
import ringside as rs
from matplotlib.image import imread
from rendered import boxes_of, colour_at, laid_out, overlaps, smallest_letters, texts_of
from rendered import worst_contrast as worst
from ringside._pictures.colours import BLACK, PADDED, UNSEEN, lightened, rank_colours, rgb

SHORT = rs.PackedLayout.from_lengths([300, 120, 37, 210], pad_to_multiple_of=8)
LONG = rs.PackedLayout.from_lengths([2900, 40, 0, 700, 12, 1800])
MANY = rs.PackedLayout.from_lengths([90] * 50)
OTHER = rs.PackedLayout.from_lengths([500, 90, 60, 333])
HEADS = {"num_heads": 8, "num_kv_heads": 4}
PICTURES = {
    "ring": lambda path: rs.plan(SHORT, cp_size=4).draw(path),
    "eight, striped": lambda path: rs.plan(SHORT, cp_size=8, partition="striped").draw(path),
    "sixteen, gathered": lambda path: rs.plan(LONG, cp_size=16, comm="all_gather").draw(path),
    "many ranks": lambda path: rs.plan(SHORT, cp_size=40).draw(path),
    "many documents": lambda path: rs.plan(MANY, cp_size=8).draw(path),
    "fetch": lambda path: rs.plan(
        LONG, cp_size=5, comm="fetch", partition="balanced", mask=rs.Mask.chunked(512)
    ).draw(path),
    "heads": lambda path: rs.plan(SHORT, cp_size=4, comm="a2a", **HEADS).draw(path),
    "groups of heads": lambda path: rs.plan(
        LONG, cp_size=8, comm="a2a+p2p", a2a_size=2, **HEADS
    ).draw(path),
    "refused": lambda path: rs.plan(SHORT, cp_size=4).first_steps(2).draw(path),
    "nothing": lambda path: rs.plan(rs.PackedLayout([0]), cp_size=2).draw(path),
    "mask": lambda path: rs.plan(SHORT, OTHER, cp_size=3).draw_mask(path, mark=(40, 3)),
    "shards": lambda path: rs.plan(SHORT, OTHER, cp_size=3).draw_shards(path),
    "time": lambda path: rs.plan(LONG, cp_size=8).draw_timeline(path),
    "work": lambda path: rs.plan(LONG, cp_size=8, comm="all_gather").draw_work(path),
    "ranks": lambda path: rs.plan(SHORT, cp_size=5).draw_ranks(path),
    "heads alone": lambda path: rs.plan(SHORT, cp_size=4, comm="a2a", **HEADS).draw_ranks(path),
    "story": lambda path: rs.plan(SHORT, cp_size=6).draw_story(250, path),
    "layout": lambda path: rs.draw_layout(SHORT, path),
    "layout of many": lambda path: rs.draw_layout(MANY, path),
    "layout of none": lambda path: rs.draw_layout(rs.PackedLayout([0]), path),
    "mask alone": lambda path: rs.draw_mask(
        rs.Mask.causal(align="bottom_right"),
        rs.PackedLayout.from_lengths([5, 3], pad_to_multiple_of=4),
        rs.PackedLayout.from_lengths([7, 6]),
        path,
        against=np.tri(12, 13, dtype=bool),
        mark=(3, 4),
    ),
    "mask of a long pack": lambda path: rs.draw_mask(
        rs.Mask.sliding_window(200, 0), LONG, None, path
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_can_be_read(name):
    figure = laid_out(PICTURES[name](None))
    texts = texts_of(figure)
    assert smallest_letters(figure) >= 11
    assert overlaps(texts) == []
    left, right, bottom, top = boxes_of(texts).T
    width, height = figure.canvas.get_width_height()
    assert left.min() >= 0 and bottom.min() >= 0 and right.max() <= width and top.max() <= height
    ratio, text = worst(figure, texts)
    assert ratio >= 4.5, text


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_picture_is_saved_as_its_name_says(tmp_path, ending):
    path = tmp_path / f"plan.{ending}"
    rs.plan(SHORT, cp_size=2).draw(path)
    begin = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert path.read_bytes().startswith(begin) and path.stat().st_size > 5_000


def mask_axis(figure):
    return next(axis for axis in figure.axes if axis.get_xlabel() == "key (token)")


@pytest.mark.parametrize("comm", ["p2p", "fetch", "a2a"])
@pytest.mark.parametrize("steps", [1, 3])
def test_colours_of_a_saved_file_are_those_of_who(tmp_path, comm, steps):
    layout = rs.PackedLayout.from_lengths([40, 9, 21], pad_to_multiple_of=4)
    whole = rs.plan(layout, cp_size=3, comm=comm, **({"num_heads": 3} if comm == "a2a" else {}))
    plan = whole.first_steps(min(steps, whole.num_steps))
    figure = plan.draw(tmp_path / "plan.png")
    axis, image = mask_axis(figure), imread(tmp_path / "plan.png")[..., :3]
    assert image.shape[1] == 1680  # two pixels for one of those 840
    crossed = {int(place) for line in axis.collections for place in np.ravel(line.get_segments())}
    for row, key in np.random.default_rng(0).integers(1, layout.num_rows, (200, 2)).tolist():
        found = whole.who(row, key)
        here = [place for place in found.places if place.heads[0] == 0]
        if here and here[0].step < plan.num_steps:
            wanted = lightened(rank_colours(3)[here[0].rank], here[0].step, plan.num_steps)
        else:
            missed = BLACK if here else UNSEEN
            wanted = rgb(PADDED if "padding" in found.why_not else missed)
        if not {row, key} & crossed:
            got = colour_at(figure, axis, image, key + 0.5, row + 0.5)
            np.testing.assert_allclose(got, wanted, atol=0.01, err_msg=str(found))


def fresh():
    """Axes of a figure of its own."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 6), dpi=100)
    FigureCanvasAgg(figure)
    return figure.subplots()


def test_a_picture_goes_onto_the_axes_that_are_given():
    plan, layout = rs.plan(SHORT, cp_size=4), rs.PackedLayout([0, 5])
    for draw in (
        *(plan.draw_mask, plan.draw_shards, plan.draw_timeline, plan.draw_work, plan.draw_heads),
        lambda ax: plan.draw_story(5, ax=ax),
        lambda ax: rs.draw_layout(layout, ax=ax),
        lambda ax: rs.draw_mask(rs.Mask.causal(), layout, ax=ax),
    ):
        axis = fresh()
        figure = draw(ax=axis)
        assert figure is axis.figure and len(figure.axes) == 1
        assert axis.get_title(loc="left")


def test_a_refused_plan_is_marked_where_verify_says():
    plan = rs.plan(SHORT, cp_size=4).first_steps(2)
    with pytest.raises(rs.PlanError) as refused:
        plan.verify()
    figure = plan.draw()
    texts = " ".join(text.get_text().replace("\n", " ") for text in figure.texts)
    assert f"refused by verify(): {refused.value}" in texts
    rings = [line for line in mask_axis(figure).lines if line.get_marker() == "o"]
    (ring,) = rings
    at = (ring.get_xdata()[0] - 0.5, ring.get_ydata()[0] - 0.5)
    assert at == (refused.value.key, refused.value.row)
    whole = rs.plan(SHORT, cp_size=4).draw()
    assert not [line for line in mask_axis(whole).lines if line.get_marker() == "o"]


def test_a_counterexample_is_drawn_with_what_differs():
    layout, mask = rs.PackedLayout([0, 3, 5]), rs.Mask.causal()
    theirs = np.zeros((5, 5), bool)
    theirs[0, 0] = theirs[1, :3] = True  # too much in row 1, nothing in the others
    axis = fresh()
    rs.draw_mask(mask, layout, against=theirs, ax=axis)
    marks = {tuple(map(tuple, (x.get_offsets() - 0.5).astype(int))) for x in axis.collections}
    assert ((2, 1),) in marks  # key, row
    assert ((0, 2), (1, 2), (2, 2), (3, 3), (3, 4), (4, 4)) in marks
    assert "the other sees 1 too many (plus) and misses 6 (minus)" in axis.get_title(loc="left")
