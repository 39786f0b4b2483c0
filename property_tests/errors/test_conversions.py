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
from bad_calls import LAYOUT, K, Q, V, refused
from hypothesis import assume, given
from hypothesis import strategies as st
from public_calls import CALLS
from ringside._arrays import cuda as _cuda


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
    **of("timeout_s", REAL | {"None"}),
    **of("address", {"None"}),
    **of("key", {"None", "text"}),
    **of("fill_value pad_token pad_label", {"bool", "whole float"}),
    **of(
        "keep_kv backward return_max_logit deterministic causal covers return_attn_probs", {"bool"}
    ),
    **of(
        "bias options layout_k num_rows capacity a2a_size stages labels head_dim_v num_kv_heads",
        {"None"},
    ),
    **of("kept_kv seqused seqused_q seqused_k partition_k num_rows_k", {"None"}),
    **of("path", {"None", "text"}),
    **of("ax timeline mark sequence against", {"None"}),
    **of("qv q_descale k_descale v_descale block_table", {"None"}),
    **of("pack_gqa", {"None", "bool"}),
}
TAKES_HERE = {  # where that is more than elsewhere
    ("DevicePlan", "mask"): {"None"},
    **{("DevicePlan", name): {"text"} for name in ("partition", "comm")},  # looked up with CUDA
    ("lengths.load", "name_or_path"): {"text"},
    ("init", "name"): {"text"},
    ("thd.check_step_metadata", "comm"): {"text"},
    **{("lengths.parse", name): {"text"} for name in ("text", "source")},
    **{(f"lengths.{name}", "cu_seqlens"): {"bool"} for name in ("load", "parse")},
    ("thd.copy_rows", "x"): {"fractions"},
    **{("Options", name): REAL | {"None", "fractions"} for name in ("sink", "alibi_slopes")},
    **{(f"Time{name}.save", "path"): {"text"} for name in ("Model", "line")},
    **{(name, "model"): {"None"} for name in ("Plan.cost", "estimate")},
    ("Plan.prepare", "device"): {"None"},
    ("Plan.show", "compare"): {"None"},
    **{(f"Plan.attention{x}_rank", "backend"): {"None"} for x in ("", "_backward")},
    ("plan", "cp_size"): {"None"},
    ("plan", "name"): {"None", "text"},
    **{("from_ranges", f"num_rows_{side}"): {"None"} for side in ("q", "k")},
    **{call: {"text"} for call in (("from_ranges", "types"), ("partition", "name"))},
    ("estimate", "cp_size"): {"None"},
    ("thd.check_offsets", "cu_seqlens"): {"None"},
    ("PackedLayout", "cu_seqlens_padded"): {"None"},
    ("PackedLayout.from_te", "cu_seqlens_padded"): {"None"},
    **{(call, "cu_seqlens_padded"): {"None"} for call in CALLS if call.startswith("thd.chunkify")},
}
WORDS = {"arrays": "sequence", "parts": "part", "buffers": "buffer"}  # one of them, in messages
RESULTS = {
    "Event",
    "Message",
    "PlanCost",
    "PlanProof",
    "Step",
    "Tile",
    "TimedCost",
}  # nobody calls them
MADE = {"Plan", "Group", "TimeModel", "Timeline"}  # by functions; its methods are called
ON_DEVICE = {  # test_calls_on_device.py, test_device_lengths.py, test_group_played_lengths.py
    *(f"DevicePlan.{x}" for x in ("set_lengths", "check", "attention", "attention_backward")),
    *(f"DevicePlan.{x}" for x in ("rank_rows", "prepare")),
    *(f"DevicePlan.attention{x}_rank" for x in ("", "_backward")),
}
PYBIND = re.compile("incompatible (function|constructor) arguments")


def methods_of(name, cls):
    for base in cls.__mro__:
        if base.__module__.startswith("ringside"):
            for method, value in vars(base).items():
                is_value = isinstance(value, property) or not callable(getattr(cls, method))
                if not method.startswith("_") and not is_value:
                    yield f"{name}.{method}"


def public_callables():
    for name in rs.__all__:
        value = getattr(rs, name)
        if inspect.isclass(value) and not issubclass(value, Exception) and name not in RESULTS:
            yield from {name} - MADE
            yield from methods_of(name, value)
        elif callable(value) and not inspect.isclass(value):
            yield name
    for module in (rs.thd, rs.lengths):
        for name, value in vars(module).items():
            if inspect.isroutine(value) and not name.startswith("_"):
                yield f"{module.__name__.split('.')[1]}.{name}"


def called(name, /, **changed):
    call, good = CALLS[name]
    return call(**own({**good, **changed}))


def own(arguments):
    """Arrays that may be written to."""
    return {key: x.copy() if type(x) is np.ndarray else x for key, x in arguments.items()}


def is_refused(name, /, **bad):
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
            missing = f"missing.*{parameter}|{parameter}.*missing"
            assert not isinstance(error, TypeError) or re.search(missing, str(error))


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


OR_MANY = {("Mask.visible", "q")}  # of which a call may give a list


@given(st.sampled_from(INTEGERS), NOT_INTEGERS)
def test_no_integer_is_made_of_anything_else(where, value):
    assume(where not in OR_MANY or not isinstance(value, list))
    name, parameter = where
    with pytest.raises(TypeError, match=rf"\b{parameter} is (an? |None)"):
        called(name, **{parameter: value})


WIDE = {  # these may be larger
    *(("flash_attn_varlen_func", f"max_seqlen_{side}") for side in "qk"),
    *(("flash_attn_varlen_func", name) for name in ("num_splits", "sm_margin")),
    *(("thd.check_segments", "out_rows"), ("thd.check_segments", "x_rows")),
    *(("thd.check_offsets", "num_rows"), ("plan", "max_tiles")),
    *((name, "dropout_seed") for name in CALLS),
}


@given(
    st.sampled_from(sorted(set(INTEGERS) - WIDE)),
    st.sampled_from([2**31, -(2**31) - 1, 2**63, 2**64, -(10**5000)]),
)
def test_an_integer_beyond_the_library_s_is_refused(where, value):
    name, parameter = where
    with pytest.raises(ValueError, match=rf"\b{parameter}\b"):
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
