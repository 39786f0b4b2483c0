"""Bad layouts and masks: the message says what was got, what was expected and how to fix it.

Each line of a table is one bad call and the pieces that its message must hold, in this order.
"""

import numpy as np
import pytest
import ringside as rs
from bad_calls import LAYOUT, K, Q, refused

HUGE = np.array([0, 2**31], np.int64)


def layout(*sums, **keywords):
    return lambda: rs.PackedLayout(*sums, **keywords)


LAYOUTS = {
    "empty": (layout([]), "cu_seqlens is empty", "[batch+1]", "np.cumsum"),
    "not starting at 0": (layout([1, 3]), "cu_seqlens[0]=1", "must start at 0", "np.cumsum"),
    "falling": (
        layout([0, 9, 7]),
        "cu_seqlens[2]=7 is less than cu_seqlens[1]=9",
        "never decrease",
        "np.cumsum",
    ),
    "negative": (layout([0, -1]), "cu_seqlens[1]=-1", "never decrease", "np.cumsum"),
    "2-D": (layout([[0, 3]]), "cu_seqlens has shape (1, 2)", "one dimension", "reshape(-1)"),
    "0-D": (layout(np.int32(3)), "cu_seqlens has shape ()", "one dimension", "reshape(-1)"),
    "beyond int32": (layout(HUGE), "cu_seqlens[1]=2147483648", "int32", "Split the pack"),
    "padded not starting at 0": (
        layout([0, 3], [1, 4]),
        "cu_seqlens_padded[0]=1",
        "start at 0",
        "np.cumsum",
    ),
    "padded falling": (
        layout([0, 0, 0], [0, 4, 2]),
        "cu_seqlens_padded[2]=2",
        "never decrease",
        "np.cumsum",
    ),
    "padded beyond int32": (layout([0, 3], HUGE), "cu_seqlens_padded[1]=2147483648", "int32"),
    "padded shorter than valid": (
        layout([0, 5, 9], [0, 4, 9]),
        "sequence 0 has 5 tokens but only 4 rows",
        "at least",
        "swap the two",
    ),
    "padded of another batch": (
        layout([0, 5], [0, 5, 9]),
        "cu_seqlens has 2 entries and cu_seqlens_padded has 3",
        "[batch+1]",
        "Pass one entry a sequence",
    ),
    "a negative length": (
        lambda: rs.PackedLayout.from_lengths([3, -1]),
        "lengths[1]=-1",
        "cannot be negative",
        "pass 0",
    ),
    "lengths beyond int32": (
        lambda: rs.PackedLayout.from_lengths([2**31 - 1, 1]),
        "lengths[0..1] need 2147483648 rows",
        "int32",
        "Split the pack",
    ),
    "padding beyond int32": (
        lambda: rs.PackedLayout.from_lengths([2**31 - 9], pad_to_multiple_of=1000),
        "lengths[0..0] need",
        "int32",
        "Split the pack",
    ),
    "no multiple": (
        lambda: rs.PackedLayout.from_lengths([3], pad_to_multiple_of=0),
        "pad_to_multiple_of=0",
        "at least 1",
        "2*cp_size",
    ),
    "from_flash: another batch": (
        lambda: rs.PackedLayout.from_flash([0, 8], [3, 4]),
        "seqused has 2 entries and cu_seqlens has 2",
        "[batch] and [batch+1]",
        "Pass one length",
    ),
    "from_flash: a negative length": (
        lambda: rs.PackedLayout.from_flash([0, 8], [-3]),
        "seqused[0]=-3",
        "cannot be negative",
        "Pass 0",
    ),
    "from_flash: more tokens than rows": (
        lambda: rs.PackedLayout.from_flash([0, 8], [9]),
        "seqused[0]=9 but sequence 0 has only 8 rows (cu_seqlens[0]=0, cu_seqlens[1]=8)",
        "at most as many",
        "in seqused how many",
    ),
    "from_flash: cu_seqlens that fall": (
        lambda: rs.PackedLayout.from_flash([0, 9, 7], [1, 1]),
        "cu_seqlens[2]=7 is less than cu_seqlens[1]=9",
        "never decrease",
        "np.cumsum",
    ),
    "from_flash: lengths whose sum is beyond int32": (
        lambda: rs.PackedLayout.from_flash([0, 8, 16], [2**31 - 1, 2**31 - 1]),
        "seqused[0]=2147483647 but sequence 0 has only 8 rows",
        "at most as many",
    ),
    "from_te: without padding, beyond the rows": (
        lambda: rs.PackedLayout.from_te([0, 5], num_rows=3),
        "num_rows=3 but cu_seqlens ends at 5",
        "end within the rows",
        "Pass the rows of q",
    ),
    "from_te: offsets beyond the rows": (
        lambda: rs.PackedLayout.from_te([0, 5], [0, 8], num_rows=7),
        "num_rows=7 but cu_seqlens_padded ends at 8",
        "end within the rows",
        "Pass the rows of q",
    ),
    "from_te: rows without a sequence": (
        lambda: rs.PackedLayout.from_te([0], num_rows=7),
        "num_rows=7 but there is no sequence",
        "Add one of length 0",
    ),
    "from_position_ids: a jump": (
        lambda: rs.PackedLayout.from_position_ids([0, 1, 3]),
        "position_ids[2]=3",
        "expected 2",
        "or 0 (a new one)",
        "pass cu_seqlens",
    ),
    "from_position_ids: not from 0": (
        lambda: rs.PackedLayout.from_position_ids([1, 2, 3]),
        "position_ids[0]=1; expected 0, where the first document begins. For other orders",
        "pass cu_seqlens",
    ),
    "from_segment_ids: a document in two runs": (
        lambda: rs.PackedLayout.from_segment_ids([1, 2, 1]),
        "segment_ids[2]=1 already appeared in row 0",
        "one run of rows",
        "Sort the rows",
    ),
    "pack: too few": (lambda: LAYOUT.pack([Q[:3]]), "got 1 arrays", "each of the 2 sequences"),
    "pack: wrong length": (
        lambda: LAYOUT.pack([Q[:2], Q[:2]]),
        "sequence 0 has shape (2, 4, 3)",
        "expected 3 tokens",
    ),
    "pack: a scalar": (lambda: LAYOUT.pack([1, 2]), "sequence 0 is a scalar", "[rows, ...]"),
    "pack: unlike": (
        lambda: LAYOUT.pack([Q[:3], K[:2]]),
        "sequence 1 has shape (2, 2, 3) and sequence 0 has (3, 4, 3)",
        "alike",
    ),
    "unpack: wrong rows": (lambda: LAYOUT.unpack(Q[:5]), "shape (5, 4, 3)", "expected 6 rows"),
    "roll: wrong rows": (lambda: LAYOUT.roll(Q[:5]), "shape (5, 4, 3)", "expected 6 rows"),
    "roll: a scalar": (lambda: LAYOUT.roll(1), "shape ()", "expected 6 rows"),
}

