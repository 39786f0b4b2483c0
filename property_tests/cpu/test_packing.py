"""Packed documents know nothing of each other: packed equals one document at a time."""

import numpy as np
import ringside as rs
from assertions import assert_close, noted, scale_of
from hypothesis import given
from hypothesis import strategies as st
from independent import split
from ringside.testing import Arrays, strategies

CASES = noted(strategies.cases())


def alone(case, arrays, s):
    """The case of document s without its neighbours and without padding."""
    layout_q = rs.PackedLayout([0, int(case.layout_q.lengths[s])])
    layout_k = rs.PackedLayout([0, int(case.keys.lengths[s])])
    q, dout = (split(x, case.layout_q)[s] for x in (arrays.q, arrays.dout))
    k, v = (split(x, case.keys)[s] for x in (arrays.k, arrays.v))
    document = case.replace(
        layout_q=layout_q, layout_k=layout_k, partition="zigzag", partition_k=None
    )
    return document, Arrays(q, k, v, dout)


def assert_packed_equals_alone(case, packed, run_alone):
    arrays = case.arrays()
    results = packed(case, arrays)
    operands = [case.scale * case.head_dim * scale_of(arrays.q) * scale_of(arrays.k)]
    gradient = case.scale * case.head_dim_v * scale_of(arrays.dout) * scale_of(arrays.v)
    operands.append(gradient * scale_of(arrays.q, arrays.k))
    for s in range(case.layout_q.num_sequences):
        single = run_alone(*alone(case, arrays, s))
        for name, whole, part in zip(results._fields, results, single, strict=True):
            layout = case.keys if name in ("dk", "dv") else case.layout_q
            rows = whole.T if name == "lse" else whole
            assert_close(
                f"{name} of document {s}",
                split(rows, layout)[s],
                part.T if name == "lse" else part,
                operands=operands,
            )


@given(CASES)
def test_the_definition_of_a_pack_is_the_definition_of_each_document(case):
    def run(case, arrays):
        return case.by_definition(arrays)

    assert_packed_equals_alone(case, run, run)


@given(noted(strategies.cases(cp_sizes=st.integers(2, 6))))
def test_a_plan_of_a_pack_is_the_definition_of_each_document(case):
    assert_packed_equals_alone(
        case,
        lambda case, arrays: case.by_plan(arrays),
        lambda case, arrays: case.by_definition(arrays),
    )


@given(CASES, st.integers(0, 3), st.data())
def test_a_document_does_not_notice_what_its_neighbours_say(case, s, data):
    """Bit for bit: other documents' rows may hold anything, NaN too."""
    if case.layout_q.num_sequences < 2:
        return
    s %= case.layout_q.num_sequences
    arrays = case.arrays()
    loud = Arrays(*(x.copy() for x in arrays))
    noise = data.draw(st.sampled_from([np.nan, np.inf, 1e300]))
    for x, layout in zip(loud, (case.layout_q, case.keys, case.keys, case.layout_q), strict=True):
        for other, rows in enumerate(split(x, layout)):
            if other != s:
                rows[...] = noise
    quiet = case.by_plan(arrays)
    with np.errstate(all="ignore"):
        heard = case.by_plan(loud)
    for name, a, b in zip(quiet._fields, quiet, heard, strict=True):
        layout = case.keys if name in ("dk", "dv") else case.layout_q
        a, b = (x.T if name == "lse" else x for x in (a, b))
        np.testing.assert_array_equal(split(a, layout)[s], split(b, layout)[s], err_msg=name)
