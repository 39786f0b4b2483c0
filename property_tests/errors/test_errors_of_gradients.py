"""Calls that would drop a gradient which torch asks for: refused, with what to call instead."""

import pytest
import ringside as rs
import torch

LAYOUT = rs.PackedLayout.from_lengths([5, 7, 0, 3], pad_to_multiple_of=4)
ROWS, PADDED = LAYOUT.num_rows, LAYOUT.cu_seqlens_padded
PLAN = rs.plan(LAYOUT, cp_size=2, num_heads=4, num_kv_heads=2)


def rows(*shape):
    return torch.zeros(shape or (ROWS, 3), dtype=torch.float64, requires_grad=True)


def heads():
    return rows(ROWS, 4, 8), rows(ROWS, 2, 8), rows(ROWS, 2, 4), rows(4)


SEGMENTS = [(0, 1, 0, 1, 4)]


def halves():
    *x, _ = heads()
    with torch.no_grad():
        out, lse = PLAN.attention(*x)
    return torch.ones_like(out), *x, out, lse


def of_rank(backward):
    plan = rs.plan(LAYOUT, cp_size=1, num_heads=4, num_kv_heads=2)
    with rs.init() as group:
        if backward:
            return plan.attention_backward_rank(*halves(), group=group)
        return plan.attention_rank(*heads()[:3], group=group)


def piece(name):
    buffer = rs.MicroSequenceBuffer(rs.PackedLayout([0, 2]), [0, 2])
    x = rows(2, 1, 4)
    given = [x.detach() if name == "backward" else x] * 3
    out, lse = buffer.forward(0, *given)
    return buffer.backward(0, out, x, out, lse)


REFUSED = {
    "attention_backward": lambda: rs.attention_backward(*halves(), LAYOUT),
    "Plan.attention_backward": lambda: PLAN.attention_backward(*halves()),
    "Plan.attention_rank": lambda: of_rank(False),
    "Plan.attention_backward_rank": lambda: of_rank(True),
    "Plan.exchange": lambda: PLAN.exchange(1, "kv", [rows(8, 1, 2), rows(8, 1, 2)]),
    "Plan.exchange_transposed": lambda: PLAN.exchange_transposed(1, "kv", [rows(8, 1, 2)] * 2),
    "MicroSequenceBuffer.forward": lambda: piece("forward"),
    "MicroSequenceBuffer.backward": lambda: piece("backward"),
    "copy_rows": lambda: rs.thd.copy_rows(torch.zeros(ROWS, 3), rows(), SEGMENTS),
    "add_rows": lambda: rs.thd.add_rows(rows(), torch.zeros(ROWS, 3), SEGMENTS),
    "copy_valid_tokens": lambda: rs.thd.copy_valid_tokens(
        torch.zeros_like(rows()), rows(), PADDED, LAYOUT.cu_seqlens
    ),
    "pad_to_multiple": lambda: rs.thd.pad_to_multiple(rows(5), None, [0, 5], 4),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_drop_a_gradient_is_refused(name):
    text = rf"requires a gradient, which {name} would not pass on\. Nearest supported: .*no_grad"
    with pytest.raises(rs.Unsupported, match=text):
        REFUSED[name]()


def test_arrays_of_two_kinds_and_two_dtypes_are_refused():
    q, k, v, sink = heads()
    with pytest.raises(TypeError, match=r"k is a numpy.ndarray beside tensors .* expected a torch"):
        PLAN.attention(q, k.detach().numpy(), v)
    with pytest.raises(TypeError, match="expected one of them"):
        PLAN.attention(q, k, v, sink=sink, options=rs.Options(sink=sink))
    with pytest.raises(rs.Unsupported, match=r"float32 and torch.float64.* one dtype"):
        LAYOUT.pack([rows(5), rows(7).float(), rows(0), rows(3)])
    with pytest.raises(rs.Unsupported, match=r"fill_value requires a gradient"):
        LAYOUT.roll(rows(), fill_value=rows(1))
