"""Documents so long that kernels may take the query heads of a key head in parts.

Then dk and dv are summed up in float32, as dq are; the C++ tests have every mask, these what a
program makes of it. Keys are few: it is how many queries see them that counts.
"""

import numpy as np
import pytest
import ringside as rs
from cuda_cases import DTYPES, NEEDS_KERNELS, OnGpu, check, rounded
from not_finite import classes
from ringside.testing import Arrays, Case

pytestmark = NEEDS_KERNELS

QUERIES = rs.PackedLayout.from_lengths([90, 2900], pad_to_multiple_of=32)
KEYS = rs.PackedLayout.from_lengths([70, 300], pad_to_multiple_of=32)


def case_of(mask, heads, head_dim_v, head_dim=72):
    return Case(
        QUERIES, KEYS, mask=mask, num_heads=heads, num_kv_heads=1, head_dim=head_dim,
        head_dim_v=head_dim_v, seed=1,
    )  # fmt: skip


@pytest.mark.parametrize("heads", [8, 11])
@pytest.mark.parametrize("mask", [rs.Mask.full(), rs.Mask.causal()], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [72, 136])
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_they_agree_with_the_cpu(dtype, head_dim, mask, heads):
    case = case_of(mask, heads, head_dim_v=96, head_dim=head_dim)
    check(case, dtype)  # an even seed would be deterministic


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_what_is_not_finite_reaches_those_who_see_it(dtype):
    case = case_of(rs.Mask.causal(), 8, head_dim_v=72)
    arrays = Arrays(*(x.copy() for x in case.arrays()))
    first_q, first_k = (int(x.cu_seqlens_padded[1]) for x in (QUERIES, KEYS))
    arrays.k[first_k + 150, 0, 70] = np.nan
    arrays.v[first_k + 290, 0] = np.inf
    arrays.q[first_q + 2000, 3, 3] = np.nan
    run = OnGpu(dtype, rs.Options(softmax_scale=case.scale))
    q, k, v, dout = rounded(arrays, dtype)
    out, lse = run.forward(case.plan(), q, k, v)
    got = run.backward(case.plan(), dout, q, k, v, out, lse)
    saved = (q, k, v, out, lse)
    wanted = rs.attention_backward(dout, *saved, QUERIES, KEYS, softmax_scale=case.scale)
    for name, a, b in zip(("dq", "dk", "dv"), got, wanted, strict=False):
        np.testing.assert_array_equal(classes(a), classes(b), err_msg=name)
