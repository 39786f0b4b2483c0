"""Keywords that a call does not have, and what is meant by them: the field has many words."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

Call = TypeVar("Call", bound=Callable[..., Any])
LIKENESS = 0.6  # of a misspelt keyword and the one that is meant

# By what other libraries call it: what it is called here.
SAME = {
    **dict.fromkeys(("scale", "sm_scale", "scaling", "softmax_scaling"), ("softmax_scale",)),
    **dict.fromkeys(("softcapping", "logits_soft_cap", "logit_cap"), ("softcap",)),
    **dict.fromkeys(("s_aux", "sinks", "attention_sink", "learnable_sink"), ("sink",)),
    **dict.fromkeys(("dropout", "p_dropout", "attention_dropout"), ("dropout_p",)),
    **dict.fromkeys(("seed", "rng_seed", "philox_seed"), ("dropout_seed",)),
    **dict.fromkeys(("slopes", "alibi"), ("alibi_slopes",)),
    **dict.fromkeys(("layout", "tensor_format", "input_layout"), ("layout_q", "qkv_format")),
    **dict.fromkeys(("world_size", "cp", "num_ranks", "context_parallel_size"), ("cp_size",)),
    **dict.fromkeys(("transport", "cp_comm_type"), ("comm",)),
    **dict.fromkeys(("process_group", "cp_group", "pg"), ("group",)),
    **dict.fromkeys(("nheads", "num_q_heads", "num_attention_heads"), ("num_heads",)),
    **dict.fromkeys(("num_key_value_heads", "num_gqa_groups", "nheads_k"), ("num_kv_heads",)),
    "is_causal": ("causal",),
    "window": ("window_size",),
    "sliding_window": ("window_size",),
    "chunk_size": ("attention_chunk",),
}
OF_MASK = {
    **dict.fromkeys(("causal", "is_causal"), "ringside.Mask.causal()"),
    **dict.fromkeys(
        ("window", "window_size", "sliding_window", "local_window_size"),
        "ringside.Mask.sliding_window(left, right)",
    ),
    **dict.fromkeys(("chunk_size", "attention_chunk"), "ringside.Mask.chunked(size)"),
    **dict.fromkeys(("attn_mask", "attention_mask", "attn_mask_type"), "ringside.Mask.full()"),
}
OF_LAYOUT = ("cu_seqlens", "cu_seqlens_q", "cu_seqlens_k", "cu_seqlens_kv", "cu_seqlens_padded")
OF_LSE = ("return_lse", "return_softmax_lse", "return_attn_probs", "return_softmax")


def unexpected_keyword(call: Callable[..., Any], name: str) -> TypeError:
    """What a call says of a keyword that it does not have.

    >>> def attend(q, *, mask, softmax_scale): ...
    >>> print(unexpected_keyword(attend, "sm_scale"))  # doctest: +NORMALIZE_WHITESPACE
    attend() got an unexpected keyword argument 'sm_scale'; expected only q, mask, softmax_scale.
    Pass softmax_scale, if that is meant, or leave sm_scale out
    """
    parameters = [
        parameter
        for parameter in inspect.signature(call).parameters.values()
        if parameter.name != "self" and parameter.kind is not parameter.VAR_POSITIONAL
    ]
    known = ", ".join(parameter.name for parameter in parameters)
    served = [parameter.name for parameter in parameters if parameter.annotation != "None"]
    meant = _meant(name, served)
    fix = f"Pass {meant}, if that is meant, or leave {name} out" if meant else f"Leave {name} out"
    if name in OF_LSE and "return_max_logit" in served:
        fix = f"Leave {name} out: lse is always returned, behind out"
    return TypeError(
        f"{call.__qualname__}() got an unexpected keyword argument '{name}'; expected only "
        f"{known}. {fix}"
    )


def _meant(name: str, served: Sequence[str]) -> str | None:
    """What to pass instead."""
    same = SAME.get(name, OF_LSE if name in OF_LSE else ())
    if here := [other for other in same if other in served]:
        return here[0]
    if mask := OF_MASK.get(name):
        return f"mask={mask}" + ("" if "mask" in served else " to ringside.plan")
    if name in OF_LAYOUT and "max_sequences" in served:
        return f"{name} to set_lengths()"
    if name in OF_LAYOUT:
        given = f"ringside.PackedLayout({name})"
        return given if "layout_q" in served else f"{given} to ringside.plan"
    return next(iter(difflib.get_close_matches(name, served, n=1, cutoff=LIKENESS)), None)


def knows_keywords(call: Call) -> Call:
    """Goes around a function, so that it says what is meant by keywords that it does not have.

    >>> @knows_keywords
    ... def plan(*, cp_size): return cp_size
    >>> plan(cp_size=2)
    2
    """
    signature = inspect.signature(call)

    @functools.wraps(call)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in signature.parameters:
                raise unexpected_keyword(call, name)
        return call(*args, **kwargs)

    return cast(Call, checked)
