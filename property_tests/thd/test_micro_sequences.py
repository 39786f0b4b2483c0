"""One K/V buffer for all micro-sequences gives what one pass over the whole pack gives."""

import numpy as np
import pytest
import ringside as rs
from hypothesis import example, given
from hypothesis import strategies as st
from ringside.testing import Case, strategies

MASKS = (rs.Mask.causal(), rs.Mask.sliding_window(3, 0), rs.Mask.chunked(4))


@st.composite
def cases_and_splits(draw):
    """A causal self-attention case, and where to cut it, empty pieces and cuts in padding too."""
    case = draw(strategies.cases(masks=st.sampled_from(MASKS), layouts_k=lambda _: st.none()))
    case = case.replace(partition=draw(st.sampled_from(rs.PARTITIONS)), partition_k=None)
    rows = case.layout_q.num_rows
    cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=4)))
    return case, [0, *cuts, rows]


def make_buffer(case, splits):
    return rs.MicroSequenceBuffer(
        case.layout_q,
        splits,
        mask=case.mask,
        cp_size=case.cp_size,
        partition=case.partition,
        comm=case.comm,
        a2a_size=case.a2a_size,
        num_heads=case.num_heads,
        num_kv_heads=case.num_kv_heads,
    )


def run(buffer, arrays, **options):
    q, k, v, dout = arrays
    slices = buffer.row_slices
    saved = [buffer.forward(i, q[r], k[r], v[r], **options) for i, r in enumerate(slices)]
    gradients = [
        buffer.backward(i, dout[slices[i]], q[slices[i]], *saved[i])
        for i in reversed(range(len(slices)))
    ][::-1]
    out = np.concatenate([s[0] for s in saved])
    lse = np.concatenate([s[1] for s in saved], axis=1)
    return out, lse, *(np.concatenate([g[j] for g in gradients]) for j in range(3)), gradients


def assert_same(ours, truth):
    # Sums of standard normal operands in another order: see ringside.testing._compare.
    for a, b in zip(ours, truth, strict=True):
        # A small number may be a sum of large ones: of the largest that there is, 1e-12.
        largest = np.abs(b, where=np.isfinite(b), out=np.zeros_like(b)).max(initial=1.0)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * largest)


STRADDLING = Case(rs.PackedLayout([0, 5, 11, 20]), num_heads=2, head_dim_v=3)


@given(cases_and_splits())
@example((STRADDLING, [0, 8, 14, 20]))
@example((STRADDLING, [0, 1, 2, 3, 20]))  # one document over four pieces
def test_pieces_give_what_the_whole_gives(case_and_splits):
    case, splits = case_and_splits
    arrays = case.arrays()
    buffer = make_buffer(case, splits)
    for _ in range(2):  # the buffer serves the next sequence, too
        ours = run(buffer, arrays, softmax_scale=case.softmax_scale)
        assert_same(ours[:5], case.by_definition(arrays)[:5])
        assert buffer.frontier == 0


@given(cases_and_splits(), st.floats(-3, 3))
def test_sinks_enter_each_row_once(case_and_splits, sink):
    case, splits = case_and_splits
    q, k, v, dout = arrays = case.arrays()
    *ours, pieces = run(make_buffer(case, splits), arrays, sink=sink)
    truth = rs.attention(q, k, v, case.layout_q, mask=case.mask, sink=sink)
    gradients = rs.attention_backward(
        dout, q, k, v, *truth, case.layout_q, mask=case.mask, sink=sink
    )
    assert_same(ours, (*truth, *gradients[:3]))
    assert_same([sum(piece[3] for piece in pieces)], [gradients[3]])


@given(cases_and_splits(), st.sampled_from([0.25, 0.75]), st.integers(0, 2**64 - 1))
@example((STRADDLING, [0, 8, 14, 20]), 0.5, 3)
@example((Case(rs.PackedLayout([0, 2, 2, 9], [0, 3, 5, 13])), [0, 2, 7, 13]), 0.5, 3)
def test_dropout_of_pieces_is_that_of_the_whole(case_and_splits, p, seed):
    """A document's number and a query's position are those of the whole, not of the piece."""
    case, splits = case_and_splits
    case = case.replace(dropout_p=p, dropout_seed=seed)
    arrays = case.arrays()
    ours = run(make_buffer(case, splits), arrays, **case.options)
    assert_same(ours[:5], case.by_definition(arrays)[:5])


