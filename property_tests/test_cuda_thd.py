"""ringside.thd on device arrays: bit for bit as on the host, and nothing else is written."""

import dataclasses
import itertools

import numpy as np
import pytest
import ringside as rs
from cuda_cases import canaries, needs_gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside import thd
from thd_cases import cp_ranks, cp_sizes, cumulative, layouts, masks, segment_tables
from thd_cuda_cases import Kind, Rows, bytes_of, device_layout, kinds, offsets

REORDERS = ("sequence_order_to_cp_rank_order", "cp_rank_order_to_sequence_order")
KV = Kind("bfloat16", (2, 64), 0, 0)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[int], int]:
    """(where sequences start, cp_size); in half of them 2*cp_size divides all lengths."""
    cp_size = draw(cp_sizes)
    unit = 2 * cp_size if draw(st.booleans()) else 1
    return cumulative([unit * n for n in draw(st.lists(st.integers(0, 30), max_size=12))]), cp_size


# --- rows


@needs_gpu
@given(batches(), st.lists(kinds(), min_size=1, max_size=4), st.booleans())
def test_any_list_of_arrays_is_reordered_in_one_launch(batch, kinds_of_arrays, wide):
    starts, cp_size = batch
    arrays = [Rows(starts[-1], kind, seed) for seed, kind in enumerate(kinds_of_arrays)]
    for name in REORDERS:
        with canaries():
            got = getattr(thd, name)([a.array for a in arrays], offsets(starts, wide), cp_size)
        assert isinstance(got, list)
        for ours, given_ in zip(got, arrays, strict=True):
            want = getattr(thd, name)(given_.bytes, starts, cp_size)
            assert (ours.dtype, ours.shape) == (given_.array.dtype, given_.array.shape)
            assert np.array_equal(bytes_of(ours), want)


def assert_reorders(x, starts, cp_size):
    """Both ways, the large arrays compared on the device, part by part."""
    import torch

    order = np.concatenate([thd.partition_indices(starts, cp_size, r) for r in range(cp_size)])
    order = torch.from_numpy(order).long().cuda()
    with canaries():
        by_rank = thd.sequence_order_to_cp_rank_order(x, offsets(starts), cp_size)
        back = thd.cp_rank_order_to_sequence_order(by_rank, offsets(starts), cp_size)
    for rows in range(0, len(x), 1 << 16):
        part = slice(rows, rows + (1 << 16))
        assert torch.equal(by_rank[part], x[order[part]])
    assert torch.equal(back, x)


@needs_gpu
@pytest.mark.parametrize("cp_size", [1, 2, 8])
@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("row", [1, 64, 1000])
def test_batches_of_65536_sequences_are_reordered(cp_size, equal, row):
    import torch

    lengths = np.random.default_rng(0).integers(0, 3 if equal else 9, 65_536)
    starts = cumulative(lengths * 2 * cp_size if equal else lengths)
    x = torch.randint(-(2**15), 2**15, (starts[-1], row), dtype=torch.int16, device="cuda")
    assert_reorders(x, starts, cp_size)


@needs_gpu
@pytest.mark.parametrize("cp_size", [2, 5])
def test_arrays_beyond_4_gibibytes_are_reordered(cp_size):
    import torch

    x = torch.randint(0, 2**31 - 1, (70_000, 16_384), dtype=torch.int32, device="cuda")
    assert_reorders(x, [0, 12_000, 12_000, 70_000], cp_size)


@needs_gpu
def test_booleans_are_reordered():
    import torch

    x = torch.rand(40, device="cuda") < 0.5
    assert_reorders(x.view(torch.uint8), [0, 5, 40], 3)
    got = thd.sequence_order_to_cp_rank_order(x, offsets([0, 5, 40]), 3)
    want = thd.sequence_order_to_cp_rank_order(x.cpu().numpy(), [0, 5, 40], 3)
    assert got.tolist() == want.tolist()


@needs_gpu
def test_more_arrays_than_one_launch_takes_and_none_at_all():
    starts = [0, 5, 5, 40]
    arrays = [Rows(40, Kind("int16", (n,), 0, 0), n) for n in range(40)]
    got = thd.sequence_order_to_cp_rank_order(tuple(a.array for a in arrays), offsets(starts), 3)
    assert isinstance(got, tuple)
    for ours, given_ in zip(got, arrays, strict=True):
        want = thd.sequence_order_to_cp_rank_order(given_.bytes, starts, 3)
        assert np.array_equal(bytes_of(ours), want)
    empty = Rows(0, KV)
    for starts in ([0], [0, 0, 0]):
        assert thd.sequence_order_to_cp_rank_order(empty.array, offsets(starts), 2).shape[0] == 0


