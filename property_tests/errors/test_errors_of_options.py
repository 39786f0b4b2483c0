"""Options that contradict each other, that nobody knows, or that no call could take."""

import pytest
import ringside as rs
import torch
from bad_calls import LAYOUT, LSE, OUT, PLAN, K, Q, V, refused
from ringside.torch import varlen_attention

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
        ("sm_scale", "softmax_scale"),
        ("sinks", "sink"),
        ("s_aux", "sink"),
        ("drop_p", "dropout_p"),
        ("dropout", "dropout_p"),
        ("seed", "dropout_seed"),
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


TENSORS = tuple(map(torch.from_numpy, (Q, K, V)))
VARLEN = {"varlen_attention": lambda **kw: varlen_attention(*TENSORS, PLAN, **kw)}
MAKES = {
    "plan": lambda **kw: rs.plan(LAYOUT, cp_size=2, **kw),
    "estimate": lambda **kw: rs.estimate(LAYOUT, cp_size=2, **kw),
    "DevicePlan.__init__": lambda **kw: rs.DevicePlan(max_sequences=1, num_rows_q=4, **kw),
}
OF_A_PLAN = ("Plan.attention", "Plan.attention_backward", "varlen_attention")
OF_A_MASK = ("attention", "attention_backward", *MAKES)
OF_RESULTS = ("attention", "Plan.attention")
CAUSAL, WINDOW = "mask=ringside.Mask.causal()", "mask=ringside.Mask.sliding_window(left, right)"
OFFSETS = "ringside.PackedLayout(cu_seqlens_q)"


@pytest.mark.parametrize(
    ("word", "names", "fix"),
    [
        ("causal", OF_A_PLAN, f"Pass {CAUSAL} to ringside.plan, if that is meant"),
        ("causal", OF_A_MASK, f"Pass {CAUSAL}, if that is meant, or leave causal out"),
        ("window_size", OF_A_PLAN, f"Pass {WINDOW} to ringside.plan, if"),
        ("window_size", OF_A_MASK, f"Pass {WINDOW}, if"),
        ("window", OF_A_MASK, f"Pass {WINDOW}, if"),
        ("window", ["flash_attn_varlen_func"], "Pass window_size, if"),
        ("is_causal", ["flash_attn_varlen_func"], "Pass causal, if"),
        ("attn_mask", OF_A_MASK, "Pass mask=ringside.Mask.full(), if"),
        ("cu_seqlens_q", OF_A_PLAN, f"Pass {OFFSETS} to ringside.plan, if"),
        ("cu_seqlens_q", [x for x in OF_A_MASK if "Device" not in x], f"Pass {OFFSETS}, if"),
        ("cu_seqlens_q", ["DevicePlan.__init__"], "Pass cu_seqlens_q to set_lengths(), if"),
        ("return_softmax_lse", ["flash_attn_varlen_func"], "Pass return_attn_probs, if"),
        ("return_softmax_lse", ["varlen_attention"], "Pass return_lse, if"),
        ("return_softmax_lse", OF_RESULTS, "Leave return_softmax_lse out: lse is always returned"),
        ("world_size", MAKES, "Pass cp_size, if"),
        ("num_head", MAKES, "Pass num_heads, if"),
        ("unheard_of", [*CALLS, *VARLEN, *MAKES], ". Leave unheard_of out"),
    ],
)
def test_words_of_the_field_name_what_is_meant(word, names, fix):
    for name in names:
        refused(
            lambda name=name: {**CALLS, **VARLEN, **MAKES}[name](**{word: True}),
            f"{name}() got an unexpected keyword argument '{word}'; expected only",
            fix,
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
