"""What the notebooks' pictures and numbers are made of is what plans and layouts say."""

import io
import itertools

import numpy as np
import pytest
import ringside as rs
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside import learn
from ringside.learn.figures.errors import figure_of_errors
from ringside.learn.figures.halves import lse_of, weights_of
from ringside.learn.figures.masks import figure_of_interval
from ringside.learn.figures.packs import documents_of, positions_of
from ringside.learn.figures.ring import owners_of_keys
from ringside.testing import strategies

LAYOUT = rs.PackedLayout.from_lengths([5, 7, 0, 3], pad_to_multiple_of=4)
PLAN = rs.plan(LAYOUT, cp_size=2)


def saved(figure):
    """The picture's bytes: it can be drawn."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


# --- packs


@given(strategies.layouts())
def test_a_row_is_told_its_document_and_position(layout):
    ids = np.arange(layout.num_tokens)
    begins = layout.cu_seqlens
    apart = [ids[a:b] - a for a, b in itertools.pairwise(begins)]
    expected = layout.pack(apart, fill_value=-1) if apart else np.zeros(0)
    assert positions_of(layout).tolist() == np.asarray(expected).tolist()
    documents = documents_of(layout)
    assert len(documents) == layout.num_rows and (np.diff(documents) >= 0).all()
    counted = np.bincount(documents, minlength=layout.num_sequences)
    assert counted.tolist() == layout.padded_lengths.tolist()


def test_rows_are_drawn_and_what_differs_is_marked():
    positions = positions_of(LAYOUT)
    wrong = positions + (np.arange(LAYOUT.num_rows) == 3)
    figure = learn.figure_of_rows(LAYOUT, {"mine": wrong}, expected=positions)
    marked = [bar for bar in figure.axes[1].patches if bar.get_linewidth() == 2]
    assert [round(bar.get_x() + bar.get_width() / 2 - 0.5) for bar in marked] == [3]
    assert saved(figure) != saved(learn.figure_of_rows(LAYOUT, {"mine": positions}))


@pytest.mark.parametrize("lengths", [[], [0], [0, 0], [3, -1]])
def test_documents_without_a_token_cannot_be_drawn(lengths):
    with pytest.raises(ValueError, match=r"got lengths .*; expected .*\. Pass"):
        learn.figure_of_documents(lengths)


def test_a_large_pack_has_no_cell_a_row():
    with pytest.raises(ValueError, match=r"got a layout of 65 rows; expected at most 64"):
        learn.figure_of_rows(rs.PackedLayout([0, 65]))


# --- masks


@given(strategies.masks(), st.integers(1, 12), st.integers(1, 12))
@settings(max_examples=10)
def test_a_mask_is_drawn_as_it_is(mask, len_q, len_k):
    (axis,) = learn.figure_of_masks({"mask": mask}, len_q, len_k).axes
    (cells,) = axis.collections
    assert cells.get_array().reshape(len_q, len_k).tolist() == mask.to_dense(len_q, len_k).tolist()
    assert saved(figure_of_interval(mask, len_q - 1, (len_q, len_k), (-3, 2)))


@pytest.mark.parametrize("bad", [{"len_q": 0}, {"len_q": 65}, {"len_q": 3, "len_k": -1}])
def test_masks_of_no_size_or_too_large_are_refused(bad):
    with pytest.raises(ValueError, match=r"got len_[qk]=-?\d+; expected 1 to 64"):
        learn.figure_of_masks({"mask": rs.Mask.full()}, **bad)


@pytest.mark.parametrize("count", [0, 10])
def test_masks_are_one_to_nine(count):
    with pytest.raises(ValueError, match=rf"got {count} masks; expected 1 to 9"):
        learn.figure_of_masks({str(i): rs.Mask.full() for i in range(count)}, 3)


def test_what_is_no_mask_is_refused_by_its_name():
    with pytest.raises(TypeError, match="mine"):
        learn.figure_of_masks({"mine": 3}, 3)


# --- halves


@given(st.lists(st.floats(-700, 700), max_size=6))
def test_weights_and_lse_are_those_of_the_definition(scores):
    x = np.array(scores)
    powers = np.exp(np.longdouble(x))
    assert lse_of(x) == pytest.approx(float(np.log(powers.sum())) if scores else -np.inf)
    assert weights_of(x) == pytest.approx((powers / powers.sum()).astype(float) if scores else x)


@pytest.mark.parametrize("split", [0, 3, -1, 9])
def test_a_half_has_a_key(split):
    with pytest.raises(
        ValueError, match=rf"got scores of shape \(3,\) and split={split}; expected"
    ):
        learn.figure_of_halves([1.0, 2.0, 3.0], split)


# --- balance


@given(strategies.layouts(), st.integers(1, 5), st.sampled_from(rs.PARTITIONS))
@settings(max_examples=25)
def test_a_share_is_that_of_the_plan(layout, cp_size, partition):
    share = learn.share_of(layout, partition, cp_size)
    cost = rs.plan(layout, cp_size=cp_size, partition=partition, comm="all_gather").cost()
    alone = rs.plan(layout, cp_size=1, partition="contiguous", comm="all_gather").cost()
    blocks = cost.blocks.sum(axis=1).max()
    assert share.blocks == pytest.approx(blocks * cp_size / (alone.blocks.sum() or 1) or 1)
    assert cost.pairs.sum() == 0 or (share.pairs, share.fill) == (cost.imbalance, cost.fill)


def test_balance_tells_every_partition_at_every_number_of_ranks():
    layout = rs.PackedLayout.from_lengths([5000] + [700] * 10)
    found = learn.balance(layout, [8, 2, 8])
    assert set(found.shares) == set(rs.PARTITIONS)
    for name, shares in found.shares.items():
        assert shares == {n: learn.share_of(layout, name, n) for n in (2, 8)}
    slowest = [found.shares[name][8].blocks for name in found.order(8)]
    assert slowest == sorted(slowest)
    lines = str(found).splitlines()
    assert [line.split()[0] for line in lines[1:]] == found.order(8)
    first, second = found.figure().axes
    assert len(first.lines) == len(second.lines) == len(rs.PARTITIONS)
    for line, shares in zip(second.lines, found.shares.values(), strict=True):
        assert line.get_xydata().tolist() == [[n, shares[n].blocks] for n in (2, 8)]


@pytest.mark.parametrize("sizes", [[], [0], [4, -2]])
def test_ranks_are_at_least_one(sizes):
    with pytest.raises(ValueError, match=r"got cp_sizes .*; expected numbers of ranks"):
        learn.balance(LAYOUT, sizes)


def test_an_order_is_known_of_what_was_counted():
    with pytest.raises(ValueError, match=r"got cp_size=3; expected one of 2, 4, which were"):
        learn.balance(LAYOUT, [2, 4]).order(3)


# --- steps


@given(strategies.cases(cp_sizes=st.integers(1, 4)))
@settings(max_examples=40)
def test_whose_keys_a_rank_holds_is_told_by_moving_them(case):
    """Each rank's buffer is filled with its number, and moved as the plan says."""
    plan = case.plan()
    ranks = range(plan.cp_size)
    rows = [len(plan.row_indices(rank, side="k")) for rank in ranks]
    heads = plan.num_kv_heads
    held = [np.full((rows[rank], heads, 1), float(rank)) for rank in ranks]
    for step, owners in enumerate(zip(*owners_of_keys(plan), strict=True)):
        held = plan.exchange(step, "kv", held)
        for rank in ranks:
            seen = np.unique(held[rank][~np.isnan(held[rank])]).astype(int).tolist()
            assert seen == owners[rank], (rank, step)