@needs_gpu
@given(st.data(), kinds(), st.booleans())
def test_only_valid_rows_are_copied(data, kind, wide):
    starts = sorted(data.draw(st.lists(st.integers(0, 90), min_size=1, max_size=9)))
    lengths = [data.draw(st.integers(0, b - a)) for a, b in itertools.pairwise(starts)]
    valid = data.draw(st.integers(0, 9)) + np.array(cumulative(lengths))
    rows = starts[-1] + data.draw(st.integers(0, 5))
    out, step_out = Rows(rows, kind, 1), Rows(rows, kind, 2)
    want = out.bytes.copy()
    thd.copy_valid_tokens(want, step_out.bytes, starts, valid)
    thd.copy_valid_tokens(out.array, step_out.array, offsets(starts, wide), offsets(valid, wide))
    out.assert_holds(want)


@needs_gpu
@given(segment_tables(), kinds(), st.booleans())
def test_rows_follow_a_table_of_segments(case, kind, wide):
    table, out_rows, x_rows = case
    table = np.array(table, int).reshape(-1, 5)
    out, x = Rows(out_rows, kind, 1), Rows(x_rows, kind, 2)
    want = out.bytes.copy()
    thd.copy_rows(want, x.bytes, table)
    thd.copy_rows(out.array, x.array, offsets(table, wide))
    out.assert_holds(want)


@needs_gpu
@given(segment_tables(), kinds(dtypes=["float32", "float16", "bfloat16"]), st.booleans())
def test_sums_are_those_of_float32_to_the_bit(case, kind, wide):
    import torch

    table, out_rows, x_rows = case
    table = np.array(table, int).reshape(-1, 5)
    sums = Rows(out_rows, kind._replace(dtype="float32"), 1)
    x = torch.randn(x_rows, *kind.shape, device="cuda").to(getattr(torch, kind.dtype))
    sums.array.normal_()
    before = sums.whole.cpu().numpy().copy()
    want = bytes_of(sums.array).view(np.float32).copy() if sums.array.numel() else None
    rows = x.float().cpu().numpy().reshape(x_rows, int(np.prod(kind.shape)))
    thd.add_rows(sums.array, x, offsets(table, wide))
    if want is not None:
        thd.add_rows(want, rows, table)
        before[sums.of_rows] = want.view(np.uint8)
    assert np.array_equal(sums.whole.cpu().numpy(), before)


@needs_gpu
def test_a_long_table_of_segments():
    import torch

    rng = np.random.default_rng(0)
    rows = rng.integers(0, 5, 20_000)
    to_rows = np.cumsum(rows) - rows
    from_rows = rng.permutation(to_rows)  # anywhere
    table = np.stack([from_rows, 0 * rows, to_rows, 0 * rows + 1, rows], axis=1)
    x = torch.randn(int(rows.sum()) + 1, 64, device="cuda", dtype=torch.bfloat16)
    out = torch.zeros(int(rows.sum()), 64, device="cuda")
    thd.add_rows(out, x, offsets(table))
    want = x[torch.from_numpy(np.repeat(from_rows, rows)).cuda()].float()
    assert torch.equal(out, want)


# --- metadata


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
@pytest.mark.parametrize("batch", [4096, 65_536, 200_000])
@pytest.mark.parametrize("multiple", [1, 16])
def test_metadata_of_large_batches(batch, multiple):
    rng = np.random.default_rng(batch)
    lengths = rng.integers(0, 70, batch)
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


# --- offsets that mean nothing


@needs_gpu
@settings(max_examples=60)
@given(st.data(), cp_ranks(), masks(), st.integers(1, 9), st.booleans())
def test_offsets_that_mean_nothing_touch_no_memory_outside(data, cp_rank, mask, chunk_size, wide):
    import torch

    values = st.one_of(st.integers(-5, 60), st.integers(-(2**31), 2**31 - 1))
    if wide:
        values = st.one_of(values, st.integers(-(2**62), 2**62))
    batch = data.draw(st.integers(1, 8))
    one, other = (
        offsets(data.draw(st.lists(values, min_size=batch + 1, max_size=batch + 1)), wide)
        for _ in range(2)
    )
    rows, kind = 40, Kind("int16", (64,), 0, 0)
    table = offsets(
        data.draw(st.lists(st.lists(values, min_size=5, max_size=5), min_size=1, max_size=5)), wide
    )
    x, out = Rows(rows, kind, 1), Rows(rows, kind._replace(between=3), 2)
    sums = Rows(rows, Kind("float32", (64,), 0, 3), 3)
    layout = thd.DeviceLayout(one, other, rows)
    with canaries():
        for name in REORDERS:
            getattr(thd, name)(x.array, one, cp_rank[0])
        thd.all_gather_step_metadata(layout, *cp_rank, mask)
        thd.p2p_step_metadata(layout, *cp_rank, cp_rank[0] - 1, mask)
        thd.chunkify_p2p(one, other, chunk_size, *cp_rank, num_rows=rows)
        thd.chunkify(one, other, chunk_size, num_rows=rows)
        thd.partition_indices(one, *cp_rank, num_rows=rows)
    thd.copy_valid_tokens(out.array, x.array, one, other)
    thd.copy_rows(out.array, x.array, table)
    thd.add_rows(sums.array, x.array.view(torch.float16), table)
    x.assert_holds(x.bytes)
    out.assert_holds(bytes_of(out.array))  # only the gaps between its rows are as they were
    sums.assert_holds(bytes_of(sums.array))


