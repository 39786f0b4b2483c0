"""The tolerance of merges: the field's formula passes, faults of nearly its size do not."""

import numpy as np
import pytest
import ringside as rs
from hypothesis import given, settings
from hypothesis import strategies as st
from rings import Ring
from ringside.testing import Case, Demands, Disagreement, Precision, check_attention, strategies
from ringside.testing.tolerance import bounds


def cases(dtype):
    return strategies.cases(
        layouts_q=strategies.layouts(lengths=strategies.lengths(max_sequences=2)),
        dtypes=st.just(dtype),
        cp_sizes=st.just(1),
        partitions=st.just("zigzag"),
        comms=st.just("p2p"),
        softmax_scales=st.sampled_from([None, 1.0, 8.0]),
        heads=st.just((1, 1)),
    )


def largest_ratio(strategy, ring, demands, examples):
    ratios = [0.0]

    @settings(max_examples=examples)
    @given(strategy)
    def check(case):
        ratios.append(check_attention(ring, case, demands=demands).largest_ratio)

    check()
    return max(ratios)


@pytest.mark.parametrize("blocks", [2, 4, 12])
def test_merging_by_a_sigmoid_of_differences_is_explained(blocks):
    ratio = largest_ratio(cases("float32"), Ring(blocks), Demands(merges=blocks - 1), 120)
    assert 0 < ratio < 0.9


@pytest.mark.parametrize("blocks", [2, 4, 12])
def test_partial_results_in_bfloat16_are_explained_when_told(blocks):
    ring = Ring(blocks, partial="bfloat16", store="bfloat16")
    told = Demands(merges=blocks - 1, partial="bfloat16")
    assert 0 < largest_ratio(cases("bfloat16"), ring, told, 120) < 0.95


def first_block_without_weight():
    """The first keys have values of size 1 and no weight, the others small values."""
    case = Case(rs.PackedLayout([0, 8]), mask=rs.Mask.full(), dtype="float32", head_dim=1)
    arrays = case.arrays()
    q, k = np.ones((8, 1, 1)), np.repeat([[[-40.0]], [[0.0]]], 4, axis=0)
    v = np.float32(np.where(k < 0, 0.7, 1e-3) * (1 + 0.1 * np.arange(8)[:, None, None]))
    v = np.broadcast_to(v, arrays.v.shape).astype(np.float64)
    return case, arrays._replace(q=q, k=k, v=v)


def test_a_block_of_no_weight_leaves_its_rounding_behind():
    """What the term of the spread is for: without it this honest ring would be called wrong."""
    case, arrays = first_block_without_weight()
    given = {"layout_q": case.layout_q, "layout_k": case.keys, "mask": case.mask}
    out, _ = Ring(2)(arrays.q, arrays.k, arrays.v, **given, softmax_scale=1.0)
    case = case.replace(softmax_scale=1.0)
    truth = case.by_definition(arrays)
    error = np.abs(out - truth.out)
    without = bounds(case, arrays, truth, Precision("float32", merges=0)).out
    told = bounds(case, arrays, truth, Precision("float32", merges=1)).out
    assert (error > without).any()
    assert (error < 0.9 * told).all()
    assert (told < 8 * 2.0**-24).all(), "of values of size 1"


@pytest.mark.parametrize(("partial", "planted"), [("float32", 2e-5), ("bfloat16", 0.03)])
def test_small_faults_of_partial_results_are_caught(partial, planted):
    dtype = "bfloat16" if partial == "bfloat16" else "float32"
    case = Case(rs.PackedLayout([0, 48]), mask=rs.Mask.full(), dtype=dtype, head_dim_v=16)
    demands = Demands(merges=3, partial=partial)
    check_attention(Ring(4, partial, dtype), case, demands=demands)
    with pytest.raises(Disagreement, match="out is wrong"):
        check_attention(Ring(4, partial, dtype, planted), case, demands=demands)


def test_partial_results_are_not_excused_untold():
    case = Case(rs.PackedLayout([0, 48]), mask=rs.Mask.full(), dtype="float32", head_dim_v=16)
    with pytest.raises(Disagreement):
        check_attention(Ring(4, "bfloat16"), case, demands=Demands(merges=3))
    check_attention(Ring(4, "bfloat16"), case, demands=Demands(merges=3, partial="bfloat16"))


def test_a_partial_type_is_far_tighter_than_merges_in_it():
    case = Case(rs.PackedLayout([0, 64]), dtype="bfloat16", head_dim_v=8)
    arrays, truth = case.arrays(), case.by_definition()
    types = [{}, {"partial": "bfloat16"}, {"merge": "bfloat16"}]
    plain, partial, merge = (
        bounds(case, arrays, truth, Precision("bfloat16", merges=7, **x)).out.sum() for x in types
    )
    assert plain < partial < 2 * plain
    assert merge > 20 * partial
