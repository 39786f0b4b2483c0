"""ringside.thd moves rows on a device bit for bit as on the host, and writes nothing else."""

import itertools

import numpy as np
import pytest
from cuda_cases import canaries, needs_gpu
from hypothesis import given
from hypothesis import strategies as st
from ringside import thd
from thd_cases import cp_sizes, cumulative, segment_tables
from thd_cuda_cases import KV, REORDERS, Kind, Rows, bytes_of, kinds, offsets


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[int], int]:
    """(where sequences start, cp_size); in half of them 2*cp_size divides all lengths."""
    cp_size = draw(cp_sizes)
    unit = 2 * cp_size if draw(st.booleans()) else 1
    return cumulative([unit * n for n in draw(st.lists(st.integers(0, 30), max_size=12))]), cp_size


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
    """Both ways; large arrays are compared on the device, 64 MiB at a time."""
    import torch

    order = np.concatenate([thd.partition_indices(starts, cp_size, r) for r in range(cp_size)])
    order = torch.from_numpy(order).long().cuda()
    rows = max((64 << 20) * len(x) // max(x.nbytes, 1), 1)
    parts = [slice(row, row + rows) for row in range(0, len(x), rows)]
    with canaries():
        by_rank = thd.sequence_order_to_cp_rank_order(x, offsets(starts), cp_size)
    for part in parts:
        assert torch.equal(by_rank[part], x[order[part]])
    with canaries():
        back = thd.cp_rank_order_to_sequence_order(by_rank, offsets(starts), cp_size)
    del by_rank
    for part in parts:
        assert torch.equal(back[part], x[part])


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
@pytest.mark.parametrize("cp_size", [1, 3, 16, 300])
@pytest.mark.parametrize("batch", [31, 32, 33, 1023, 1024, 1025, 5000])
def test_any_number_of_sequences(batch, cp_size):
    """A few are summed up by every block, more by a kernel before, of one block or of many."""
    import torch

    starts = cumulative(np.random.default_rng(batch).integers(0, 40, batch))
    x = torch.randint(-(2**15), 2**15, (starts[-1], 3), dtype=torch.int16, device="cuda")
    assert_reorders(x, starts, cp_size)


@needs_gpu
@pytest.mark.parametrize("cp_size", [2, 5])
def test_arrays_beyond_4_gibibytes_are_reordered(cp_size):
    import torch

    x = torch.randint(0, 2**31 - 1, (70_000, 16_384), dtype=torch.int32, device="cuda")
    assert_reorders(x, [0, 12_000, 12_000, 70_000], cp_size)
    del x
    torch.cuda.empty_cache()  # 10 GiB, for whoever comes next


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
@pytest.mark.parametrize("segments", [30, 31, 32, 1023, 1024, 20_000])
def test_a_long_table_of_segments(segments):
    import torch

    rng = np.random.default_rng(segments)
    rows = rng.integers(0, 5, segments)
    to_rows = np.cumsum(rows) - rows
    from_rows = rng.permutation(to_rows)  # anywhere
    table = np.stack([from_rows, 0 * rows, to_rows, 0 * rows + 1, rows], axis=1)
    x = torch.randn(int(rows.sum()) + 1, 64, device="cuda", dtype=torch.bfloat16)
    out = torch.zeros(int(rows.sum()), 64, device="cuda")
    thd.add_rows(out, x, offsets(table))
    want = x[torch.from_numpy(np.repeat(from_rows, rows)).cuda()].float()
    assert torch.equal(out, want)
