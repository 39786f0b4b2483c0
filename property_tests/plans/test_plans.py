"""plan.verify() accepts every plan that is right; plans are values, and JSON keeps them."""

import numpy as np
import ringside as rs
from assertions import noted
from half_steps import in_half_steps
from hypothesis import given
from hypothesis import strategies as st
from independent import visible_pairs
from ringside.testing import strategies

CASES = noted(strategies.cases())


@given(CASES)
def test_every_plan_is_proved_and_the_proof_counts_what_there_is(case):
    plan = case.plan()
    proof = plan.verify()
    assert proof.rows == case.layout_q.num_rows + case.keys.num_rows
    assert proof.pairs == visible_pairs(case.mask, case.layout_q, case.keys)
    steps = [step for rank in range(case.cp_size) for step in plan.steps(rank)]
    assert proof.tiles == sum(len(step.tiles) for step in steps)
    assert proof.messages == sum(len(step.sends) for step in steps)
    assert proof.messages == sum(len(step.receives) for step in steps)


@given(CASES)
def test_a_plan_remembers_what_it_was_made_for(case):
    plan = case.plan()
    assert (plan.layout_q, plan.layout_k, plan.mask) == (case.layout_q, case.keys, case.mask)
    assert (plan.num_heads, plan.num_kv_heads) == (case.num_heads, case.num_kv_heads)
    assert (plan.cp_size, plan.comm) == (case.cp_size, case.comm)
    named = isinstance(case.partition, str)
    assert plan.partition == (case.partition if named else "custom")
    assert all(len(plan.steps(rank)) == plan.num_steps for rank in range(case.cp_size))


@given(CASES)
def test_the_same_arguments_make_the_same_plan(case):
    assert case.plan() == case.plan()
    assert case.plan() != case.replace(mask=rs.Mask(window_size=(987, 654))).plan()


@given(CASES)
def test_tiles_name_resident_rows_of_one_document(case):
    plan = case.plan()
    for rank in range(case.cp_size):
        for step in plan.steps(rank):
            resident = {}
            for side, segments in (("q", step.q), ("k", step.kv)):
                rows = [(s.seq, p) for s in segments for p in s.positions.tolist()]
                resident[side] = dict(enumerate(rows))
            for tile in step.tiles:
                for side, s in (("q", tile.q), ("k", tile.k)):
                    named = [(s.seq, p) for p in s.positions.tolist()]
                    assert [resident[side].get(s.row + i) for i in range(s.len)] == named
                assert tile.q.seq == tile.k.seq


@given(CASES)
def test_json_and_back_is_the_same_plan(case):
    plan = case.plan()
    again = rs.Plan.from_json(plan.to_json())
    assert again == plan
    assert again.to_json() == plan.to_json()


@given(CASES)
def test_steps_cut_in_two_are_proved_and_give_the_same(case):
    plan, arrays = case.plan(), case.arrays()
    halves = in_half_steps(plan)
    assert halves.verify().pairs == plan.verify().pairs
    (out, lse), (want, want_lse) = (p.attention(*arrays[:3]) for p in (halves, plan))
    np.testing.assert_allclose(out, want, rtol=0, atol=1e-12)
    np.testing.assert_allclose(lse, want_lse, rtol=0, atol=1e-12)
    saved = (arrays.dout, *arrays[:3], want, want_lse)
    for got, expected in zip(*(p.attention_backward(*saved) for p in (halves, plan)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


# --- user segments


@given(
    st.data(),
    strategies.layouts(lengths=strategies.lengths(min_sequences=1)),
    strategies.cp_sizes(),
    strategies.comms(),
)
def test_your_own_segments_make_a_plan_like_any_other(data, layout, cp_size, comm):
    shards = data.draw(strategies.segments(layout=layout, cp_size=cp_size))
    a2a_size = data.draw(strategies.a2a_sizes(comm=comm, cp_size=cp_size))
    plan = rs.plan(layout, partition=shards, comm=comm, a2a_size=a2a_size)
    assert plan.cp_size == cp_size
    assert plan.verify().pairs == visible_pairs(plan.mask, layout, layout)
    for rank, wanted in enumerate(shards):
        got = plan.shards_q(rank)
        key = [(s.seq, s.pos, s.len, s.stride) for s in wanted]
        assert [(s.seq, s.pos, s.len, s.stride) for s in got] == key


@given(strategies.layouts(), strategies.cp_sizes(), st.sampled_from(rs.PARTITIONS))
def test_a_named_partition_handed_over_as_segments_is_the_same(layout, cp_size, name):
    named = rs.plan(layout, cp_size=cp_size, partition=name)
    handed = rs.plan(layout, partition=[named.shards_q(rank) for rank in range(cp_size)])
    for rank in range(cp_size):
        assert handed.position_ids(rank).tolist() == named.position_ids(rank).tolist()
        assert [step.tiles for step in handed.steps(rank)] == [
            step.tiles for step in named.steps(rank)
        ]


def test_ranks_may_own_nothing():
    layout = rs.PackedLayout([0, 3])
    plan = rs.plan(layout, partition=[[], [rs.Segment(0, 0, 3)], []], comm="all_gather")
    plan.verify()
    assert [len(plan.row_indices(rank)) for rank in range(3)] == [0, 3, 0]
    q = np.random.default_rng(0).normal(size=(3, 1, 2))
    np.testing.assert_allclose(plan.attention(q, q, q)[0], rs.attention(q, q, q, layout)[0])