def test_a_dropped_prefix_is_never_read_and_its_gradient_is_exactly_zero():
    """Fast-LLM #514: documents [4, 1, 10] behind 7 rows of garbage that nobody may see."""
    layout = rs.PackedLayout([0, 7, 11, 12, 22])
    case = Case(layout, num_heads=4, num_kv_heads=2)
    q, k, v, dout = case.arrays()
    k[:7] = v[:7] = np.nan  # the first piece's keys turn to garbage once it has been forwarded
    buffer = rs.MicroSequenceBuffer(layout, [0, 7, 22], num_heads=4, num_kv_heads=2)
    buffer.forward(0, q[:7], np.zeros_like(k[:7]), np.zeros_like(v[:7]))
    buffer.k[:7] = buffer.v[:7] = np.nan
    assert buffer.first_document_begin(1) == 7
    out, lse = buffer.forward(1, q[7:], k[7:], v[7:])
    dq, dk, dv = buffer.backward(1, dout[7:], q[7:], out, lse)
    assert not buffer.dk[:7].any() and not buffer.dv[:7].any()
    alone = Case(rs.PackedLayout([0, 4, 5, 15]), num_heads=4, num_kv_heads=2)
    truth = alone.by_definition((q[7:], k[7:], v[7:], dout[7:]))[:5]
    assert_same((out, lse, dq, dk, dv), truth)


def test_contributions_of_later_pieces_accumulate_before_a_piece_takes_its_own():
    """A document that straddles three pieces: the first piece's keys serve all of them."""
    case = Case(rs.PackedLayout([0, 9]))
    q, k, v, dout = case.arrays()
    buffer = make_buffer(case, [0, 3, 6, 9])
    saved = [buffer.forward(i, q[r], k[r], v[r]) for i, r in enumerate(buffer.row_slices)]
    partial = []
    for i in (2, 1, 0):
        rows = buffer.row_slices[i]
        buffer.backward(i, dout[rows], q[rows], *saved[i])
        partial.append(buffer.dv[0].copy())
    assert len({x.tobytes() for x in partial}) == 3
    assert_same([partial[-1]], [case.by_definition((q, k, v, dout)).dv[0]])


@pytest.mark.parametrize("splits", [[0], [1, 4], [0, 3], [0, 3, 2, 4], [0, 5]])
def test_splits_that_do_not_rise_from_zero_to_the_end_are_refused(splits):
    with pytest.raises(ValueError, match=r"expected rows that rise from 0 to 4"):
        rs.MicroSequenceBuffer(rs.PackedLayout([0, 4]), splits)


@pytest.mark.parametrize("mask", [rs.Mask.full(), rs.Mask.sliding_window(2, 1)])
def test_keys_that_are_yet_to_come_are_unsupported(mask):
    with pytest.raises(rs.Unsupported, match="Nearest supported"):
        rs.MicroSequenceBuffer(rs.PackedLayout([0, 4]), [0, 2, 4], mask=mask)


def test_pieces_out_of_order_are_refused():
    buffer = rs.MicroSequenceBuffer(rs.PackedLayout([0, 4]), [0, 2, 4])
    x = np.zeros((2, 1, 1))
    with pytest.raises(ValueError, match="got micro-sequence 1; expected 0"):
        buffer.forward(1, x, x, x)
    out, lse = buffer.forward(0, x, x, x)
    with pytest.raises(ValueError, match="got micro-sequence 1; expected 0"):
        buffer.backward(1, x, x, out, lse)
    with pytest.raises(ValueError, match=r"expected \[2, heads, dim\], rows 2 to 4"):
        buffer.forward(1, x, np.zeros((3, 1, 1)), x)
