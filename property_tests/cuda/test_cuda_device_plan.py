"""Plans whose lengths stay on the device compute what plans that know them compute."""

import numpy as np
import pytest
import ringside as rs
from assertions import noted
from cuda_cases import (
    DTYPES,
    NEEDS_KERNELS,
    blind_blocks,
    canaries,
    needs_gpu,
    on_device,
    synchronize,
    to_device,
    to_host,
)
from device_plans import COMMS, PARTITIONS, takes
from hypothesis import assume, given
from hypothesis import strategies as st
from mask_of_each_kind import MASKS
from ringside._arrays import programs as _programs
from ringside.testing import Case, strategies

pytestmark = NEEDS_KERNELS

LAYOUTS = [
    rs.PackedLayout([0, 70, 71, 71, 160], [0, 72, 80, 80, 176]),
    rs.PackedLayout([0, 0, 150, 160], [0, 0, 160, 176]),
    rs.PackedLayout.from_lengths([1] * 30 + [64, 65], pad_to_multiple_of=1),
    rs.PackedLayout([0]),
    rs.PackedLayout([0, 192]),
]
ROWS, SEQUENCES = 192, 40


def on_gpu(offsets):
    import torch

    return on_device(torch.tensor(np.asarray(offsets), dtype=torch.int32))


def offsets_of(layout, batch=None):
    """cu_seqlens and cu_seqlens_padded, empty sequences added up to a fixed batch."""
    more = 0 if batch is None else batch - layout.num_sequences
    return [
        np.concatenate([x, np.full(more, x[-1])])
        for x in (layout.cu_seqlens, layout.cu_seqlens_padded)
    ]


def device_plan(case, room, **more):
    plan = rs.DevicePlan(
        max_sequences=case.layout_q.num_sequences + room + 1,
        num_rows_q=case.layout_q.num_rows + room,
        num_rows_k=case.keys.num_rows + room,
        mask=case.mask,
        cp_size=case.cp_size,
        partition=case.partition,
        comm=case.comm,
        a2a_size=case.a2a_size,
        num_heads=case.num_heads,
        num_kv_heads=case.num_kv_heads,
        **more,
    )
    plan.set_lengths(*map(on_gpu, (*offsets_of(case.layout_q), *offsets_of(case.keys))))
    return plan


def with_more_rows(x, room):
    """Rows behind the last sequence hold NaN; nobody may read them."""
    import torch

    nan = torch.full((room, *x.shape[1:]), float("nan"), dtype=x.dtype, device=x.device)
    return torch.cat([x, nan])


def same_as_the_plan(case, dtype, room, *, deterministic=False, **more):
    """The same kernels on the same pairs; rows of a document's stripes may be summed otherwise."""
    q, k, v, dout = (to_device(x, dtype) for x in case.arrays())
    options = {"softmax_scale": case.softmax_scale}
    plan = case.plan()
    out, lse = plan.attention(q, k, v, backend="cuda", **options)
    fixed = {"deterministic": deterministic}
    grads = plan.attention_backward(dout, q, k, v, out, lse, backend="cuda", **fixed, **options)
    longer = [with_more_rows(x, room) for x in (q, k, v, dout)]
    ours = device_plan(case, room, **more)
    with canaries():
        our_out, our_lse = _programs.attention(
            ours, *longer[:3], rs.Options(**options), poison=True
        )
        named = dict(zip(("q", "k", "v", "dout"), longer, strict=True))
        our_grads = _programs.attention_backward(
            ours,
            named | {"out": our_out, "lse": our_lse},
            rs.Options(**options),
            poison=True,
            **fixed,
        )
    ours.check()
    rows_q, rows_k = case.layout_q.num_rows, case.keys.num_rows
    epsilon = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    pairs = [(our_out, out, rows_q), (our_lse.T, lse.T, rows_q)]
    pairs += list(zip(our_grads[:3], grads, (rows_q, rows_k, rows_k), strict=True))
    for got, want, rows in pairs:
        size = max(1.0, to_host(want)[np.isfinite(to_host(want))].__abs__().max(initial=0))
        np.testing.assert_allclose(
            to_host(got[:rows]), to_host(want), rtol=0, atol=8 * epsilon * size
        )
        behind = to_host(got[rows:])
        nobody = -np.inf if got is pairs[1][0] else 0
        assert (behind == nobody).all(), "rows of nobody"
    synchronize()


