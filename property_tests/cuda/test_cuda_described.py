"""What C++ takes for an array of a device: a torch tensor, which it asks, or what describes one."""

import numpy as np
import pytest
import ringside as rs
from cuda_cases import NEEDS_KERNELS, to_device, to_host
from ringside._arrays import cuda as _cuda
from ringside._attention.options import to_core

pytestmark = NEEDS_KERNELS
LAYOUT = rs.PackedLayout([0, 7, 30])


def call_options(x):
    return _cuda.cuda_core().CallOptions(to_core(rs.Options()), x, None)


def test_tensors_and_what_describes_an_array_are_taken():
    call_options(to_device(np.ones(4), "float32"))
    call_options(_cuda.Described(0, "float32", (4,), (1,)))
    call_options(None)


@pytest.mark.parametrize(
    "x",
    [3, "a", np.ones(4), (1, 2), (1, "f", (1,), "x"), (1, 2, (1,), (1,)), (1, "f", 1, 1)],
    ids=str,
)
def test_what_is_no_array_is_refused_by_the_names_of_the_arguments(x):
    with pytest.raises(TypeError, match=r"CallOptions\(keywords, sink, alibi_slopes\)"):
        call_options(x)


def test_strides_are_the_tensors_own():
    """Heads lie as far apart in memory as a tensor says, where it is taken as it is."""
    plan = rs.plan(LAYOUT, cp_size=1, num_heads=2)
    heads_first = to_device(np.random.default_rng(0).normal(size=(2, 30, 64)))
    x = heads_first.transpose(0, 1)
    assert not x.is_contiguous()
    out, lse = plan.attention(x, x, x, backend="cuda")
    want, want_lse = plan.attention(*[to_host(x)] * 3)
    np.testing.assert_allclose(to_host(out), want, atol=1e-5)
    np.testing.assert_allclose(to_host(lse), want_lse, atol=1e-5)
