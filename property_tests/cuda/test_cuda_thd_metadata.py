"""ringside.thd computes metadata on a device to the integer as on the host."""

import dataclasses

import numpy as np
import pytest
import ringside as rs
from cuda_cases import canaries, needs_gpu
from hypothesis import given
from hypothesis import strategies as st
from ringside import thd
from thd_cases import cp_ranks, layouts, masks
from thd_cuda_cases import device_layout, offsets


def assert_step(got, want):
    """The same entries, then empty ones at the end of both buffers."""
    count = len(want.sequence)
    assert (got.section, got.kv_rank, int(got.count)) == (want.section, want.kv_rank, count)
    filler = {
        "sequence": -1,
        "seqused_q": 0,
        "seqused_k": 0,
        "window_left": -1,
        "window_right": -1,
    }
    for field in dataclasses.fields(want):
        expected, ours = getattr(want, field.name), getattr(got, field.name)
        if not isinstance(expected, np.ndarray):
            continue
        ours = ours.cpu().numpy()
        assert ours.dtype == np.int32
        assert np.array_equal(ours[: len(expected)], expected), field.name
        assert (ours[len(expected) :] == filler.get(field.name, expected[-1:])).all(), field.name
    assert got.max_seqlen_q >= want.max_seqlen_q and got.max_seqlen_kv >= want.max_seqlen_kv


@needs_gpu
@given(layouts(), cp_ranks(), masks(), st.booleans())
def test_steps_are_those_of_the_host(layout, cp_rank, mask, wide):
    on_device = device_layout(layout, wide)
    with canaries():
        got = thd.all_gather_step_metadata(on_device, *cp_rank, mask)
    for ours, want in zip(got, thd.all_gather_step_metadata(layout, *cp_rank, mask), strict=True):
        assert_step(ours, want)
    for step in range(cp_rank[0]):
        with canaries():
            ours = thd.p2p_step_metadata(on_device, *cp_rank, step, mask)
        assert_step(ours, thd.p2p_step_metadata(layout, *cp_rank, step, mask))


@needs_gpu
@given(st.data(), cp_ranks(), masks(), st.booleans())
def test_steps_over_keys_of_other_lengths_are_those_of_the_host(data, cp_rank, mask, wide):
    layout = data.draw(layouts(batch=2))
    layout_k = data.draw(layouts(batch=2).filter(lambda k: k != layout))
    on_device, keys = device_layout(layout), device_layout(layout_k, wide)
    got = thd.all_gather_step_metadata(on_device, *cp_rank, mask, layout_k=keys)
    want = thd.all_gather_step_metadata(layout, *cp_rank, mask, layout_k=layout_k)
    for ours, theirs in zip(got, want, strict=True):
        assert_step(ours, theirs)
    for step in range(cp_rank[0]):
        got = thd.p2p_step_metadata(on_device, *cp_rank, step, mask, layout_k=keys)
        assert_step(got, thd.p2p_step_metadata(layout, *cp_rank, step, mask, layout_k=layout_k))


def assert_pieces(got, want):
    count = len(want.cu_seqlens) - 1
    assert int(got.count) == count
    for ours, theirs in ((got[0], want[0]), (got[1], want[1])):
        ours = ours.cpu().numpy()
        assert np.array_equal(ours[: count + 1], theirs)
        assert (ours[count:] == theirs[-1]).all()


@needs_gpu
@given(layouts(), cp_ranks(), st.integers(1, 12), st.booleans())
def test_pieces_pairs_and_indices_are_those_of_the_host(layout, cp_rank, chunk_size, wide):
    host = (layout.cu_seqlens, layout.cu_seqlens_padded, chunk_size)
    device = (offsets(host[0], wide), offsets(host[1], wide), chunk_size)
    rows = layout.num_rows
    with canaries():
        all_pieces = thd.chunkify(*device, num_rows=rows)
        local_pieces = thd.chunkify_p2p(*device, *cp_rank, num_rows=rows)
        indices = thd.partition_indices(device[1], *cp_rank, num_rows=rows)
    assert_pieces(all_pieces, thd.chunkify(*host))
    assert_pieces(local_pieces, thd.chunkify_p2p(*host, *cp_rank))
    want = thd.partition_indices(host[1], *cp_rank)
    assert int(indices.count) == len(want)
    assert indices.rows.tolist() == want.tolist() + [-1] * (len(indices.rows) - len(want))
    for kv_rank in range(cp_rank[0]):
        if kv_rank == cp_rank[1]:
            continue
        side = "below" if kv_rank < cp_rank[1] else "above"
        pairs = getattr(thd, f"chunkify_p2p_{side}_diagonal")
        with canaries():
            got = pairs(*device, *cp_rank, kv_rank)
        for ours, theirs in zip(got, pairs(*host, *cp_rank, kv_rank), strict=True):
            assert ours.tolist() == theirs.tolist()


