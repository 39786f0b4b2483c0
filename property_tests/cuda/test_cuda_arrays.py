"""Whose arrays backend="cuda" takes and gives, on which stream, and what it refuses."""

import sys

import numpy as np
import pytest
import ringside as rs
from assertions import valid_rows
from cuda_cases import DTYPES, REASON, needs_gpu, to_device, to_host

LAYOUT = rs.PackedLayout([0, 70, 71, 160], [0, 72, 80, 170])


def plan_and_arrays(dtype="float32", dim=64):
    plan = rs.plan(LAYOUT, cp_size=4, num_heads=4, num_kv_heads=2)
    rng = np.random.default_rng(0)
    shapes = [(4, dim), (2, dim), (2, dim), (4, dim)]
    return plan, [to_device(rng.normal(size=(LAYOUT.num_rows, *s)), dtype) for s in shapes]


@pytest.mark.skipif(not REASON, reason="there is a GPU")
def test_without_a_gpu_the_reference_is_named():
    plan = rs.plan(rs.PackedLayout([0, 2]), cp_size=1)
    x = np.zeros((2, 1, 4))
    with pytest.raises(rs.Unsupported, match='backend="reference"'):
        plan.attention(x, x, x, backend="cuda")
    with pytest.raises(rs.Unsupported, match=r"ringside\.plan\(layout"):
        rs.DevicePlan(max_sequences=1, num_rows_q=2)


@needs_gpu
def test_numpy_arrays_and_tensors_on_the_cpu_are_refused_with_the_fix():
    plan, (q, k, v, _) = plan_and_arrays()
    with pytest.raises(TypeError, match="from_dlpack"):
        plan.attention(*(x.cpu().numpy() for x in (q, k, v)), backend="cuda")
    with pytest.raises(TypeError, match=r"x\.cuda\(\)"):
        plan.attention(q.cpu(), k.cpu(), v.cpu(), backend="cuda")
    with pytest.raises(TypeError, match="float64"):
        plan.attention(q.double(), k.double(), v.double(), backend="cuda")
    with pytest.raises(TypeError, match="k has another dtype"):
        plan.attention(q, k.half(), v, backend="cuda")
    with pytest.raises(ValueError, match="q has shape"):
        plan.attention(q[1:], k, v, backend="cuda")
    with pytest.raises(rs.Unsupported, match="256"):
        plan.attention(*(x.repeat(1, 1, 5) for x in (q, k, v)), backend="cuda")
    with pytest.raises(rs.Unsupported, match="alibi_slopes"):
        plan.attention(q, k, v, backend="cuda", bias=q)


@needs_gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_torch_tensors_come_back_in_their_dtype(dtype):
    plan, (q, k, v, dout) = plan_and_arrays(dtype)
    out, lse = plan.attention(q, k, v, backend="cuda")
    assert (out.dtype, str(lse.dtype), lse.shape) == (q.dtype, "torch.float32", (4, 170))
    grads = plan.attention_backward(dout, q, k, v, out, lse, backend="cuda")
    assert [g.dtype for g in grads] == [q.dtype] * 3


@needs_gpu
def test_cupy_arrays_come_back_as_cupy_arrays_with_the_same_bits():
    cupy = pytest.importorskip("cupy")
    plan, (q, k, v, dout) = plan_and_arrays()
    out, lse = plan.attention(q, k, v, backend="cuda")
    grads = plan.attention_backward(dout, q, k, v, out, lse, backend="cuda")
    cq, ck, cv, cdout = (cupy.from_dlpack(x) for x in (q, k, v, dout))
    cout, clse = plan.attention(cq, ck, cv, backend="cuda")
    cgrads = plan.attention_backward(cdout, cq, ck, cv, cout, clse, backend="cuda")
    for ours, theirs in zip((cout, clse, *cgrads), (out, lse, *grads), strict=True):
        assert isinstance(ours, cupy.ndarray)
        assert (ours.get() == theirs.cpu().numpy()).all()


