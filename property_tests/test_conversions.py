"""Every public call refuses arguments of a wrong kind by name, and no fraction becomes an integer.

The calls are found, not listed: all functions and classes of the package, ringside.thd and
ringside.lengths. Listed is a good call of each (public_calls.py), and what else a parameter takes;
anything else has to be refused.
"""

import decimal
import fractions
import inspect
import re

import numpy as np
import pytest
import ringside as rs
from bad_calls import LAYOUT, PLAN, K, Q, V, refused
from hypothesis import given
from hypothesis import strategies as st
from public_calls import CALLS
from ringside import _cuda


class Index:
    """An integer, as far as Python is concerned."""

    def __index__(self):
        return 2


WRONG = {
    "text": "7",
    "bytes": b"7",
    "None": None,
    "bool": True,
    "whole float": 2.0,
    "float": 2.5,
    "float32": np.float32(2.7),
    "0-d array": np.array(2.5),
    "Fraction": fractions.Fraction(5, 2),
    "Decimal": decimal.Decimal(2),
    "complex": 2j,
    "complex64": np.complex64(2j),
    "masked": np.ma.masked_array([0, 3, 5], [False, True, False]),
    "one masked": np.ma.masked_array(2, True),
    "hidden": np.ma.masked,
    "words": ["a"],
    "ragged": [0, [1, 2]],
    "fractions": [0, 2.5, 5.5],
    "object": object(),
}
REAL = {"whole float", "float", "float32", "0-d array"}


def of(names, kinds):
    """What each of these parameters takes besides what a good call passes."""
    return {name: kinds for name in names.split()}


TAKES = {
    **of("softmax_scale sink alibi_slopes", REAL | {"None"}),
    **of("softcap", REAL),
    **of("fill_value pad_token pad_label", {"bool", "whole float"}),
    **of("return_max_logit deterministic causal covers return_attn_probs", {"bool"}),
    **of("bias layout_k num_rows capacity a2a_size labels head_dim_v num_kv_heads", {"None"}),
    **of("seqused seqused_q seqused_k partition_k num_rows_k", {"None"}),
}
TAKES_HERE = {  # where that is more than elsewhere
    ("DevicePlan", "mask"): {"None"},
    ("Plan.draw", "path"): {"None", "text"},
    ("Plan", "cp_size"): {"None"},
    ("thd.check_offsets", "cu_seqlens"): {"None"},
    ("PackedLayout", "cu_seqlens_padded"): {"None"},
    ("PackedLayout.from_te", "cu_seqlens_padded"): {"None"},
    **{(call, "cu_seqlens_padded"): {"None"} for call in CALLS if call.startswith("thd.chunkify")},
}
WORDS = {"arrays": "sequence", "parts": "part", "buffers": "buffer"}  # one of them, in messages
RESULTS = {"Message", "PlanCost", "PlanProof", "Step", "Tile"}  # nobody calls them
ON_DEVICE = {f"DevicePlan.{x}" for x in ("set_lengths", "check", "attention", "attention_backward")}
PYBIND = re.compile("incompatible (function|constructor) arguments")


def methods_of(name, cls):
    for base in cls.__mro__:
        if base.__module__.startswith("ringside"):
            for method, value in vars(base).items():
                is_value = isinstance(value, property) or not callable(getattr(cls, method))
                if not method.startswith("_") and not is_value:
                    yield f"{name}.{method}"


def public_callables():
    for name in set(rs.__all__) - {"plan"}:  # which is Plan
        value = getattr(rs, name)
        if inspect.isclass(value) and not issubclass(value, Exception) and name not in RESULTS:
            yield name
            yield from methods_of(name, value)
        elif callable(value) and not inspect.isclass(value):
            yield name
    for module in (rs.thd, rs.lengths):
        for name, value in vars(module).items():
            if inspect.isroutine(value) and not name.startswith("_"):
                yield f"{module.__name__.split('.')[1]}.{name}"


def called(name, **changed):
    call, good = CALLS[name]
    return call(**own({**good, **changed}))


def own(arguments):
    """Arrays that may be written to."""
    return {key: x.copy() if type(x) is np.ndarray else x for key, x in arguments.items()}


def is_refused(name, **bad):
    """The message of the refusal, which names the argument; None if there was none."""
    try:
        called(name, **bad)
    except (TypeError, ValueError, rs.Unsupported) as error:
        text = str(error)
        assert not PYBIND.search(text), f"{name}({bad}): {text}"
        return text
    return None