@needs_gpu
def test_offsets_on_a_device_are_checked_on_demand():
    with pytest.raises(ValueError, match=r"cu_seqlens_padded\[2\]=4 is less"):
        thd.check_offsets(offsets([0, 8, 4]))
    with pytest.raises(ValueError, match="sequence 0 has 9 tokens"):
        thd.check_offsets(offsets([0, 8]), offsets([0, 9]))
    with pytest.raises(ValueError, match="segment 0 writes rows 4 to 6"):
        thd.check_segments(offsets([[0, 1, 4, 1, 3]]), 6, 8)
    thd.check_offsets(offsets([0, 8]), offsets([0, 3]), num_rows=8)


# --- graphs, streams, kinds of arrays


def everything(x, step_out, layout, table, cp_size, rank):
    """One call of each function; a list of all that they return or write."""
    import torch

    starts, valid = layout.cu_seqlens_padded, layout.cu_seqlens
    mask = rs.Mask.sliding_window(9, 2)
    results = [*thd.sequence_order_to_cp_rank_order([x, step_out], starts, cp_size)]
    results += thd.cp_rank_order_to_sequence_order(results, starts, cp_size)
    out, sums = torch.zeros_like(x), torch.zeros(x.shape, device="cuda")
    thd.copy_valid_tokens(out, step_out, starts, valid)
    thd.copy_rows(out, x, table)
    thd.add_rows(sums, step_out, table)
    results += [out, sums]
    for step in (
        *thd.all_gather_step_metadata(layout, cp_size, rank, mask),
        thd.p2p_step_metadata(layout, cp_size, rank, 1, mask),
    ):
        results += [v for v in vars(step).values() if isinstance(v, torch.Tensor)]
    rows = layout.num_rows
    results += thd.chunkify(valid, starts, 8, num_rows=rows)
    results += thd.chunkify_p2p(valid, starts, 8, cp_size, rank, num_rows=rows)
    results += thd.chunkify_p2p_below_diagonal(valid, starts, 8, cp_size, rank, rank - 1)
    results += thd.chunkify_p2p_above_diagonal(valid, starts, 8, cp_size, rank, rank + 1)
    results += thd.partition_indices(starts, cp_size, rank, num_rows=rows)
    return results


def sized(lengths, rows):
    """A layout of `rows` rows whose last sequence takes what is left, mostly as padding."""
    starts = [*cumulative(lengths), rows]
    return rs.PackedLayout([*cumulative(lengths), starts[-2] + 1], starts)


@needs_gpu
def test_a_captured_graph_replays_with_other_lengths():
    import torch

    x, step_out = torch.randn(2, 600, 2, 64, device="cuda", dtype=torch.bfloat16)
    lengths = [[8, 0, 72, 16, 80], [5, 7, 0, 133, 1], [1, 2, 3, 4, 300]]
    tables = [[(0, 1, 5, 2, 9)], [(50, -3, 90, 1, 7)], [(0, 0, 1, 1, 400)]]
    device = device_layout(sized(lengths[0], 600))
    table = offsets(tables[0])
    everything(x, step_out, device, table, 4, 1)  # loads the kernels
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # a synchronization, or an allocation of CUDA's, would fail here
        captured = everything(x, step_out, device, table, 4, 1)
    for of_batch, of_table in zip(lengths, tables, strict=True):
        layout = sized(of_batch, 600)
        device.cu_seqlens.copy_(offsets(layout.cu_seqlens))
        device.cu_seqlens_padded.copy_(offsets(layout.cu_seqlens_padded))
        table.copy_(offsets(of_table))
        for y in captured:
            y.fill_(77)
        # What the graph itself does not set to zero first keeps the 77s where nothing is written.
        graph.replay()
        want = everything(x, step_out, device, table, 4, 1)
        for ours, theirs in zip(captured, want, strict=True):
            assert torch.equal(ours, theirs)
        host = thd.sequence_order_to_cp_rank_order(bytes_of(x), layout.cu_seqlens_padded, 4)
        assert np.array_equal(bytes_of(captured[0]), host)


