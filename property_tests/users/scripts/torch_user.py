"""A PyTorch user on a laptop: the same tensors in, the same kind out, gradients, torch.compile."""

import ringside as rs
import torch
from ringside.torch import varlen_attention

torch.manual_seed(0)
layout = rs.PackedLayout.from_lengths([50, 70, 30])
plan = rs.plan(layout, cp_size=4, num_heads=4, num_kv_heads=2)
q = torch.randn(layout.num_rows, 4, 16, dtype=torch.bfloat16, requires_grad=True)
k, v = (
    torch.randn(layout.num_rows, 2, 16, dtype=torch.bfloat16, requires_grad=True) for _ in range(2)
)

out = varlen_attention(q, k, v, plan)
out.float().square().mean().backward()
assert out.dtype == q.grad.dtype == k.grad.dtype == torch.bfloat16

# Beside torch's own attention, one document after the other.
begin = 0
for length in (50, 70, 30):
    rows = slice(begin, begin + length)
    one = (x[rows].detach().float().transpose(0, 1) for x in (q, k, v))
    want = torch.nn.functional.scaled_dot_product_attention(*one, is_causal=True, enable_gqa=True)
    assert torch.allclose(out[rows].detach().float(), want.transpose(0, 1), atol=2e-2)
    begin += length

# The same numbers through FlashAttention's function, as code has it already.
cu_seqlens = torch.tensor([0, 50, 120, 150], dtype=torch.int32)
same = rs.flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, 70, 70, 0.0, None, True)
assert torch.equal(same, out)
exact, _ = plan.attention(q.double(), k.double(), v.double())
print("largest error of bfloat16:", (exact - out.double()).abs().max().item())

layer = torch.compile(lambda q, k, v: varlen_attention(q, k, v, plan), backend="aot_eager")
assert torch.equal(layer(q, k, v), out)