def test_every_public_callable_is_called_here():
    assert set(public_callables()) - ON_DEVICE == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_the_good_calls_are_good(name):
    if name == "DevicePlan" and _cuda.problem():
        refused(lambda: called(name), "cannot run here", kind=rs.Unsupported)
    else:
        called(name)


@pytest.mark.parametrize(
    ("name", "parameter"),
    [(name, parameter) for name, (_, good) in CALLS.items() for parameter in good],
)
def test_arguments_of_a_wrong_kind_are_refused_by_name(name, parameter):
    takes = TAKES_HERE.get((name, parameter), TAKES.get(parameter, set()))
    spoken = rf"\b({parameter}|{WORDS.get(parameter, parameter)})\b"
    for kind in sorted(WRONG.keys() - takes):
        text = is_refused(name, **{parameter: WRONG[kind]})
        assert text is not None, f"{name}({parameter}={WRONG[kind]!r}) was accepted"
        assert re.search(spoken, text), f"{name}({parameter}={WRONG[kind]!r}): {text}"


@pytest.mark.parametrize("name", CALLS)
def test_missing_and_unknown_arguments_are_told_in_python_s_words(name):
    call, good = CALLS[name]
    text = is_refused(name, unheard_of=1)
    assert text is not None and "unexpected keyword argument 'unheard_of'" in text, text
    for parameter in good:
        try:
            call(**own({key: x for key, x in good.items() if key != parameter}))
        except (TypeError, ValueError, rs.Unsupported) as error:
            assert not PYBIND.search(str(error))
            assert re.search(
                f"missing.*{parameter}|{parameter}.*missing|cannot run", str(error)
            ) or (parameter == "partition" and "partition" in str(error))


INTEGERS = [
    (name, parameter)
    for name, (_, good) in CALLS.items()
    for parameter, value in good.items()
    if type(value) is int and parameter not in ("fill_value", "pad_token", "pad_label")
]
NOT_INTEGERS = st.one_of(
    st.floats(),
    st.floats(width=32).map(np.float32),
    st.floats(width=16).map(np.float16),
    st.integers(-5, 5).map(float).map(np.array),
    st.fractions(),
    st.decimals(),
    st.complex_numbers(),
    st.booleans(),
    st.booleans().map(np.bool_),
    st.text(),
    st.binary(),
    st.lists(st.integers(0, 3)),
)


@given(st.sampled_from(INTEGERS), NOT_INTEGERS)
def test_no_integer_is_made_of_anything_else(where, value):
    name, parameter = where
    with pytest.raises(TypeError, match=rf"\b{parameter} is (an? |None)"):
        called(name, **{parameter: value})


@given(st.sampled_from(INTEGERS), st.sampled_from([2**31, -(2**31) - 1, 2**63, 2**64, -(10**5000)]))
def test_an_integer_beyond_the_library_s_is_refused(where, value):
    name, parameter = where
    if parameter in ("dropout_seed", "max_seqlen_q", "max_seqlen_k", "out_rows", "x_rows"):
        return  # these may be larger
    with pytest.raises(ValueError, match=parameter):
        called(name, **{parameter: value})


@pytest.mark.parametrize(
    "two", [2, np.int8(2), np.uint64(2), np.array(2), Index()], ids=lambda x: type(x).__name__
)
def test_an_integer_of_any_library_is_one(two):
    assert rs.plan(LAYOUT, cp_size=two, num_heads=two).cp_size == 2
    assert rs.Mask(window_size=(two, two), chunk_size=two) == rs.Mask((2, 2), 2)
    assert rs.Segment(two, two, two) == rs.Segment(2, 2, 2)
    assert rs.thd.chunkify([0, 4], None, two).cu_seqlens.tolist() == [0, 2, 4]
    assert rs.MicroSequenceBuffer(LAYOUT, [0, int(two.__index__()), 6]).row_slices[0].stop == 2


@pytest.mark.parametrize(
    "half", [0.5, np.float16(0.5), np.float32(0.5), np.float64(0.5), np.array(0.5, np.float32)]
)
def test_a_real_number_of_any_library_is_one(half):
    wanted = rs.attention(Q, K, V, LAYOUT, softmax_scale=0.5, softcap=0.5, sink=0.5)
    got = rs.attention(Q, K, V, LAYOUT, softmax_scale=half, softcap=half, sink=half)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


# --- arrays in place of lists


