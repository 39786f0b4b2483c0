"""Packages that people use, as published: what agrees with the definition, and what does not.

Versions are fixed: a verdict is of that version alone.
"""

import pytest
import ring_flash_attn_0_1_8 as ring_flash_attn
import ringside as rs
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside.testing import Case, Demands, Disagreement, check_context_parallel
from ringside.testing.processes import ProcessPerRank

DEMANDS = Demands(partial="bfloat16", accumulate="float32")  # kernels return 16 bits, sums are wide
LENGTHS = st.lists(st.integers(1, 6).map(lambda n: 4 * n), min_size=1, max_size=4)


def test_the_peers_are_there():
    assert ring_flash_attn.is_installed(), "./dev test installs them into .venv/peers"


@pytest.fixture(scope="module")
def ring():
    module = "ring_flash_attn_0_1_8"
    with ProcessPerRank(f"{module}:zigzag", 2, setup=f"{module}:set_up") as made:
        yield made


def case_of(lengths, mask, heads, seed):
    return Case(
        rs.PackedLayout.from_lengths(lengths),
        mask=mask,
        cp_size=2,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=8,
        head_dim_v=8,
        dtype="bfloat16",  # in float32 its buffers and sums would be one
        seed=seed,
    )


@settings(max_examples=5)
@given(LENGTHS, st.sampled_from([(2, 2), (4, 1)]), st.integers(0, 2**31))
def test_ring_flash_attn_zigzag_agrees_without_a_window(ring, lengths, heads, seed):
    case = case_of(lengths, rs.Mask.causal(), heads, seed)
    check_context_parallel(ring, case, backward=ring.backward, demands=DEMANDS)


def test_ring_flash_attn_zigzag_is_silently_wrong_with_a_window(ring):
    case = case_of([8], rs.Mask.sliding_window(1, 0), (1, 1), 0)
    with pytest.raises(Disagreement, match="out is wrong at row"):
        check_context_parallel(ring, case, demands=DEMANDS)
