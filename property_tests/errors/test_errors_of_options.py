"""Options that contradict each other, that nobody knows, or that no call could take."""

import pytest
import ringside as rs
from bad_calls import LAYOUT, LSE, OUT, PLAN, K, Q, V, refused

FLASH = ([0, 4, 6], [0, 4, 6], 4, 4)
CALLS = {
    "attention": lambda **kw: rs.attention(Q, K, V, LAYOUT, **kw),
    "attention_backward": lambda **kw: rs.attention_backward(OUT, Q, K, V, OUT, LSE, LAYOUT, **kw),
    "Plan.attention": lambda **kw: PLAN.attention(Q, K, V, **kw),
    "Plan.attention_backward": lambda **kw: PLAN.attention_backward(OUT, Q, K, V, OUT, LSE, **kw),
    "flash_attn_varlen_func": lambda **kw: rs.flash_attn_varlen_func(Q, K, V, *FLASH, **kw),
}
calls = pytest.mark.parametrize(("name", "call"), CALLS.items(), ids=CALLS.keys())
SET = {
    "softmax_scale": 0.5,
    "softcap": 2.0,
    "sink": 0.0,
    "alibi_slopes": 0.5,
    "dropout_p": 0.25,
    "dropout_seed": 3,
}


@calls
@pytest.mark.parametrize("option", SET)
def test_an_option_said_twice_is_refused(name, call, option):
    refused(
        lambda: call(options=rs.Options(**{option: SET[option]}), **{option: SET[option]}),
        f"{name}() got {option} and options that set {option}",
        "expected one of them",
        f"Leave {option} out",
        kind=TypeError,
    )


@calls
@pytest.mark.parametrize(
    ("misspelt", "nearest"),
    [
        ("soft_cap", "softcap"),
        ("scale", "softmax_scale"),
        ("sinks", "sink"),
        ("drop_p", "dropout_p"),
    ],
)
def test_an_unknown_keyword_names_the_nearest(name, call, misspelt, nearest):
    for more in ({}, {"options": rs.Options(softcap=1.0)}):
        refused(
            lambda more=more: call(**{misspelt: 1.0}, **more),
            f"{name}() got an unexpected keyword argument '{misspelt}'",
            "expected only q, k, v" if "backward" not in name else "expected only dout",
            f"Pass {nearest}, if that is meant, or leave {misspelt} out",
            kind=TypeError,
        )


def test_keywords_of_the_call_itself_are_near_too():
    refused(
        lambda: PLAN.attention(Q, K, V, qkv_fromat="thd"), "Pass qkv_format, if", kind=TypeError
    )


@calls
@pytest.mark.parametrize("wrong", [{"softcap": 1.0}, 0.5, (), "softcap"], ids=repr)
def test_options_of_another_kind_are_refused(name, call, wrong):
    kind = type(wrong).__name__
    refused(
        lambda: call(options=wrong),
        f"options is a {kind}",
        "expected a ringside.Options, or None",
        "Pass ringside.Options(",
        kind=TypeError,
    )


@pytest.mark.parametrize(
    ("bad", "kind", "says"),
    [
        ({"softcap": -1.0}, ValueError, ("softcap=-1", "expected 0 (none)")),
        ({"softcap": float("inf")}, ValueError, ("softcap=inf", "expected 0 (none)")),
        ({"softmax_scale": float("nan")}, ValueError, ("softmax_scale=nan", "finite")),
        ({"dropout_p": 1.0}, ValueError, ("dropout_p=1", "0 <= p < 1")),
        ({"dropout_p": float("nan")}, ValueError, ("dropout_p=nan", "0 <= p < 1")),
        ({"dropout_seed": -1}, ValueError, ("dropout_seed=-1", "0 to 2**64-1")),
        ({"sink": "much"}, TypeError, ("sink has dtype", "expected")),
        ({"bias": 0.0}, rs.Unsupported, ("bias adds", "Nearest supported: alibi_slopes")),
        ({"soft_cap": 1.0}, TypeError, ("unexpected keyword argument 'soft_cap'",)),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, dict) else None,
)
def test_what_no_call_could_take_is_refused_when_it_is_said(bad, kind, says):
    refused(lambda: rs.Options(**bad), *says, kind=kind)


@calls
def test_the_number_of_heads_is_the_call_s_to_check(name, call):
    refused(
        lambda: call(options=rs.Options(sink=[0.0, 1.0])),
        "sink has shape (2,)",
        "one for each of the 4 query heads",
    )
