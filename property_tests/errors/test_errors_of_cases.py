"""Cases that no arrays could be drawn for, and what is passed in place of a case."""

import pytest
import ringside as rs
from bad_calls import LAYOUT, refused
from ringside.testing import Case, check_attention, check_context_parallel


@pytest.mark.parametrize(
    ("settings", "kind", "pieces"),
    [
        (
            {"dtype": "fp8"},
            ValueError,
            ('dtype="fp8" is unknown', "expected one of float64, float32,", "Pass one by its name"),
        ),
        (
            {"num_heads": 3, "num_kv_heads": 2},
            ValueError,
            (
                "num_heads=3 with num_kv_heads=2",
                "expected a multiple",
                "num_kv_heads=3, or num_hea",
            ),
        ),
        ({"num_heads": 0}, ValueError, ("num_heads=0", "expected 1 or more", "Leave it out")),
        ({"num_kv_heads": -1}, ValueError, ("num_kv_heads=-1", "expected 1 or more")),
        ({"head_dim": 0}, ValueError, ("head_dim=0", "expected 1 or more")),
        ({"head_dim_v": 1.5}, TypeError, ("head_dim_v is a float", "expected")),
        ({"layout_k": [0, 3, 5]}, TypeError, ("layout_k is a list", "expected", "PackedLayout")),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, dict) else None,
)
def test_a_case_is_checked_when_it_is_made(settings, kind, pieces):
    refused(lambda: Case(LAYOUT, **settings), *pieces, kind=kind)
    refused(lambda: Case(LAYOUT).replace(**settings), *pieces, kind=kind)


@pytest.mark.parametrize("check", [check_attention, check_context_parallel])
@pytest.mark.parametrize(
    ("given", "fix"), [(LAYOUT, "Pass Case(layout)"), ([0, 3], "Pass Case(PackedLayout(")]
)
def test_a_layout_is_no_case(check, given, fix):
    refused(
        lambda: check(rs.attention, given),
        f"case is a {type(given).__name__}",
        "expected a ringside.testing.Case",
        fix,
        kind=TypeError,
    )
