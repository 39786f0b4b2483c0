"""Dense batches that are not the layout's: refused before anything is computed, everywhere."""

import numpy as np
import pytest
import ringside as rs
from bad_calls import refused
from played_cuda import play
from ringside._arrays import programs as _programs

EQUAL = rs.PackedLayout.from_lengths([6, 4], pad_to_multiple_of=6)
UNEQUAL = rs.PackedLayout.from_lengths([5, 7])
CASES = {
    "one row of sequences that are not alike": (
        *(UNEQUAL, "bshd", (1, 12, 4, 8)),
        ('q has shape (1, 12, 4, 8), for "bshd" 1 sequences of 12 rows', 'expected "thd"'),
        ("5 to 7 rows", 'Pass qkv_format="thd" and q[0]'),
    ),
    "the same, rows first": (
        *(UNEQUAL, "sbhd", (12, 1, 4, 8)),
        ("q has shape (12, 1, 4, 8)", 'expected "thd"'),
        ('Pass qkv_format="thd" and q[:, 0]',),
    ),
    "as many rows as sequences that are not alike have": (
        *(UNEQUAL, "bshd", (2, 6, 4, 8)),
        ("q has shape (2, 6, 4, 8)", 'expected "thd"'),
        ("[12, heads, dim]",),
    ),
    "more sequences": (
        *(EQUAL, "bshd", (3, 4, 4, 8)),
        ('q has shape (3, 4, 4, 8), for "bshd" 3 sequences of 4 rows', "expected 2 of 6"),
        ("(2, 6) and heads, dim", 'Pass qkv_format="thd"'),
    ),
    "one of the two": (
        *(EQUAL, "sbhd", (12, 1, 4, 8)),
        ("q has shape (12, 1, 4, 8)", "expected 2 of 6", "(6, 2) and heads, dim"),
        ('Pass qkv_format="thd" and q[:, 0]',),
    ),
    "axes of the other format": (
        *(EQUAL, "sbhd", (2, 6, 4, 8)),
        ('for "sbhd" 6 sequences of 2 rows', "expected 2 of 6"),
        ("(6, 2) and heads, dim",),
    ),
}


def reference(plan, *arrays, **more):
    return plan.attention(*arrays, **more)


def cuda(plan, *arrays, **more):
    return plan.attention(*arrays, backend="cuda", **more)


def definition(plan, *arrays, **more):
    return rs.attention(*arrays, plan.layout_q, **more)


@pytest.fixture
def played(monkeypatch):
    yield play(monkeypatch)
    _programs._plain_options.cache_clear()


@pytest.mark.parametrize("call", [reference, cuda, definition])
@pytest.mark.parametrize("name", CASES)
def test_a_batch_of_other_sequences_is_refused(played, name, call):
    layout, qkv_format, shape, pieces, more = CASES[name]
    plan = rs.plan(layout, cp_size=2, num_heads=4)
    x = np.ones(shape, np.float32)
    refused(lambda: call(plan, x, x, x, qkv_format=qkv_format), *pieces, *more)


@pytest.mark.parametrize("operand", ["k", "v", "dout", "out", "lse"])
@pytest.mark.parametrize("backend", ["reference", "cuda"])
def test_every_array_is_held_against_the_layout(played, operand, backend):
    plan = rs.plan(EQUAL, cp_size=2, num_heads=4)
    named = dict.fromkeys(("dout", "q", "k", "v", "out"), np.ones((2, 6, 4, 8), np.float32))
    named["lse"] = np.ones((2, 4, 6), np.float32)
    wrong = named[operand].reshape((3, 4, 4) if operand == "lse" else (3, 4, 4, 8))
    plan.attention_backward(**named, qkv_format="bshd", backend=backend)
    refused(
        lambda: plan.attention_backward(
            **{**named, operand: wrong}, qkv_format="bshd", backend=backend
        ),
        f"{operand} has shape (3, 4, ",
        "expected [2, heads, 6]" if operand == "lse" else "expected 2 of 6",
        "Pass ",
    )


def test_keys_have_the_layout_of_queries_unless_another_one_is_given():
    q, k = np.ones((2, 6, 1, 8)), np.ones((2, 4, 1, 8))
    refused(
        lambda: rs.attention(q, k, k, EQUAL, qkv_format="bshd"),
        "k has shape (2, 4, 1, 8)",
        "expected 2 of 6",
        "or another layout",
    )
    keys = rs.PackedLayout.from_lengths([4, 4])
    out, _ = rs.attention(q, k, k, EQUAL, keys, qkv_format="bshd")
    np.testing.assert_allclose(out[0], np.ones((6, 1, 8)), rtol=1e-15)


def test_batches_of_a_plan_on_a_device_are_alike(played):
    plan = rs.DevicePlan(max_sequences=2, num_rows_q=12)
    plan.set_lengths(np.array([0, 6, 12], np.int32))
    q, k = np.ones((2, 6, 1, 8), np.float32), np.ones((3, 4, 1, 8), np.float32)
    refused(
        lambda: plan.attention(q, k, k, qkv_format="bshd"),
        "k has shape (3, 4, 1, 8), 3 sequences",
        "expected 2, as q has",
        "Pass batches of the same sequences",
    )
