"""Whose arrays backend="cuda" takes and gives, on which stream, and what it refuses."""

import sys

import numpy as np
import pytest
import ringside as rs
from cuda_cases import REASON, needs_gpu, to_device, to_host

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
    with pytest.raises(rs.Unsupported, match="return_max_logit"):
        plan.attention(q, k, v, backend="cuda", return_max_logit=True)


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


@needs_gpu
def test_strided_arrays_need_no_copy():
    plan, (q, _, _, _) = plan_and_arrays()
    import torch

    packed = torch.randn(LAYOUT.num_rows, 8, 64, device="cuda")
    views = (packed[:, :4], packed[:, 4:6], packed[:, 6:])
    dense = [x.contiguous() for x in views]
    for ours, theirs in zip(
        plan.attention(*views, backend="cuda"), plan.attention(*dense, backend="cuda"), strict=True
    ):
        assert torch.equal(ours, theirs)
    assert q.is_cuda


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
        return out, lse, *plan.attention_backward(dout, q, k, v, out, lse, backend="cuda")

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
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("cp_size", [1, 4])
def test_results_are_the_same_bits_from_run_to_run(dtype, cp_size):
    import torch

    plan = rs.plan(LAYOUT, cp_size=cp_size, num_heads=4, num_kv_heads=2)
    _, (q, k, v, dout) = plan_and_arrays(dtype)

    def backward(out, lse):
        return plan.attention_backward(dout, q, k, v, out, lse, deterministic=True, backend="cuda")

    out, lse = plan.attention(q, k, v, backend="cuda")
    grads = backward(out, lse)
    for _ in range(100):
        again = plan.attention(q, k, v, backend="cuda")
        assert torch.equal(again[0], out) and torch.equal(again[1], lse)
    for _ in range(20):
        again = backward(out, lse)
        assert all(torch.equal(a, b) for a, b in zip(again, grads, strict=True))


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
