"""Options are one thing with two spellings: an rs.Options and keywords give the same bits."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import typing

import numpy as np
import pytest
import ringside as rs
from assertions import assert_same_bits, noted
from hypothesis import given
from hypothesis import strategies as st
from ringside._arrays.programs import baked
from ringside._attention.options import OptionKeywords, to_core
from ringside.testing import Case, strategies

CASES = noted(strategies.cases(options=strategies.options))
CALLS = {
    "attention": rs.attention,
    "attention_backward": rs.attention_backward,
    "Plan.attention": rs.Plan.attention,
    "Plan.attention_backward": rs.Plan.attention_backward,
    "DevicePlan.attention": rs.DevicePlan.attention,
    "DevicePlan.attention_backward": rs.DevicePlan.attention_backward,
    "flash_attn_varlen_func": rs.flash_attn_varlen_func,
}
FIELDS = {field.name: field for field in dataclasses.fields(rs.Options)}


def same(ones, others):
    assert len(ones) == len(others)
    for i, (a, b) in enumerate(zip(ones, others, strict=True)):
        assert_same_bits(f"result {i}", a, b)


def halves(options):
    """Every second option in an object, the others as keywords."""
    names = sorted(options)
    first = rs.Options(**{name: options[name] for name in names[::2]})
    return {"options": first} | {name: options[name] for name in names[1::2]}


@given(CASES)
def test_both_spellings_and_a_mixture_give_the_same_bits(case):
    q, k, v, dout = case.arrays()
    whole = (case.layout_q, case.layout_k)
    spellings = (case.options, {"options": rs.Options(**case.options)}, halves(case.options))
    wanted = rs.attention(q, k, v, *whole, mask=case.mask, **case.options)
    grads = rs.attention_backward(dout, q, k, v, *wanted, *whole, mask=case.mask, **case.options)
    plan = case.plan()
    planned = plan.attention(q, k, v, **case.options)
    planned_grads = plan.attention_backward(dout, q, k, v, *planned, **case.options)
    for spelled in spellings[1:]:
        same(rs.attention(q, k, v, *whole, mask=case.mask, **spelled), wanted)
        got = rs.attention_backward(dout, q, k, v, *wanted, *whole, mask=case.mask, **spelled)
        same(got, grads)
        same(plan.attention(q, k, v, **spelled), planned)
        same(plan.attention_backward(dout, q, k, v, *planned, **spelled), planned_grads)


FLASH = st.fixed_dictionaries(
    {},
    optional={
        "softmax_scale": st.sampled_from([0.0, 0.5]),
        "softcap": st.sampled_from([1.0, 20.0]),
        "sink": st.sampled_from([0.0, 2.0]),
        "alibi_slopes": st.just(0.5),
        "dropout_p": st.just(0.25),
    },
)


@given(FLASH)
def test_the_drop_in_takes_both_spellings(options):
    x = np.random.default_rng(0).normal(size=(6, 1, 4)).astype(np.float32)
    lengths = ([0, 4, 6], [0, 4, 6], 4, 4)

    def call(**spelled):
        return rs.flash_attn_varlen_func(
            x, x, x, *lengths, causal=True, return_attn_probs=True, **spelled
        )

    layout = rs.PackedLayout([0, 4, 6])
    mask = rs.Mask.causal(align="bottom_right")
    wanted = rs.attention(x, x, x, layout, mask=mask, **options)
    for spelled in (options, {"options": rs.Options(**options)}, halves(options)):
        for got, want in zip(call(**spelled), wanted, strict=True):
            np.testing.assert_array_equal(got, want.astype(np.float32))


def test_micro_sequences_take_an_object_and_go_back_with_it():
    layout, options = rs.PackedLayout([0, 5, 9]), {"sink": 0.5, "dropout_p": 0.25}
    q, k, v, dout = Case(layout).arrays()
    found = []
    for spelled in (options, {"options": rs.Options(**options)}):
        buffer = rs.MicroSequenceBuffer(layout, [0, 6, 9])
        pieces = [
            buffer.forward(i, q[rows], k[rows], v[rows], **spelled)
            for i, rows in enumerate(buffer.row_slices)
        ]
        back = [
            buffer.backward(i, dout[rows], q[rows], *pieces[i])
            for i, rows in reversed(list(enumerate(buffer.row_slices)))
        ]
        found.append([x for results in (*pieces, *back) for x in results])
    same(*found)


# --- one list of names


@pytest.mark.parametrize("name", CALLS)
def test_signatures_show_every_option_with_its_default(name):
    shown = inspect.signature(CALLS[name]).parameters
    assert {x: shown[x].default for x in FIELDS} == {x: FIELDS[x].default for x in FIELDS}
    assert shown["options"].default is None
    assert not any(p.kind is p.VAR_KEYWORD for p in shown.values())


def test_the_typed_keywords_are_the_fields():
    keywords = typing.get_type_hints(OptionKeywords)
    assert keywords == typing.get_type_hints(rs.Options)
    assert not OptionKeywords.__required_keys__


def test_hints_can_be_read_at_run_time():
    for call in CALLS.values():
        hints = typing.get_type_hints(call)
        assert OptionKeywords.__name__ in repr(hints["keywords"]) or "Score" in repr(hints)


def test_hints_can_be_read_where_typing_has_no_unpack():
    """As on Python 3.10: without typing_extensions the hint is the TypedDict itself."""
    code = (
        "import sys, typing; vars(typing).pop('Unpack', None)\n"
        "sys.modules['typing_extensions'] = None\n"
        "import ringside as rs; print(typing.get_type_hints(rs.attention)['keywords'].__name__)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert printed.stdout == "OptionKeywords\n", printed.stderr


@pytest.mark.parametrize("name", ["attention", "attention_backward"])
def test_a_plan_on_the_device_takes_what_a_plan_takes(name):
    ours, theirs = (
        inspect.signature(getattr(kind, name)).parameters for kind in (rs.DevicePlan, rs.Plan)
    )
    assert set(theirs) - set(ours) == {"backend"} and set(ours) <= set(theirs)
    assert all(ours[x].default == theirs[x].default for x in ours)


# --- a value


def test_options_cannot_be_written_to_and_travel():
    options = rs.Options(softcap=2.0, sink=(0.0, 1.0), dropout_seed=7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.softcap = 3.0
    assert pickle.loads(pickle.dumps(options)) == options == copy.deepcopy(options)
    assert eval(repr(options), {"Options": rs.Options}) == options
    assert dataclasses.replace(options, softcap=0.0) != options


class OnDevice:
    """An array that only says it lies on a device."""

    def __dlpack__(self):
        raise AssertionError("nobody may read it")

    def __dlpack_device__(self):
        return (2, 0)


def test_arrays_on_a_device_stay_there():
    options = rs.Options(sink=OnDevice(), alibi_slopes=OnDevice())
    to_core(options, per_head=())


# --- what a CUDA program is made for


NUMBERS = st.sampled_from([None, 0.0, 0.5, 1.0])


@given(NUMBERS, NUMBERS, st.sampled_from([1.0, 2.0]), st.sampled_from([np.float32, np.array]))
def test_a_program_is_made_anew_for_a_scale_and_not_for_a_softcap(scale, other, softcap, of):
    one, two = (rs.Options(softmax_scale=x, softcap=1.0) for x in (scale, other))
    assert (baked(one) == baked(two)) == (scale == other)
    assert baked(one) == baked(dataclasses.replace(one, softcap=softcap))
    assert baked(one) != baked(dataclasses.replace(one, softcap=0.0))
    if scale is not None:
        assert hash(baked(dataclasses.replace(one, softmax_scale=of(scale)))) == hash(baked(one))


@pytest.mark.parametrize("name", ["sink", "alibi_slopes"])
def test_a_program_is_made_anew_for_options_that_are_arrays(name):
    ones, twos = (rs.Options(**{name: x}) for x in (np.ones(2), np.full(2, 2.0)))
    assert baked(ones) == baked(twos) != baked(rs.Options())