def run(plan, q, k, v):
    """Forward, and backward from an out that is laid out as v is."""
    out, lse = plan.attention(q, k, v, backend="cuda")
    dout = q[..., : out.shape[-1]]
    return (
        out,
        lse,
        *plan.attention_backward(dout, q, k, v, out, lse, deterministic=True, backend="cuda"),
    )


@needs_gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_arrays_need_no_copy(dtype):
    import torch

    plan, _ = plan_and_arrays()
    dtype = getattr(torch, dtype)
    packed = torch.randn(LAYOUT.num_rows, 8, 64, device="cuda").to(dtype)
    wide = torch.randn(LAYOUT.num_rows, 16, 67, device="cuda").to(dtype)
    for views in (
        (packed[:, :4], packed[:, 4:6], packed[:, 6:]),
        (wide[:, :8:2, 1:65], wide[:, 8:10, 3:], wide[:, 10:16:3, :64]),  # misaligned, too
    ):
        dense = [x.contiguous() for x in views]
        assert not any(x.is_contiguous() for x in views)
        assert all(map(torch.equal, run(plan, *views), run(plan, *dense)))


@needs_gpu
@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"sink": 0.5}], ids=str)
def test_heads_and_rows_may_lie_upon_each_other(options):
    import torch

    plan = rs.plan(LAYOUT, cp_size=1, num_heads=4, num_kv_heads=2)
    q = torch.randn(LAYOUT.num_rows, 4, 128, device="cuda", dtype=torch.bfloat16)
    k = torch.randn(LAYOUT.num_rows, 1, 128, device="cuda", dtype=torch.bfloat16).expand(-1, 2, -1)
    v = torch.randn(1, 2, 128, device="cuda", dtype=torch.bfloat16).expand(LAYOUT.num_rows, -1, -1)
    found = [
        plan.attention(*views, backend="cuda", **options)
        for views in ((q, k, v), [x.contiguous() for x in (q, k, v)])
    ]
    assert all(map(torch.equal, *found))


@needs_gpu
def test_strides_beyond_32_bits():
    import torch

    layout = rs.PackedLayout([0, 3])
    plan = rs.plan(layout, cp_size=2)
    small = torch.randn(3, 1, 64, device="cuda", dtype=torch.float16)
    memory = torch.empty(2 * (2**31 + 64) + 64, device="cuda", dtype=torch.float16)
    far = torch.as_strided(memory, (3, 1, 64), (2**31 + 64, 64, 1))
    far.copy_(small)
    want, _ = plan.attention(small, small, small, backend="cuda")
    got, _ = plan.attention(far, far, far, backend="cuda")
    assert torch.equal(got, want)