def test_one_array_in_place_of_a_list_is_its_parts():
    """Its rows are made as they are read: nothing may hold on to one that is gone."""
    rows = np.arange(6 * 4 * 3.0).reshape(6, 4, 3)
    parts = np.stack([PLAN.shard(rows, rank) for rank in (0, 1)])
    np.testing.assert_array_equal(PLAN.unshard(parts), rows)
    equal = rs.PackedLayout([0, 2, 4])
    np.testing.assert_array_equal(equal.pack(rows[:4].reshape(2, 2, 4, 3)), rows[:4])
    buffers = np.stack([np.ones((3, 4, 2)), 2 * np.ones((3, 4, 2))])
    for got, wanted in zip(
        PLAN.exchange(0, "q", buffers), PLAN.exchange(0, "q", list(buffers)), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


class Parts:
    """A sequence that makes its items anew and keeps none."""

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 2

    def __getitem__(self, i):
        if i >= 2:
            raise IndexError
        return self.make(i)


def test_a_sequence_that_makes_its_items_is_a_list():
    rows = np.arange(6 * 50_000.0).reshape(6, -1)
    parts = Parts(lambda rank: PLAN.shard(rows, rank).tolist())
    np.testing.assert_array_equal(PLAN.unshard(parts), rows)
    packed = LAYOUT.pack(Parts(lambda i: rows[:3].tolist() if i == 0 else rows[4:].tolist()))
    np.testing.assert_array_equal(packed[:3], rows[:3])
    np.testing.assert_array_equal(packed[4:], rows[4:])


# --- memory and shapes


def test_too_little_memory_for_a_copy_is_a_memory_error():
    """More than any machine can address, and the copy to float64 is more still."""
    huge = np.broadcast_to(np.float32(0), (6, 2**31 - 1, 2**20))
    with pytest.raises(MemoryError):
        rs.attention(huge, K, V, LAYOUT)
    with pytest.raises(MemoryError):
        PLAN.attention(huge, K, V)
    with pytest.raises(MemoryError):
        rs.attention_backward(huge, Q, K, V, huge, np.ones((4, 6)), LAYOUT)
    with pytest.raises(MemoryError):
        PLAN.exchange(0, "q", [np.broadcast_to(np.float32(0), (2**20, 2**20, 2**20))] * 2)


@pytest.mark.parametrize("shape", [(6, 2**33, 3), (6, 4, 2**32 + 3)])
def test_shapes_beyond_int32_are_refused(shape):
    """Cut to int32, 2**32 + 3 would be the 3 that the keys have."""
    q = np.broadcast_to(0.0, shape)
    for call in (lambda: rs.attention(q, K, V, LAYOUT), lambda: PLAN.attention(q, K, V)):
        refused(call, "q has shape", str(shape[1]), "at most 2147483647", kind=rs.Unsupported)


# --- fill values


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        *((np.int64, 0.5), (np.uint8, -100), (np.int8, 128), (np.int32, np.nan), (bool, 2)),
        *((np.float32, 1e300), (np.int64, 2**63), (np.int64, "7"), (np.float64, 1j)),
        ("U2", "long"),
    ],
)
def test_a_fill_value_that_the_dtype_would_change_is_refused(dtype, fill):
    x = np.zeros(6, dtype)
    for call in (
        lambda: LAYOUT.pack([x[:3], x[:2]], fill_value=fill),
        lambda: LAYOUT.roll(x, fill_value=fill),
        lambda: PLAN.roll(x, fill_value=fill),
        lambda: rs.thd.pad_to_multiple(x[:5], None, [0, 5], 4, pad_token=fill),
    ):
        with pytest.raises((TypeError, ValueError), match=r"(fill_value|pad_token).* of dtype"):
            call()


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        *((np.float32, 0.1), (np.float16, np.nan), (np.float32, np.inf), (np.int64, -100.0)),
        *((np.uint8, 255), (complex, 1j), (object, "anything"), ("U3", "abc"), (bool, 1)),
    ],
)
def test_a_fill_value_that_the_dtype_holds_is_taken(dtype, fill):
    x = np.zeros(6, dtype)
    wanted = np.full(1, fill, dtype)
    np.testing.assert_array_equal(LAYOUT.pack([x[:3], x[:2]], fill_value=fill)[3:4], wanted)
    np.testing.assert_array_equal(LAYOUT.roll(x, fill_value=fill)[3:4], wanted)


@given(st.integers(-(2**31), 2**31 - 1))
def test_rolling_by_any_shift_fills_what_has_no_source(shift):
    got = LAYOUT.roll(np.arange(1, 7), shift)
    wanted = [0] * 6
    for begin, end in ((0, 3), (4, 6)):
        for row in range(begin, end):
            wanted[row] = row - shift + 1 if begin <= row - shift < end else 0
    assert got.tolist() == wanted
