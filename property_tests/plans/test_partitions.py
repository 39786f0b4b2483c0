"""Who owns what: a bijection between global rows and the rows of ranks, whatever the lengths."""

import numpy as np
import pytest
import ringside as rs
from hypothesis import given
from hypothesis import strategies as st
from ringside.testing import strategies


@st.composite
def placements(draw, **restrict):
    """(layout, cp_size, plan): any partition of any layout; the transport does not matter."""
    layout = draw(restrict.get("layouts", strategies.layouts()))
    cp_size = draw(strategies.cp_sizes())
    names = restrict.get("names", strategies.partitions(layout=layout, cp_size=cp_size))
    plan = rs.plan(layout, cp_size=cp_size, partition=draw(names), comm="all_gather")
    return layout, cp_size, plan


def rows_of(plan, cp_size, side="q"):
    return [plan.row_indices(rank, side=side) for rank in range(cp_size)]


@given(placements())
def test_every_row_is_owned_exactly_once(placement):
    layout, cp_size, plan = placement
    owned = np.concatenate(rows_of(plan, cp_size))
    assert sorted(owned.tolist()) == list(range(layout.num_rows))


@given(
    placements(),
    st.sampled_from(["i4", "f8", "f2", "?", "c8", "U2"]),
    st.lists(st.integers(0, 2), max_size=2).map(tuple),
    st.sampled_from(["q", "k"]),
)
def test_unshard_undoes_shard_for_any_dtype_and_trailing_shape(placement, dtype, trailing, side):
    layout, cp_size, plan = placement
    shape = (layout.num_rows, *trailing)
    x = (np.arange(np.prod(shape, dtype=int)) % 97).reshape(shape).astype(dtype)
    parts = [plan.shard(x, rank, side=side) for rank in range(cp_size)]
    np.testing.assert_array_equal(plan.unshard(parts, side=side), x, strict=True)


@given(placements())
def test_a_shard_is_the_rows_that_its_indices_name(placement):
    layout, cp_size, plan = placement
    x = np.arange(layout.num_rows) * 10
    for rank, rows in enumerate(rows_of(plan, cp_size)):
        assert plan.shard(x, rank).tolist() == (rows * 10).tolist()
        assert rows.dtype == np.int32


@given(placements())
def test_position_ids_count_from_the_start_of_each_document(placement):
    layout, cp_size, plan = placement
    positions = np.concatenate([np.arange(n) for n in layout.padded_lengths] or [np.arange(0)])
    for rank in range(cp_size):
        ids = plan.position_ids(rank)
        assert ids.dtype == np.int32
        assert ids.tolist() == plan.shard(positions, rank).tolist()


@given(placements())
def test_segments_lie_back_to_back_and_name_the_owned_rows(placement):
    layout, cp_size, plan = placement
    for rank in range(cp_size):
        segments = plan.shards_q(rank)
        assert [s.row for s in segments] == [0, *np.cumsum([s.len for s in segments])][:-1]
        rows = [layout.cu_seqlens_padded[s.seq] + s.positions for s in segments]
        flat = np.concatenate(rows) if rows else np.zeros(0, int)
        assert flat.tolist() == plan.row_indices(rank).tolist()


@given(strategies.cases(comms=st.just("all_gather")))
def test_queries_and_keys_are_owned_alike_where_their_layouts_agree(case):
    plan = case.plan()
    for rank in range(case.cp_size):
        if case.layout_k is None:
            assert plan.shards_q(rank) == plan.shards_k(rank)
        assert len(plan.position_ids(rank, side="k")) == len(plan.row_indices(rank, side="k"))
    keys = np.concatenate(rows_of(plan, case.cp_size, "k"))
    assert sorted(keys.tolist()) == list(range(case.keys.num_rows))


@given(strategies.cases(comms=st.just("all_gather")))
def test_arrays_of_keys_are_sharded_by_the_layout_of_keys(case):
    plan, x = case.plan(), np.arange(case.keys.num_rows) * 3
    positions = np.concatenate([np.arange(0), *(np.arange(n) for n in case.keys.padded_lengths)])
    parts = [plan.shard(x, rank, side="k") for rank in range(case.cp_size)]
    for rank, part in enumerate(parts):
        assert part.tolist() == x[plan.row_indices(rank, side="k")].tolist()
        rows = plan.shard(positions, rank, side="k")
        assert plan.position_ids(rank, side="k").tolist() == rows.tolist()
    assert plan.unshard(parts, side="k").tolist() == x.tolist()


def owner_in_transformer_engine(layout, cp_size):
    """rank -> global rows, by the formula of its THD format; padded lengths divide by 2*cp_size."""
    rows = [[] for _ in range(cp_size)]
    for begin, padded in zip(layout.cu_seqlens_padded, layout.padded_lengths, strict=False):
        chunk = padded // (2 * cp_size)
        for rank in range(cp_size):
            for slot in range(2 * chunk):
                x = slot if slot < chunk else slot + chunk * (2 * (cp_size - 1) - 2 * rank)
                rows[rank].append(int(begin + rank * chunk + x))
    return rows


@given(strategies.lengths(), strategies.cp_sizes())
def test_zigzag_is_the_order_of_transformer_engine_where_lengths_divide(lengths, cp_size):
    layout = rs.PackedLayout.from_lengths(lengths, pad_to_multiple_of=2 * cp_size)
    plan = rs.plan(layout, cp_size=cp_size, partition="zigzag", comm="all_gather")
    got = [rows.tolist() for rows in rows_of(plan, cp_size)]
    assert got == owner_in_transformer_engine(layout, cp_size)


