"""The main claim: every plan of a case computes what the definition says, forward and backward."""

import itertools

import numpy as np
import pytest
import ringside as rs
from assertions import assert_results_close, noted
from hypothesis import given
from hypothesis import strategies as st
from mask_of_each_kind import MASKS
from ringside.testing import Case, strategies


def transports(cp_size):
    """(comm, a2a_size): every one there is for so many ranks."""
    divisors = [n for n in range(1, cp_size + 1) if cp_size % n == 0]
    alone = [(comm, None) for comm in rs.COMMS if comm != "a2a+p2p"]
    return alone + [("a2a+p2p", n) for n in divisors]


def assert_agrees_with_the_definition(case):
    arrays = case.arrays()
    assert_results_close(case, case.by_plan(arrays), case.by_definition(arrays), arrays)


@given(noted(strategies.cases()))
def test_any_plan_of_any_case_agrees_with_the_definition(case):
    assert_agrees_with_the_definition(case)


@given(noted(strategies.cases(cp_sizes=st.sampled_from([4, 6]), comms=st.just("a2a+p2p"))))
def test_rings_of_all_to_all_groups_agree_with_the_definition(case):
    assert_agrees_with_the_definition(case)


@given(noted(strategies.cases(cp_sizes=st.integers(3, 8), comms=st.just("p2p"))))
def test_long_rings_agree_with_the_definition(case):
    assert_agrees_with_the_definition(case)


@given(
    noted(
        strategies.cases(
            cp_sizes=st.integers(2, 8),
            comms=st.sampled_from(["a2a", "a2a+p2p"]),
            heads=strategies.heads(max_kv_heads=2),
        )
    )
)
def test_heads_that_do_not_divide_by_the_ranks_agree_with_the_definition(case):
    assert_agrees_with_the_definition(case)


@given(noted(strategies.cases(cp_sizes=st.just(1), comms=st.just("p2p"))))
def test_one_rank_needs_no_message_and_agrees_with_the_definition(case):
    assert case.plan().verify().messages == 0
    assert_agrees_with_the_definition(case)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_every_partition_and_transport_agrees_on_documents_longer_than_a_block(mask):
    """Hundreds of tokens: many blocks of queries and keys a tile, work spread over threads."""
    layout_q = rs.PackedLayout([0, 300, 301, 301, 460], [0, 304, 306, 311, 471])
    layout_k = rs.PackedLayout([0, 290, 310, 311, 480], [0, 299, 320, 321, 490])
    case = Case(
        layout_q, layout_k, mask=mask, cp_size=4, num_heads=4, num_kv_heads=2, head_dim_v=3, seed=7
    )
    arrays = case.arrays()
    wanted = case.by_definition(arrays)
    for partition, (comm, a2a_size) in itertools.product(rs.PARTITIONS, transports(4)):
        planned = case.replace(partition=partition, comm=comm, a2a_size=a2a_size)
        assert_results_close(planned, planned.by_plan(arrays), wanted, arrays)


@pytest.mark.parametrize("comm", ["p2p", "a2a"])
def test_ranks_that_hold_many_blocks_of_rows_agree(comm):
    """Work is dealt in 256 query rows: documents of one block, a row more, several of them."""
    layout = rs.PackedLayout([0, 256, 513, 1213], [0, 256, 520, 1230])
    case = Case(layout, mask=rs.Mask.sliding_window(90, 0), comm=comm, head_dim=3, head_dim_v=2)
    for cp_size in (1, 2):
        planned = case.replace(cp_size=cp_size, num_heads=2)
        arrays = planned.arrays()
        wanted = planned.by_definition(arrays)
        assert_results_close(planned, planned.by_plan(arrays), wanted, arrays)


@given(noted(strategies.cases()))
def test_running_twice_gives_the_same_bits(case):
    arrays = case.arrays()
    for first, second in zip(case.by_plan(arrays), case.by_plan(arrays), strict=True):
        np.testing.assert_array_equal(first, second)


@given(noted(strategies.cases(softmax_scales=st.sampled_from([200.0, -300.0]))))
def test_scores_hundreds_apart_neither_overflow_nor_vanish(case):
    """exp(score) alone would overflow (EasyContext #14); only differences may be exponentiated."""
    arrays = case.arrays()
    got, wanted = case.by_plan(arrays), case.by_definition(arrays)
    assert np.isfinite(got.out).all()
    assert not np.isnan(got.lse).any()
    # A score of thousands is itself rounded to 1e-12, and exp turns that into a relative error.
    np.testing.assert_allclose(got.lse, wanted.lse, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(got.out, wanted.out, rtol=0, atol=1e-9)
