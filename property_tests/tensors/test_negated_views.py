"""Views that torch negates when it is asked for their values: their memory holds other ones."""

import pytest
import ringside as rs
import torch
from ringside._arrays import cuda
from ringside.torch import varlen_attention

LAYOUT = rs.PackedLayout([0, 5, 8], [0, 6, 10])  # with padding
PLAN = rs.plan(LAYOUT, cp_size=2, num_heads=4, num_kv_heads=2)
PADDED = [0, 6, 10]


def arrays():
    """q, k, v and a sink."""
    torch.manual_seed(0)
    shapes = [(10, 4, 8), (10, 2, 8), (10, 2, 4), (4,)]
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def negated(x):
    """A view of -x that torch negates when it is read, as it makes it of z.conj().imag."""
    view = torch.complex(torch.zeros_like(x), x).conj().imag
    assert view.is_neg() and torch.equal(view, -x)
    return view


CALLS = {
    "definition": lambda *x, **more: rs.attention(*x, LAYOUT, **more)[0],
    "plan": lambda *x, **more: PLAN.attention(*x, **more)[0],
    "varlen": lambda *x, **more: varlen_attention(*x, PLAN, **more),
    "flash": lambda *x, **more: rs.flash_attn_varlen_func(*x, PADDED, PADDED, 6, 6, **more),
    "rows": lambda q, *_, sink: PLAN.shard(q, 1) + sink[:, None],
    "rows that are written": lambda q, *_, sink: copied(q) + sink[:, None],
}


def copied(x):
    out = torch.zeros_like(x).contiguous()
    rs.thd.copy_rows(out, x, [(0, 1, 0, 1, 4)])
    return out


@pytest.mark.parametrize("name", CALLS)
def test_views_that_torch_negates_are_read_as_torch_reads_them(name):
    x = arrays()
    wanted = CALLS[name](*x[:3], sink=x[3])
    views = [negated(-y) for y in x]
    assert torch.equal(CALLS[name](*views[:3], sink=views[3]), wanted)
    again = [view.clone().requires_grad_() for view in views[:3]]
    through = [torch.complex(torch.zeros_like(y), -y).conj().imag for y in again]
    if not name.startswith("rows"):
        out = CALLS[name](*through, sink=views[3])
        assert all(torch.isfinite(g).all() for g in torch.autograd.grad(out.sum(), again))


def test_views_that_torch_negates_are_resolved_for_a_gpu():
    """Kernels read memory."""
    library, x = cuda.Torch(), torch.arange(4.0)
    for view in (negated(x), torch._neg_view(x)):
        for found in (library.ready(view), library.dense(view), library.vector(view, x, 4)):
            assert not found.is_neg() and torch.equal(found, -x)


def test_views_that_torch_negates_are_not_written():
    out = negated(torch.zeros(8, 2))
    for write in (rs.thd.copy_rows, rs.thd.add_rows):
        with pytest.raises(
            TypeError, match=r"is a view that torch negates .*expected.*Pass a copy"
        ):
            write(out, torch.ones(8, 2), [(0, 1, 0, 1, 2)])