def test_the_documented_zigzag_of_transformer_engine():
    layout = rs.PackedLayout([0, 8, 16, 24, 40])
    plan = rs.plan(layout, cp_size=4, partition="zigzag")
    assert [plan.position_ids(rank).tolist() for rank in range(4)] == [
        [0, 7, 0, 7, 0, 7, 0, 1, 14, 15],
        [1, 6, 1, 6, 1, 6, 2, 3, 12, 13],
        [2, 5, 2, 5, 2, 5, 4, 5, 10, 11],
        [3, 4, 3, 4, 3, 4, 6, 7, 8, 9],
    ]


@pytest.mark.parametrize("partition", rs.PARTITIONS)
@pytest.mark.parametrize("layout", [rs.PackedLayout([0, 7]), rs.PackedLayout([0, 7], [0, 8])])
def test_seven_tokens_over_two_ranks_lose_none(partition, layout):
    """TransformerEngine #1930, #1929, Megatron-LM #1669: 7 // 2 * 2 == 6 tokens were computed."""
    plan = rs.plan(layout, cp_size=2, partition=partition)
    tokens = [p for rank in range(2) for p in plan.position_ids(rank).tolist() if p < 7]
    assert sorted(tokens) == list(range(7))
    assert plan.verify().pairs == 7 * 8 // 2
    q = np.random.default_rng(0).normal(size=(layout.num_rows, 1, 2))
    _, lse = plan.attention(q, q, q)
    assert np.isfinite(lse[0, :7]).all()


@given(placements(names=st.just("striped")))
def test_stripes_deal_positions_like_cards(placement):
    _, cp_size, plan = placement
    for rank in range(cp_size):
        assert (plan.position_ids(rank) % cp_size == rank).all()


@given(placements(names=st.just("contiguous")))
def test_contiguous_parts_follow_each_other_and_differ_by_a_row_at_most(placement):
    layout, cp_size, plan = placement
    for s in range(layout.num_sequences):
        parts = [[x for x in plan.shards_q(rank) if x.seq == s] for rank in range(cp_size)]
        positions = [p for part in parts for x in part for p in x.positions.tolist()]
        assert positions == list(range(layout.padded_lengths[s]))
        sizes = [sum(x.len for x in part) for part in parts]
        assert max(sizes) - min(sizes) <= 1


@given(placements(names=st.just("zigzag")))
def test_zigzag_gives_rank_r_chunks_r_and_its_mirror_image(placement):
    layout, cp_size, plan = placement
    for s in range(layout.num_sequences):
        halves = [[], []]
        for rank in range(cp_size):
            positions = [p for x in plan.shards_q(rank) if x.seq == s for p in x.positions]
            middle = int(layout.padded_lengths[s]) * cp_size // (2 * cp_size)
            halves[0].append([p for p in positions if p < middle])
            halves[1].insert(0, [p for p in positions if p >= middle])
            assert abs(len(halves[0][-1]) - len(halves[1][0])) <= 1
        flat = [p for half in halves for chunk in half for p in chunk]
        assert flat == list(range(layout.padded_lengths[s]))


@given(placements(names=st.just("whole_pack")))
def test_whole_pack_cuts_the_stream_of_rows_as_it_lies(placement):
    layout, cp_size, plan = placement
    rows = rows_of(plan, cp_size)
    assert np.concatenate(rows).tolist() == list(range(layout.num_rows))
    sizes = [len(x) for x in rows]
    assert max(sizes) - min(sizes) <= 1


@given(placements(names=st.just("whole_pack_zigzag")))
def test_whole_pack_zigzag_is_the_zigzag_of_one_long_sequence(placement):
    layout, cp_size, plan = placement
    one = rs.PackedLayout([0, layout.num_rows])
    long = rs.plan(one, cp_size=cp_size, partition="zigzag")
    for rank in range(cp_size):
        assert plan.row_indices(rank).tolist() == long.row_indices(rank).tolist()


@given(placements(), st.integers(-3, 3))
def test_labels_are_rolled_before_they_are_sharded(placement, shift):
    """A rank's own rows do not hold the neighbours: roll globally, then shard."""
    layout, cp_size, plan = placement
    labels = plan.roll(np.arange(layout.num_rows), shift, fill_value=-100)
    assert (
        labels.tolist() == layout.roll(np.arange(layout.num_rows), shift, fill_value=-100).tolist()
    )
    parts = [plan.shard(labels, rank) for rank in range(cp_size)]
    assert plan.unshard(parts).tolist() == labels.tolist()


def test_parts_of_unlike_dtype_are_promoted_never_truncated():
    plan = rs.plan(rs.PackedLayout([0, 2]), cp_size=2, partition="contiguous")
    assert plan.unshard([np.array([1]), np.array([2.5])]).tolist() == [1.0, 2.5]


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_part_of_fewer_or_more_rows_than_the_rank_s_is_refused(rows):
    plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
    with pytest.raises(ValueError, match=rf"part 1 has shape \({rows}, 3\); rank 1 owns 2"):
        plan.unshard([np.ones((2, 3)), np.ones((rows, 3))])


def test_parts_of_unlike_shape_are_refused_not_broadcast():
    plan = rs.plan(rs.PackedLayout([0, 2]), cp_size=2)
    with pytest.raises(ValueError, match=r"part 1 has shape \(1, 1\)"):
        plan.unshard([np.ones((1, 3)), np.ones((1, 1))])
