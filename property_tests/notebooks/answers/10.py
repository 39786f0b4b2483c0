"""Answers to exercise 10: one that holds, and what one writes first."""

import numpy as np
import ringside as rs
from ringside.testing import Case


def is_wrong(model):
    masks = [rs.Mask.full(), rs.Mask.causal(), rs.Mask.sliding_window(2, 0), rs.Mask.chunked(3)]
    for seed in range(12):
        lengths = np.random.default_rng(seed).integers(0, 9, size=3)
        layout = rs.PackedLayout.from_lengths(lengths, pad_to_multiple_of=1 + seed % 3)
        case = Case(layout, mask=masks[seed % 4], num_heads=4, num_kv_heads=2, seed=seed)
        arrays, truth = case.arrays(), case.by_definition()  # NaN in padding, dout random
        got = model(*arrays, layout, case.mask)
        for mine, true in zip(got, (truth.out, truth.dq, truth.dk, truth.dv), strict=True):
            if not np.allclose(mine, true, rtol=0, atol=1e-10):
                return True
    return False


def _differs(
    model, layout, mask, change=lambda arrays: arrays, results=4, atol=1e-10, heads=(4, 2)
):
    case = Case(layout, mask=mask, num_heads=heads[0], num_kv_heads=heads[1])
    arrays = change(case.arrays())
    truth = case.by_definition(arrays)
    pairs = zip(
        model(*arrays, layout, mask), (truth.out, truth.dq, truth.dk, truth.dv), strict=True
    )
    return any(not np.allclose(x, y, rtol=0, atol=atol) for x, y in list(pairs)[:results])


def _any_differs(model, **options):
    masks = [rs.Mask.full(), rs.Mask.causal(), rs.Mask.sliding_window(2, 0), rs.Mask.chunked(3)]
    for lengths in ([8, 8], [5, 0, 7], [13]):
        for multiple in (1, 3):
            layout = rs.PackedLayout.from_lengths(lengths, pad_to_multiple_of=multiple)
            if any(_differs(model, layout, mask, **options) for mask in masks):
                return True
    return False


def wrong_dout_is_ones(model):
    return _any_differs(model, change=lambda a: a._replace(dout=np.ones_like(a.dout)))


def wrong_padding_holds_zeros(model):
    return _any_differs(model, change=lambda a: a._make(map(np.nan_to_num, a)))


def wrong_one_shape(model):
    return _differs(model, rs.PackedLayout.from_lengths([16, 16]), rs.Mask.causal())


def wrong_forward_only(model):
    return _any_differs(model, results=1)


def wrong_one_head(model):
    return _any_differs(model, heads=(1, 1))


def wrong_tolerance_of_folklore(model):
    return _any_differs(model, atol=2.5e-2)


def wrong_bits_must_agree(model):
    return _any_differs(model, atol=0)


def is_small(suspect):
    return True  # there are 16 of them, and the case that shows a fault is small by itself