def cases(**restricted):
    return noted(strategies.cases(**restricted))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@given(case=cases(head_dims=st.sampled_from([8, 24, 64])), room=st.integers(0, 9))
def test_any_lengths_give_what_the_plan_that_knows_them_gives(dtype, case, room):
    assume(takes(case))
    same_as_the_plan(case, dtype, room)


@pytest.mark.parametrize("comm", COMMS)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_cell_of_documents_longer_than_a_block(partition, comm):
    layout = rs.PackedLayout([0, 300, 301, 301, 460], [0, 304, 312, 312, 472])
    a2a_size = 2 if comm == "a2a+p2p" else None
    case = Case(
        layout, cp_size=4, partition=partition, comm=comm, a2a_size=a2a_size, num_heads=4,
        num_kv_heads=2, head_dim=64, head_dim_v=64, seed=3,
    )  # fmt: skip
    same_as_the_plan(case, "bfloat16", 8, pad_to_multiple_of=8)


@pytest.mark.parametrize("comm", ["all_gather", "a2a"])
@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_blocks_go_on_across_the_chunks_of_a_document_as_in_the_plan(dtype, partition, comm):
    """The same rows in the same blocks, summed in one order: the same bits."""
    case = Case(
        rs.PackedLayout.from_lengths([700, 0, 1, 13, 260, 40]), cp_size=8, partition=partition,
        comm=comm, num_heads=8, num_kv_heads=4, head_dim=64, head_dim_v=64, seed=4,
    )  # fmt: skip
    q, k, v, dout = (to_device(x, dtype) for x in case.arrays())
    found = []
    for plan, options in ((case.plan(), {"backend": "cuda"}), (device_plan(case, 0), {})):
        out, lse = plan.attention(q, k, v, **options)
        grads = plan.attention_backward(dout, q, k, v, out, lse, deterministic=True, **options)
        found.append([to_host(x) for x in (out, lse, *grads)])
    for want, got in zip(*found, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("cp_size", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_that_see_nothing_and_blocks_that_nobody_sees_hold_zeros(dtype, cp_size, mask):
    same_as_the_plan(blind_blocks(mask, cp_size), dtype, 8)


@needs_gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("sequences", [2_500, 65_536])  # chunks of which are summed apart
def test_many_sequences(sequences, dtype):
    lengths = np.random.default_rng(1).integers(0, 3, size=sequences).tolist()
    case = Case(rs.PackedLayout.from_lengths(lengths), cp_size=2, head_dim=8, head_dim_v=8)
    same_as_the_plan(case, dtype, 0)


@needs_gpu
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("cp_size", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_blocks_of_threads_go_on_with_further_items(dtype, cp_size, deterministic, mask):
    """More items than are launched at once, of all lengths; some of them meet nothing."""
    rng = np.random.default_rng(2)
    lengths = [
        rng.choice([0, 1, 2, 63, 64, 65, 200], p=[0.1, 0.3, 0.3, 0.1, 0.1, 0.05, 0.05], size=1_200)
        for _ in range(2)
    ]
    layouts = [rs.PackedLayout.from_lengths(x.tolist()) for x in lengths]
    case = Case(
        *layouts, mask=mask, cp_size=cp_size, num_heads=4, num_kv_heads=4, head_dim=64,
        head_dim_v=64, seed=5,
    )  # fmt: skip
    same_as_the_plan(case, dtype, 40_000, deterministic=deterministic)


@needs_gpu
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("longest", [128, 384])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_documents_none_of_which_is_longer(head_dim, longest, deterministic, mask):
    """Enough to keep any GPU busy, each of which may be one item of keys."""
    few = [longest, 0, 1, 63, 64, 65, 127, 128]
    lengths = [few + np.random.default_rng(i).permutation(few).tolist() * 9 for i in range(2)]
    layouts = [rs.PackedLayout.from_lengths(x) for x in lengths]
    case = Case(
        *layouts, mask=mask, num_heads=32, num_kv_heads=32, head_dim=head_dim,
        head_dim_v=head_dim, seed=6,
    )  # fmt: skip
    same_as_the_plan(case, "bfloat16", 2_000, deterministic=deterministic, max_seqlen=longest)


@needs_gpu
@pytest.mark.parametrize("comm", COMMS)
def test_a_captured_graph_replays_other_lengths_without_a_synchronization(comm):
    import torch
    from ringside.torch import varlen_attention

    plan = rs.DevicePlan(
        max_sequences=SEQUENCES, num_rows_q=ROWS, cp_size=4, comm=comm, num_heads=4,
        num_kv_heads=2, a2a_size=2 if comm == "a2a+p2p" else None,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    shapes = [(4, 64), (2, 64), (2, 64), (4, 64)]
    q, k, v, dout = (to_device(rng.normal(size=(ROWS, *s)), "bfloat16") for s in shapes)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    cu, padded = (on_gpu(x) for x in offsets_of(LAYOUTS[0], SEQUENCES))

    def run():
        plan.set_lengths(cu, padded)
        out = varlen_attention(q, k, v, plan)
        return (out, *torch.autograd.grad(out, leaves, dout))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()  # makes the program, which allocates
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()  # torch refuses to wait for the device
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # CUDA refuses, too, and refuses to allocate
            captured = run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for layout in (*LAYOUTS, LAYOUTS[0]):
        for mine, theirs in zip((cu, padded), offsets_of(layout, SEQUENCES), strict=True):
            mine.copy_(on_gpu(theirs))
        for x in captured:
            x.detach().fill_(float("nan"))
        graph.replay()
        rows = layout.num_rows
        known = rs.plan(layout, cp_size=4, comm=comm, num_heads=4, num_kv_heads=2,
                        a2a_size=2 if comm == "a2a+p2p" else None)  # fmt: skip
        args = [x.detach()[:rows] for x in (q, k, v)]
        out, lse = known.attention(*args, backend="cuda")
        grads = known.attention_backward(dout[:rows], *args, out, lse, backend="cuda")
        for got, want in zip(captured, (out, *grads), strict=True):
            off = np.abs(to_host(got[:rows]) - to_host(want)).max(initial=0)
            assert off <= 2**-6 * max(1, np.abs(to_host(want)).max(initial=0)), (layout, off)
            assert (to_host(got[rows:]) == 0).all()
    plan.check()


@pytest.mark.parametrize(
    "cu", [[0, 5, 3], [1, 2, 3], [0, 5, 17], [0, -(2**31), 4], [0, 2**31 - 1, 3]],
    ids=["falls", "does not start at 0", "more rows than room", "negative", "wraps"],
)  # fmt: skip
@pytest.mark.parametrize("comm", ["p2p", "all_gather"])
def test_lengths_that_do_not_fit_give_an_empty_batch_and_check_says_so(comm, cu):
    plan = rs.DevicePlan(max_sequences=4, num_rows_q=16, cp_size=2, comm=comm)
    q, k, v = (to_device(np.ones((16, 1, 8))) for _ in range(3))
    plan.set_lengths(on_gpu([0, 5, 16]))
    good, _ = plan.attention(q, k, v)
    plan.check()
    assert (to_host(good) == 1).all()
    plan.set_lengths(on_gpu(cu))
    out, lse = plan.attention(q, k, v)
    assert (to_host(out) == 0).all() and (to_host(lse) == -np.inf).all()
    with pytest.raises(ValueError, match="did not fit"):
        plan.check()
    plan.set_lengths(on_gpu([0, 5, 16]))
    again, _ = plan.attention(q, k, v)
    plan.check()
    assert (to_host(again) == to_host(good)).all()


@pytest.mark.parametrize("cp_size", [1, 2])
def test_a_sequence_longer_than_any_may_be_does_not_fit(cp_size):
    plan = rs.DevicePlan(max_sequences=4, num_rows_q=16, cp_size=cp_size, max_seqlen=9)
    q = to_device(np.ones((16, 1, 8)))
    for cu, fits in (([0, 7, 16], True), ([0, 6, 16], False), ([0, 9], True), ([0, 10], False)):
        plan.set_lengths(on_gpu(cu))
        out, _ = plan.attention(q, q, q)
        assert (to_host(out[: cu[-1]]) == fits).all()
        if fits:
            plan.check()
            continue
        with pytest.raises(ValueError, match="max_seqlen"):
            plan.check()


@pytest.mark.parametrize("comm", ["p2p", "all_gather"])
def test_either_width_and_a_layout_of_them_are_the_same_lengths(comm):
    q, narrow, padded = to_device(np.ones((16, 1, 8))), on_gpu([0, 3, 9]), on_gpu([0, 5, 14])
    v = to_device(np.arange(128.0).reshape(16, 1, 8))

    def results(*lengths):
        plan = rs.DevicePlan(max_sequences=4, num_rows_q=16, cp_size=2, comm=comm)
        plan.set_lengths(*lengths)
        found = [to_host(x) for x in plan.attention(q, q, v)]
        plan.check()
        return found

    want = results(narrow, padded)
    layout = rs.thd.DeviceLayout(narrow.long(), padded, 16)
    for lengths in ((narrow.long(), padded), (narrow, padded.long()), (layout, None, layout)):
        for got, expected in zip(results(*lengths), want, strict=True):
            np.testing.assert_array_equal(got, expected)


def test_wide_lengths_that_mean_nothing_count_as_none():
    plan = rs.DevicePlan(max_sequences=4, num_rows_q=16)
    q = to_device(np.ones((16, 1, 8)))
    plan.set_lengths(on_gpu([0, 4]).long() + on_gpu([0, 2**30]).long() * 4)  # 2^32 too many
    assert (to_host(plan.attention(q, q, q)[0]) == 0).all()
    with pytest.raises(ValueError, match="did not fit"):
        plan.check()


@needs_gpu
def test_what_cannot_be_set_is_refused_with_the_fix():
    plan = rs.DevicePlan(max_sequences=2, num_rows_q=16)
    q = to_device(np.ones((16, 1, 8)))
    with pytest.raises(ValueError, match="set_lengths"):
        plan.attention(q, q, q)
    with pytest.raises(TypeError, match="expected int32 or int64"):
        plan.set_lengths(on_gpu([0, 4]).float())
    with pytest.raises(ValueError, match="max_sequences=2"):
        plan.set_lengths(on_gpu([0, 1, 2, 3]))
    with pytest.raises(TypeError, match="cuda"):
        plan.set_lengths(on_gpu([0, 4]).cpu())
    with pytest.raises(ValueError, match="shape"):
        plan.set_lengths(on_gpu([0, 4]), on_gpu([0, 4, 8]))
    with pytest.raises(ValueError, match="max_sequences"):
        rs.DevicePlan(max_sequences=0, num_rows_q=16)
    with pytest.raises(ValueError, match="zigzag"):
        rs.DevicePlan(max_sequences=1, num_rows_q=16, partition="zig-zag")
    with pytest.raises(ValueError, match="max_seqlen=0; expected at least 1"):
        rs.DevicePlan(max_sequences=1, num_rows_q=16, max_seqlen=0)


@pytest.mark.parametrize("partition", rs.PARTITIONS)
@pytest.mark.parametrize("comm", rs.COMMS)
def test_what_follows_from_all_lengths_is_refused_with_the_nearest(partition, comm):
    if partition in PARTITIONS and comm in COMMS:
        return
    near = '"zigzag"' if partition not in PARTITIONS else '"all_gather"'
    with pytest.raises(rs.Unsupported, match=f"Nearest supported: .*{near}"):
        rs.DevicePlan(
            max_sequences=1, num_rows_q=16, cp_size=4, partition=partition, comm=comm,
            a2a_size=2 if comm == "a2a+p2p" else None,
        )  # fmt: skip


@needs_gpu
def test_lengths_set_between_forward_and_backward_are_refused():
    from ringside.torch import varlen_attention

    plan = rs.DevicePlan(max_sequences=2, num_rows_q=16)
    plan.set_lengths(on_gpu([0, 16]))
    q = to_device(np.ones((16, 1, 8))).requires_grad_()
    out = varlen_attention(q, q, q, plan)
    plan.set_lengths(on_gpu([0, 8, 16]))
    with pytest.raises(RuntimeError, match="in flight"):
        out.sum().backward()