@needs_gpu
def test_the_current_stream_is_the_one_used():
    import torch

    layout = sized([8, 0, 72, 16, 80], 600)
    x, step_out = torch.randn(2, 600, 2, 64, device="cuda", dtype=torch.bfloat16)
    device, table = device_layout(layout), offsets([(0, 1, 5, 2, 9)])
    want = everything(x, step_out, device, table, 4, 1)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        torch.cuda._sleep(200_000_000)  # on another stream the calls below would not wait for x
        late = torch.zeros_like(x)
        late.copy_(x)
        got = everything(late, step_out, device, table, 4, 1)
        torch.cuda.current_stream().synchronize()
    for ours, theirs in zip(got, want, strict=True):
        assert torch.equal(ours, theirs)


@needs_gpu
def test_cupy_arrays_come_back_as_cupy_arrays():
    import torch

    cupy = pytest.importorskip("cupy")
    layout = sized([5, 0, 3], 60)
    x = Rows(60, KV)
    starts = cupy.from_dlpack(offsets(layout.cu_seqlens_padded))
    as_int = cupy.from_dlpack(x.array.view(torch.int16))
    got = thd.sequence_order_to_cp_rank_order(as_int, starts, 2)
    assert isinstance(got, cupy.ndarray)
    want = thd.sequence_order_to_cp_rank_order(x.bytes, layout.cu_seqlens_padded, 2)
    assert np.array_equal(got.get().view(np.uint8).reshape(60, -1), want)
    valid = cupy.from_dlpack(offsets(layout.cu_seqlens))
    step = thd.p2p_step_metadata(thd.DeviceLayout(valid, starts, 60), 2, 1, 1, rs.Mask.causal())
    assert isinstance(step.cu_seqlens_q, cupy.ndarray)
    want = thd.p2p_step_metadata(layout, 2, 1, 1, rs.Mask.causal())
    assert step.cu_seqlens_q.get().tolist() == want.cu_seqlens_q.tolist()


@needs_gpu
def test_bad_shapes_and_types_are_told_what_to_fix():
    import torch

    x = torch.zeros(8, 2, 64, device="cuda")
    starts = offsets([0, 8])

    def refuses(error, message, call):
        with pytest.raises(error, match=message):
            call()

    to_ranks, copy = thd.sequence_order_to_cp_rank_order, thd.copy_valid_tokens
    refuses(TypeError, "cu_seqlens_padded is a builtins.list", lambda: to_ranks(x, [0, 8], 2))
    refuses(TypeError, "dtype float32 on the device; expected int32", lambda: to_ranks(x, x, 2))
    refuses(ValueError, "cp_size=0; expected 1", lambda: to_ranks(x, starts, 0))
    refuses(ValueError, "a row that is not dense", lambda: to_ranks(x[:, :, ::2], starts, 2))
    refuses(ValueError, "array 1 has 7 rows", lambda: to_ranks([x, x[:7]], starts, 2))
    refuses(TypeError, "x is a numpy.ndarray", lambda: to_ranks([x, np.zeros(8)], starts, 2))
    refuses(TypeError, "dtype complex64", lambda: to_ranks(x.to(torch.complex64), starts, 2))
    refuses(ValueError, "share memory", lambda: copy(x, x, starts, starts))
    refuses(ValueError, "do not overlap", lambda: copy(x[:1].expand(8, 2, 64), x, starts, starts))
    refuses(ValueError, "step_out has shape", lambda: copy(x, x[:7].clone(), starts, starts))
    refuses(
        TypeError, "expected the same", lambda: copy(x, x.half(), starts, starts)
    ) if 0 else None
    refuses(ValueError, "both must have", lambda: copy(x, x.clone(), starts, offsets([0])))
    refuses(ValueError, "num_rows is missing", lambda: thd.chunkify(starts, None, 2))
    refuses(ValueError, "chunk_size=0", lambda: thd.chunkify(starts, None, 0, num_rows=8))
    refuses(
        ValueError,
        "rank=2; expected 0 to 1",
        lambda: thd.partition_indices(starts, 2, 2, num_rows=8),
    )
    below = thd.chunkify_p2p_below_diagonal
    refuses(ValueError, "kv_rank=1 with rank=1", lambda: below(starts, None, 2, 2, 1, 1))
    layout = thd.DeviceLayout(starts, None, 8)
    p2p = thd.p2p_step_metadata
    refuses(ValueError, "step=2; expected 0 to 1", lambda: p2p(layout, 2, 0, 2, rs.Mask.causal()))
    step = p2p(layout, 2, 0, 0, rs.Mask.causal())
    refuses(rs.Unsupported, "window_left and window_right", lambda: step.window_size)
    refuses(
        ValueError,
        r"segments has shape \[1, 4\]; expected \[segments, 5\]",
        lambda: thd.copy_rows(x, x.clone(), offsets([[0, 1, 0, 1]])),
    )
    refuses(
        TypeError,
        "accumulator has dtype float16",
        lambda: thd.add_rows(x.half(), x, offsets([[0] * 5])),
    )
