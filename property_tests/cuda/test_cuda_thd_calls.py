"""Calls of ringside.thd with arrays on a device: bad offsets, graphs, streams, kinds of arrays."""

import numpy as np
import pytest
import ringside as rs
from cuda_cases import canaries, needs_gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside import thd
from thd_cases import cp_ranks, cumulative, masks
from thd_cuda_cases import KV, REORDERS, Kind, Rows, bytes_of, device_layout, offsets


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


def refuses(error, message, call):
    with pytest.raises(error, match=message):
        call()


@needs_gpu
def test_bad_rows_are_told_what_to_fix():
    import torch

    x = torch.zeros(8, 2, 64, device="cuda")
    starts = offsets([0, 8])

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
    refuses(ValueError, "has dtype float16 and", lambda: copy(x, x.half(), starts, starts))
    refuses(ValueError, "both must have", lambda: copy(x, x.clone(), starts, offsets([0])))
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


@needs_gpu
def test_bad_arguments_of_metadata_are_told_what_to_fix():
    starts = offsets([0, 8])
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
