"""What a plan costs, counted again from the masks and from the messages."""

import numpy as np
import pytest
import ringside as rs
from assertions import noted
from hypothesis import given
from hypothesis import strategies as st
from independent import dense_mask, visible_pairs
from ringside.testing import strategies

CASES = noted(strategies.cases())
SIZES = {"head_dim": 6, "head_dim_v": 5, "bytes_per_element": 2}


@given(CASES)
def test_pairs_of_all_ranks_are_the_visible_pairs_of_all_heads(case):
    pairs = case.plan().cost().pairs
    assert pairs.sum() == visible_pairs(case.mask, case.layout_q, case.keys) * case.num_heads


@given(CASES)
def test_pairs_of_a_step_are_those_of_its_tiles(case):
    plan = case.plan()
    pairs = plan.cost().pairs
    for rank in range(case.cp_size):
        for i, step in enumerate(plan.steps(rank)):
            count = 0
            for tile in step.tiles:
                dense = case.mask.to_dense(
                    int(case.layout_q.lengths[tile.q.seq]), int(case.keys.lengths[tile.q.seq])
                )
                q = [p for p in tile.q.positions if p < dense.shape[0]]
                k = [p for p in tile.k.positions if p < dense.shape[1]]
                count += int(dense[np.ix_(q, k)].sum())
            assert pairs[rank, i] == count * (step.heads[1] - step.heads[0])


def rows_below(segment, length):
    """Positions of the rows that hold tokens."""
    return [p for p in segment.positions.tolist() if p < length]


def in_blocks(rows, size):
    return [rows[i : i + size] for i in range(0, len(rows), size)]


