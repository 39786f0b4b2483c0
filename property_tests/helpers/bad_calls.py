"""What the tests of error messages share: small legal arguments, and how a refusal is checked."""

import re

import numpy as np
import pytest
import ringside as rs

LAYOUT = rs.PackedLayout([0, 3, 5], [0, 4, 6])
PLAN = rs.plan(LAYOUT, cp_size=2, num_heads=4, num_kv_heads=2)
Q = np.ones((6, 4, 3))
K = np.ones((6, 2, 3))
V = np.ones((6, 2, 5))
OUT = np.ones((6, 4, 5))
LSE = np.ones((4, 6))


def refused(call, *pieces, kind=ValueError):
    """The call raises, and its message holds the pieces in this order: got, expected, fix."""
    with pytest.raises(kind) as error:
        call()
    text = str(error.value)
    pattern = ".*".join(re.escape(piece) for piece in pieces)
    assert re.search(pattern, text, re.DOTALL), f"{text!r} does not hold {pieces}"