MASKS = {
    "left below -1": (
        lambda: rs.Mask(window_size=(-2, 0)),
        "window_size=(-2, 0)",
        "expected -1 (unbounded)",
        "Causal is (-1, 0)",
    ),
    "right below -1": (
        lambda: rs.Mask.sliding_window(0, -2),
        "window_size=(0, -2)",
        "expected -1 (unbounded)",
        "Causal is (-1, 0)",
    ),
    "negative chunks": (lambda: rs.Mask(chunk_size=-1), "chunk_size=-1", "expected 0 (no chunks)"),
    "no chunks": (
        lambda: rs.Mask.chunked(0),
        "chunk_size=0",
        "at least 1 token",
        "use Mask.causal()",
    ),
    "unknown alignment": (
        lambda: rs.Mask.causal(align="left"),
        'align="left" is unknown',
        '"top_left", "bottom_right"',
    ),
    "a negative length": (
        lambda: rs.Mask.full().visible(0, -1, 3),
        "len_q=-1",
        "cannot be negative",
    ),
    "a negative key length": (
        lambda: rs.Mask.full().to_dense(3, -2),
        "len_k=-2",
        "cannot be negative",
    ),
    "a negative length in allows": (
        lambda: rs.Mask.full().allows(0, 0, 1, -1),
        "len_k=-1",
        "cannot be negative",
    ),
}


@pytest.mark.parametrize("bad", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_bad_layouts_are_refused_with_got_expected_and_fix(bad):
    refused(*bad)


@pytest.mark.parametrize("bad", MASKS.values(), ids=MASKS.keys())
def test_bad_masks_are_refused_with_got_expected_and_fix(bad):
    refused(*bad)


@pytest.mark.parametrize("window", [(3, 0, 1), [3], ()])
def test_a_window_of_other_than_two_says_how_many_there_are(window):
    refused(
        lambda: rs.Mask(window),
        f"window_size has {len(window)} entries",
        "expected a tuple of two",
        "Pass two",
        kind=TypeError,
    )


def test_tensors_are_told_nothing_that_only_arrays_have():
    torch = pytest.importorskip("torch")
    floats, ones = torch.tensor([0.0, 3.0]), torch.ones(6, 4, 3, dtype=torch.int64)
    for call, fix in (
        (lambda: rs.PackedLayout(floats), "Convert cu_seqlens to int32"),
        (lambda: rs.thd.partition_indices(floats, 2, 0), "Convert cu_seqlens_padded to int32"),
        (lambda: rs.attention(ones, ones, ones, LAYOUT), "Convert q to one of them"),
    ):
        with pytest.raises(TypeError, match=fix) as error:
            call()
        assert "astype" not in str(error.value) and "np." not in str(error.value)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, bool, complex, object, "U3"])
def test_prefix_sums_that_are_not_integers_are_refused(dtype):
    sums = np.array([0, 3, 5]).astype(dtype)
    for call in (
        lambda: rs.PackedLayout(sums),
        lambda: rs.PackedLayout([0, 3, 5], sums),
        lambda: rs.PackedLayout.from_lengths(sums),
    ):
        refused(
            call,
            f"has dtype {sums.dtype}",
            "expected integers. Convert ",
            " to int32",
            kind=TypeError,
        )