@needs_gpu
def test_the_current_stream_is_the_one_used():
    import torch

    plan, (q, k, v, _) = plan_and_arrays()
    want, _ = plan.attention(q, k, v, backend="cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # on another stream the call below would not wait for q
        late = torch.zeros_like(q)
        late.copy_(q)
        got, _ = plan.attention(late, k, v, backend="cuda")
    stream.synchronize()
    assert torch.equal(got, want)


@needs_gpu
@pytest.mark.parametrize("comm", rs.COMMS)
def test_a_captured_graph_replays_forward_and_backward(comm):
    import torch

    a2a_size = 2 if comm == "a2a+p2p" else None
    plan = rs.plan(LAYOUT, cp_size=4, comm=comm, a2a_size=a2a_size, num_heads=4, num_kv_heads=2)
    _, (q, k, v, dout) = plan_and_arrays()

    def run():
        out, lse = plan.attention(q, k, v, backend="cuda")
        return (
            out,
            lse,
            *plan.attention_backward(dout, q, k, v, out, lse, deterministic=True, backend="cuda"),
        )

    run()  # uploads the plan
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # any synchronization or allocation of CUDA's would fail here
        captured = run()
    for x in (q, k, v, dout):
        x.normal_()
    graph.replay()
    for ours, theirs in zip(captured, run(), strict=True):
        assert torch.equal(ours, theirs)


@needs_gpu
@pytest.mark.parametrize("comm", rs.COMMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cp_size", [1, 4])
def test_results_are_the_same_bits_from_run_to_run(dtype, comm, cp_size):
    import torch

    layout = rs.PackedLayout([0, 700, 701, 1600], [0, 704, 720, 1640])
    plan = rs.plan(
        layout, cp_size=cp_size, comm=comm, num_heads=8, num_kv_heads=2,
        a2a_size=min(cp_size, 2) if comm == "a2a+p2p" else None,
    )  # fmt: skip
    shapes = [(8, 128), (2, 128), (2, 128), (8, 128)]
    q, k, v, dout = (torch.randn(1640, *s, device="cuda").to(getattr(torch, dtype)) for s in shapes)
    first = plan.attention(q, k, v, backend="cuda", return_max_logit=True)

    def backward():
        return plan.attention_backward(
            dout, q, k, v, *first[:2], deterministic=True, backend="cuda"
        )

    grads = backward()
    (program,) = plan._programs.values()
    assert (program.family == "float32") == (dtype == "float32")
    for _ in range(100):
        again = plan.attention(q, k, v, backend="cuda", return_max_logit=True)
        assert all(map(torch.equal, again, first))
    for _ in range(20):
        assert all(map(torch.equal, backward(), grads))


FILLS = [
    ("float32", 1e4),
    ("float32", 3e38),
    ("float16", 6e4),
    ("bfloat16", 1e4),
    ("bfloat16", 3e38),
]


@needs_gpu
@pytest.mark.parametrize("comm", rs.COMMS)
@pytest.mark.parametrize(("dtype", "fill"), FILLS)
def test_huge_numbers_in_padding_change_no_bit(dtype, fill, comm):
    """NaN in padding shows what is read; huge finite numbers also what is multiplied by 0."""
    import torch

    plan = rs.plan(
        LAYOUT, cp_size=4, comm=comm, a2a_size=2 if comm == "a2a+p2p" else None, num_heads=4,
        num_kv_heads=2,
    )  # fmt: skip
    _, clean = plan_and_arrays(dtype)
    padding = torch.from_numpy(~valid_rows(LAYOUT)).cuda()
    assert padding.any()

    def results(value):
        q, k, v, dout = (x.clone() for x in clean)
        for x in (q, k, v, dout):
            x[padding] = value
        out, lse, max_logit = plan.attention(q, k, v, backend="cuda", return_max_logit=True)
        grads = plan.attention_backward(dout, q, k, v, out, lse, deterministic=True, backend="cuda")
        return out, lse, max_logit, *grads

    wanted = results(0.0)
    for value in (fill, -fill, float("nan"), float("inf")):
        assert all(map(torch.equal, results(value), wanted)), value


@needs_gpu
def test_dense_formats_are_views_of_packed_ones():
    import torch

    plan = rs.plan(rs.PackedLayout.from_lengths([33, 33]), cp_size=2, num_heads=2)
    q, k, v = torch.randn(3, 2, 33, 2, 16, device="cuda")
    out, lse = plan.attention(q, k, v, backend="cuda", qkv_format="bshd")
    packed, _ = plan.attention(*(x.flatten(0, 1) for x in (q, k, v)), backend="cuda")
    assert out.shape == q.shape and lse.shape == (2, 2, 33)
    assert torch.equal(out.flatten(0, 1), packed)


@needs_gpu
def test_torch_differentiates_varlen_attention():
    from ringside.torch import varlen_attention

    plan, (q, k, v, dout) = plan_and_arrays()
    sink = to_device(np.array([0.5, -1.0, 2.0, 0.0]))
    leaves = [x.requires_grad_() for x in (q, k, v, sink)]
    out, lse = varlen_attention(q, k, v, plan, sink=sink, return_lse=True)
    out.backward(dout)
    wanted = plan.attention_backward(
        *(x.detach() for x in (dout, q, k, v, out, lse)), sink=sink.detach(), backend="cuda"
    )
    for x, want in zip(leaves, wanted, strict=True):
        assert (to_host(x.grad) == to_host(want)).all()
    assert "torch" in sys.modules
