"""A library author lets the kit look for faults in a function of their own."""

import numpy as np
import ringside as rs
from ringside.testing import Case, Disagreement, check_attention


def mine(q, k, v, layout_q, layout_k, mask, softmax_scale):
    """Right, but for a window that hides one key too many."""
    left, right = mask.window_size
    narrow = rs.Mask(window_size=(left - 1 if left > 0 else left, right))
    return rs.attention(q, k, v, layout_q, layout_k, mask=narrow, softmax_scale=softmax_scale)


layout = rs.PackedLayout.from_lengths([9, 4])
check_attention(mine, Case(layout, dtype="float32"))  # no window: nothing to find
try:
    check_attention(mine, Case(layout, mask=rs.Mask.sliding_window(2, 0), dtype="float32"))
except Disagreement as found:
    print(found)
    assert "key" in str(found)
else:
    raise SystemExit("the fault was not found")

out, lse = rs.attention(*np.zeros((3, 13, 1, 8)), layout)
assert np.allclose(np.exp(lse[0, :3]), [1, 2, 3])