@needs_gpu
@pytest.mark.parametrize("batch", [256, 257, 4096, 65_536, 200_000])
@pytest.mark.parametrize("multiple", [1, 16])
def test_metadata_of_large_batches(batch, multiple):
    rng = np.random.default_rng(batch)
    lengths = rng.integers(0, 70, batch)
    lengths[batch // 3] = 200_000  # more pieces and rows than all others of its group
    layout = rs.PackedLayout.from_lengths(lengths, pad_to_multiple_of=multiple)
    on_device = device_layout(layout)
    host = (layout.cu_seqlens, layout.cu_seqlens_padded)
    device = (on_device.cu_seqlens, on_device.cu_seqlens_padded)
    for mask in (rs.Mask.causal(), rs.Mask.sliding_window(5, 3), rs.Mask.chunked(16)):
        got = thd.all_gather_step_metadata(on_device, 8, 3, mask)
        for ours, want in zip(got, thd.all_gather_step_metadata(layout, 8, 3, mask), strict=True):
            assert_step(ours, want)
        for step in (0, 2, 5):
            want = thd.p2p_step_metadata(layout, 8, 3, step, mask)
            assert_step(thd.p2p_step_metadata(on_device, 8, 3, step, mask), want)
    rows = layout.num_rows
    assert_pieces(thd.chunkify(*device, 16, num_rows=rows), thd.chunkify(*host, 16))
    assert_pieces(
        thd.chunkify_p2p(*device, 16, 8, 3, num_rows=rows), thd.chunkify_p2p(*host, 16, 8, 3)
    )
    indices = thd.partition_indices(device[1], 8, 3, num_rows=rows)
    want = thd.partition_indices(host[1], 8, 3)
    assert np.array_equal(indices.rows.cpu().numpy()[: len(want)], want)


@needs_gpu
def test_a_long_sequence_has_many_pieces():
    layout = rs.PackedLayout([0, 1_000_000, 1_000_003])
    device = device_layout(layout)
    got = thd.chunkify(device.cu_seqlens, None, 7, num_rows=layout.num_rows)
    assert_pieces(got, thd.chunkify(layout.cu_seqlens, None, 7))
    got = thd.partition_indices(device.cu_seqlens, 3, 1, num_rows=layout.num_rows)
    want = thd.partition_indices(layout.cu_seqlens, 3, 1)
    assert np.array_equal(got.rows.cpu().numpy()[: len(want)], want)


@needs_gpu
@given(layouts(), cp_ranks(), masks(), st.integers(0, 6), st.integers(1, 9))
def test_too_little_room_is_told_by_the_count(layout, cp_rank, mask, capacity, chunk_size):
    device, rows = device_layout(layout), layout.num_rows
    with canaries():
        step = thd.p2p_step_metadata(device, *cp_rank, 0, mask, capacity=capacity)
        pieces = thd.chunkify(
            device.cu_seqlens,
            device.cu_seqlens_padded,
            chunk_size,
            num_rows=rows,
            capacity=capacity,
        )
        indices = thd.partition_indices(
            device.cu_seqlens_padded, *cp_rank, num_rows=rows, capacity=capacity
        )
    want = thd.p2p_step_metadata(layout, *cp_rank, 0, mask)
    assert int(step.count) == len(want.sequence)
    for name in ("sequence", "cu_seqlens_q", "cu_seqlens_kv_padded", "window_right"):
        ours, theirs = getattr(step, name).cpu().numpy(), getattr(want, name)
        assert np.array_equal(ours[: len(theirs)], theirs[: len(ours)])
    want = thd.chunkify(layout.cu_seqlens, layout.cu_seqlens_padded, chunk_size)
    assert int(pieces.count) == len(want.cu_seqlens) - 1
    assert (
        pieces.cu_seqlens.tolist()[: len(want.cu_seqlens)]
        == want.cu_seqlens.tolist()[: capacity + 1]
    )
    want = thd.partition_indices(layout.cu_seqlens_padded, *cp_rank)
    assert int(indices.count) == len(want)
    assert indices.rows.tolist()[: len(want)] == want.tolist()[:capacity]