@given(CASES, st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_blocks_of_a_step_are_those_that_hold_a_visible_pair(case, block_size):
    """Block by block of every tile, from a dense mask; visits once for all tiles of a segment."""
    plan = case.plan()
    cost = plan.cost(block_size=block_size)
    for rank, i in np.ndindex(case.cp_size, plan.num_steps):
        step, blocks, partial, visited = plan.steps(rank)[i], 0, 0, set()
        for tile in step.tiles:
            len_q, len_k = (int(x.lengths[tile.q.seq]) for x in (case.layout_q, case.keys))
            dense = dense_mask(case.mask, len_q, len_k)
            for number, q in enumerate(in_blocks(rows_below(tile.q, len_q), block_size[0])):
                for k in in_blocks(rows_below(tile.k, len_k), block_size[1]):
                    seen = dense[np.ix_(q, k)]
                    blocks += seen.any()
                    partial += seen.any() and not seen.all()
                    if seen.any():
                        visited.add((tile.q.row, number))
        heads = step.heads[1] - step.heads[0]
        got = (cost.blocks, cost.partial_blocks, cost.visits, cost.tiles)
        wanted = (blocks * heads, partial * heads, len(visited) * heads, len(step.tiles))
        assert tuple(int(field[rank, i]) for field in got) == wanted
    area = int(cost.blocks.sum()) * block_size[0] * block_size[1]
    assert cost.fill == (pytest.approx(cost.pairs.sum() / area, rel=1e-14) if area else 1)
    np.testing.assert_allclose(
        cost.fill_per_step * np.where(cost.blocks, cost.blocks * block_size[0] * block_size[1], 1),
        np.where(cost.blocks, cost.pairs, 1),
        rtol=1e-14,
    )


@given(CASES)
def test_needed_rows_are_those_of_other_ranks_that_a_tile_sees(case):
    plan = case.plan()
    cost = plan.cost()
    homes = [set(plan.row_indices(rank, side="k").tolist()) for rank in range(case.cp_size)]
    starts = case.keys.cu_seqlens_padded
    for rank, i in np.ndindex(case.cp_size, plan.num_steps):
        needed = set()
        for tile in plan.steps(rank)[i].tiles:
            len_q, len_k = (int(x.lengths[tile.q.seq]) for x in (case.layout_q, case.keys))
            q, k = rows_below(tile.q, len_q), rows_below(tile.k, len_k)
            seen = dense_mask(case.mask, len_q, len_k)[np.ix_(q, k)].any(axis=0)
            needed |= {int(starts[tile.k.seq]) + k[j] for j in np.flatnonzero(seen)}
        assert cost.rows_needed[rank, i] == len(needed - homes[rank])


@given(CASES)
def test_messages_are_what_other_ranks_send(case):
    plan = case.plan()
    messages = plan.cost().messages
    for rank, i in np.ndindex(case.cp_size, plan.num_steps):
        exchange = plan.steps(rank)[i]
        assert messages[rank, i] == sum(m.peer != rank for m in exchange.receives)
    np.testing.assert_array_equal(
        messages.sum(),
        sum(m.peer != r for r in range(case.cp_size) for s in plan.steps(r) for m in s.sends),
    )


def test_counts_are_views_that_nobody_can_write_to():
    cost = rs.plan(rs.PackedLayout([0, 8]), cp_size=2).cost()
    pairs = cost.pairs
    assert not pairs.flags.writeable
    kept = pairs.tolist()
    del cost
    assert pairs.tolist() == kept


@pytest.mark.parametrize("block_size", [(0, 128), (128, -1)])
def test_a_block_without_rows_is_refused(block_size):
    plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
    with pytest.raises(ValueError, match=r"block_size=.*at least 1 each"):
        plan.cost(block_size=block_size)


def test_zigzag_is_balanced_and_not_fast():
    """Chunks of 13 tokens pay for blocks of 128 x 128: whole documents fill them."""
    layout = rs.PackedLayout.from_lengths([1000 + 70 * i for i in range(20)])
    zigzag, whole = (
        rs.plan(layout, cp_size=64, partition=name).cost()
        for name in ("zigzag", "whole_pack_zigzag")
    )
    assert zigzag.imbalance < 1.05 < 1.2 < whole.imbalance
    assert 30 * zigzag.fill < whole.fill


def bytes_of(message):
    """K and V travel together; q alone."""
    dim = SIZES["head_dim"] + (SIZES["head_dim_v"] if message.operand == "kv" else 0)
    heads = message.heads[1] - message.heads[0]
    return message.rows * heads * dim * SIZES["bytes_per_element"]


@given(CASES)
def test_bytes_are_those_of_the_messages_to_other_ranks(case):
    plan = case.plan()
    cost = plan.cost(**SIZES)
    for rank in range(case.cp_size):
        for i, step in enumerate(plan.steps(rank)):
            for counted, messages in (
                (cost.bytes_sent, step.sends),
                (cost.bytes_received, step.receives),
            ):
                assert counted[rank, i] == sum(bytes_of(m) for m in messages if m.peer != rank)


@given(CASES)
def test_what_is_sent_is_received(case):
    cost = case.plan().cost(**SIZES)
    assert cost.bytes_sent.sum(axis=0).tolist() == cost.bytes_received.sum(axis=0).tolist()
    assert cost.result_bytes_sent.sum() == cost.result_bytes_received.sum()


@given(CASES)
def test_results_come_home_along_the_way_that_queries_went(case):
    plan = case.plan()
    cost = plan.cost(**SIZES)
    for rank in range(case.cp_size):
        away = [m for step in plan.steps(rank) for m in step.sends]
        cells = sum(
            m.rows * (m.heads[1] - m.heads[0]) for m in away if m.operand == "q" and m.peer != rank
        )
        per_cell = SIZES["head_dim_v"] * SIZES["bytes_per_element"] + 4  # out and a float32 lse
        assert cost.result_bytes_received[rank] == cells * per_cell


@given(CASES)
def test_resident_rows_are_those_of_the_buffers(case):
    plan = case.plan()
    cost = plan.cost()
    for rank in range(case.cp_size):
        for i, step in enumerate(plan.steps(rank)):
            assert cost.rows_q[rank, i] == sum(s.len for s in step.q)
            assert cost.rows_kv[rank, i] == sum(s.len for s in step.kv)


@given(CASES)
def test_imbalance_is_the_busiest_rank_over_the_mean(case):
    cost = case.plan().cost()
    per_rank = cost.pairs.sum(axis=1)
    wanted = per_rank.max() / per_rank.mean() if per_rank.sum() else 1.0
    assert cost.imbalance == pytest.approx(wanted, rel=1e-14)


@given(noted(strategies.cases(cp_sizes=st.just(1))))
def test_one_rank_sends_nothing(case):
    cost = case.plan().cost()
    assert cost.bytes_sent.sum() == cost.bytes_received.sum() == cost.result_bytes_sent.sum() == 0
    assert cost.imbalance == 1


@given(noted(strategies.cases(comms=st.just("all_gather"))))
def test_all_gather_brings_every_rank_the_rows_of_all_others(case):
    plan = case.plan()
    received = plan.cost(**SIZES).bytes_received.sum(axis=1)
    per_row = case.num_kv_heads * (SIZES["head_dim"] + SIZES["head_dim_v"]) * 2
    for rank in range(case.cp_size):
        others = case.keys.num_rows - len(plan.row_indices(rank, side="k"))
        assert received[rank] == others * per_row


def keys_seen(case, plan, rank):
    """[rows_k] True where one of the rank's queries sees the key, by the definition."""
    mine = np.zeros(case.layout_q.num_rows, bool)
    mine[plan.row_indices(rank)] = True
    seen = np.zeros(case.keys.num_rows, bool)
    for s in range(case.layout_q.num_sequences):
        len_q, len_k = int(case.layout_q.lengths[s]), int(case.keys.lengths[s])
        begin_q, begin_k = (int(x.cu_seqlens_padded[s]) for x in (case.layout_q, case.keys))
        dense = dense_mask(case.mask, len_q, len_k)[mine[begin_q : begin_q + len_q]]
        seen[begin_k : begin_k + len_k] = dense.any(axis=0)
    return seen


@given(noted(strategies.cases(comms=st.just("fetch"))))
def test_fetch_brings_every_rank_what_it_sees_and_no_row_twice(case):
    plan = case.plan()
    received = plan.cost(**SIZES).bytes_received.sum(axis=1)
    per_row = case.num_kv_heads * (SIZES["head_dim"] + SIZES["head_dim_v"]) * 2
    runs = all(s.stride == 1 for rank in range(case.cp_size) for s in plan.shards_q(rank))
    for rank in range(case.cp_size):
        foreign = np.ones(case.keys.num_rows, bool)
        foreign[plan.row_indices(rank, side="k")] = False
        needed = int((keys_seen(case, plan, rank) & foreign).sum())
        if runs and all(s.stride == 1 for r in range(case.cp_size) for s in plan.shards_k(r)):
            assert received[rank] == needed * per_row
        assert needed * per_row <= received[rank] <= foreign.sum() * per_row


@given(noted(strategies.cases(comms=st.just("fetch"))))
def test_fetch_takes_no_more_exchanges_than_stages_and_keeps_home_between_them(case):
    plan = case.plan()
    assert 1 <= plan.num_steps <= 1 + min(case.stages or 2, max(case.cp_size - 1, 0))
    for rank in range(case.cp_size):
        home, *later = plan.steps(rank)
        assert not home.sends and not home.receives
        for step in later[:-1]:  # its rows are to be sent once more
            resident = [(s.seq, p) for s in step.kv for p in s.positions.tolist()]
            own = [(s.seq, p) for s in plan.shards_k(rank) for p in s.positions.tolist()]
            assert resident[: len(own)] == own


def test_fetch_moves_nothing_where_documents_are_whole():
    layout = rs.PackedLayout.from_lengths([256] * 8)
    plan = rs.plan(layout, cp_size=4, partition="balanced", comm="fetch")
    assert plan.num_steps == 1
    assert plan.cost().bytes_received.sum() == 0
    assert "fetched: 0 kv rows, of 6,144 that an all_gather would bring" in plan.explain()


@given(noted(strategies.cases(comms=st.just("p2p"))))
def test_a_ring_never_moves_more_than_an_all_gather_and_never_takes_more_steps_than_ranks(case):
    plan = case.plan()
    assert plan.num_steps <= case.cp_size
    gathered = case.replace(comm="all_gather").plan()
    assert plan.cost().bytes_sent.sum() <= gathered.cost().bytes_sent.sum()


@given(noted(strategies.cases(comms=st.just("p2p"), cp_sizes=st.integers(2, 8))))
def test_a_ring_drops_every_hop_that_nobody_needs_from_then_on(case):
    """The last hop of a rank's keys is one on which somebody computes with them."""
    plan = case.plan()
    for rank in range(case.cp_size):
        sends = [i for i, step in enumerate(plan.steps(rank)) if step.sends]
        for i in sends:
            owner = (rank - (i - 1)) % case.cp_size
            later = range(i, plan.num_steps)
            assert any(plan.steps((owner + j) % case.cp_size)[j].tiles for j in later)


@pytest.mark.parametrize("partition", ["contiguous", "zigzag"])
def test_a_window_shortens_the_ring(partition):
    layout = rs.PackedLayout([0, 64])
    full, window = (
        rs.plan(layout, mask=mask, cp_size=8, partition=partition, comm="p2p")
        for mask in (rs.Mask.causal(), rs.Mask.sliding_window(4, 0))
    )
    assert window.num_steps <= full.num_steps
    assert window.cost().bytes_sent.sum() < full.cost().bytes_sent.sum()
    if partition == "contiguous":  # a rank needs its neighbour only
        assert window.num_steps == 2


def test_chunks_as_long_as_a_part_need_no_ring_at_all():
    plan = rs.plan(
        rs.PackedLayout([0, 64]), mask=rs.Mask.chunked(8), cp_size=8, partition="contiguous"
    )
    assert plan.num_steps == 1
    assert plan.cost().bytes_sent.sum() == 0


def test_zigzag_balances_a_long_causal_document():
    layout = rs.PackedLayout([0, 4096])
    imbalance = {
        partition: rs.plan(layout, cp_size=4, partition=partition).cost().imbalance
        for partition in ("contiguous", "zigzag", "striped")
    }
    assert imbalance["zigzag"] == 1.0
    assert imbalance["striped"] < 1.001
    assert imbalance["contiguous"] > 1.7
