"""ringside.torch.varlen_attention under torch.compile on a GPU, and one plan on both sides."""

import ringside as rs
from cuda_cases import needs_gpu

pytestmark = needs_gpu

LAYOUT = rs.PackedLayout.from_lengths([90, 3, 200], pad_to_multiple_of=2)
OPTIONS = {"softcap": 3.0, "deterministic": True}


def tensors(device, dtype, seed=0):
    import torch

    torch.manual_seed(seed)
    shapes = [(LAYOUT.num_rows, 4, 64), (LAYOUT.num_rows, 2, 64), (LAYOUT.num_rows, 2, 32), (4,)]
    made = [torch.randn(shape, dtype=torch.float64).to(device, dtype) for shape in shapes]
    return tuple(x.requires_grad_() for x in made)


def plan_of(kind, mask):
    import torch

    if kind == "plan":
        return rs.plan(LAYOUT, mask=mask, cp_size=2, num_heads=4, num_kv_heads=2)
    plan = rs.DevicePlan(
        max_sequences=3, num_rows_q=LAYOUT.num_rows, num_heads=4, num_kv_heads=2, mask=mask
    )
    offsets = (LAYOUT.cu_seqlens, LAYOUT.cu_seqlens_padded)
    plan.set_lengths(*(torch.tensor(x, dtype=torch.int32, device="cuda") for x in offsets))
    return plan


def loss(q, k, v, sink, plan):
    from ringside.torch import varlen_attention

    return varlen_attention(2 * q, k, v, plan, sink=sink, **OPTIONS).square().sum()


def test_one_operator_compiles_without_a_break_and_differs_by_plan():
    import torch

    for kind, dtype in (("plan", torch.bfloat16), ("device plan", torch.float32)):
        compiled = torch.compile(loss, fullgraph=True)
        wanted = []
        for mask in (rs.Mask.causal(), rs.Mask.full()):
            plan, given = plan_of(kind, mask), tensors("cuda", dtype)
            wanted.append(torch.autograd.grad(loss(*given, plan), given))
            got = torch.autograd.grad(compiled(*given, plan), given)
            for mine, theirs in zip(got, wanted[-1], strict=True):
                # torch's own kernels around the operator may round otherwise when compiled
                torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2)
        assert not torch.equal(wanted[0][0], wanted[1][0])
        torch._dynamo.reset()


def test_the_operator_is_what_torch_asks_of_one_on_a_gpu():
    import torch
    from ringside import _torch_operator as operator

    q, k, v, sink = tensors("cuda", torch.float32)
    plan = plan_of("plan", rs.Mask.causal())
    rest = (plan._number, 0, None, 0.0, 0.0, 0, True)
    torch.library.opcheck(operator.varlen_attention, (q, k, v, sink, None, *rest))
    torch.library.opcheck(
        operator.varlen_attention, (q.bfloat16(), k.bfloat16(), v.bfloat16(), None, None, *rest)
    )


def test_tensors_on_a_cpu_and_on_a_gpu_share_a_plan():
    import torch

    plan = plan_of("plan", rs.Mask.causal())
    found = []
    for device in ("cuda", "cpu"):
        given = tensors(device, torch.float32)
        grads = torch.autograd.grad(loss(*given, plan), given)
        assert {x.device.type for x in grads} == {device}
        found.append([x.cpu() for x in grads])
    for on_gpu, on_cpu in zip(*found, strict=True):
        scale = on_cpu.abs().max().item()
        torch.testing.assert_close(on_gpu, on_cpu, rtol=0, atol=1e-4 * scale)