def test_a_story_is_drawn_part_by_part():
    figure = learn.figure_of_story(rs.plan(rs.PackedLayout([0, 40]), cp_size=4), 39)
    assert len(figure.axes[0].get_yticks()) == 4 and saved(figure)


def test_a_row_without_an_answer_has_no_story():
    with pytest.raises(ValueError, match="got row 7, which is padding or sees no key"):
        learn.figure_of_story(PLAN, 7)


def test_plans_of_many_ranks_or_steps_are_not_drawn():
    many = rs.plan(rs.PackedLayout([0, 80]), cp_size=20, comm="all_gather")
    with pytest.raises(
        ValueError, match=r"got a plan of 20 ranks and 1 steps; expected at most 16"
    ):
        learn.figure_of_ring(many)
    ring = rs.plan(rs.PackedLayout([0, 80]), cp_size=40)
    with pytest.raises(ValueError, match=r"the row has 40 parts; expected at most 32"):
        learn.figure_of_story(ring, 79)


def test_the_error_after_all_steps_is_none():
    q, k, v = np.random.default_rng(0).normal(size=(3, LAYOUT.num_rows, 1, 4))
    errors = learn.errors_after_steps(PLAN, q, k, v)
    assert errors.shape == (PLAN.num_steps + 1,) and errors[0] == 1 and errors[-1] == 0
    assert 0 < errors[1]
    empty = rs.plan(rs.PackedLayout([0]), cp_size=2)
    assert not learn.errors_after_steps(empty, q[:0], k[:0], v[:0]).any()


# --- nothing to draw


@pytest.mark.parametrize(
    ("draw", "missing"),
    [
        (lambda: figure_of_errors(LAYOUT, {}, "mine"), "no results"),
        (lambda: learn.figure_of_error_table({}), "no errors"),
        (lambda: learn.figure_of_error_table({"mine": {}}), "no errors"),
        (lambda: learn.figure_of_habits({}), "no faults"),
        (lambda: learn.figure_of_habits({"the usual test": {}}), "no faults"),
        (
            lambda: learn.figure_of_micro_sequences(
                rs.MicroSequenceBuffer(rs.PackedLayout([0]), [0, 0])
            ),
            "a buffer of no rows",
        ),
        (lambda: learn.figure_of_story(rs.plan(rs.PackedLayout([0]), cp_size=2), 0), "row 0"),
    ],
)
def test_nothing_is_refused_in_words(draw, missing):
    with pytest.raises(rs.InvalidArgument, match=missing):
        draw()
