"""Calls of flash_attn_varlen_func by position: FlashAttention 2 and 3 agree on seven arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

Call = TypeVar("Call", bound=Callable[..., Any])

ALIKE = 7  # q to max_seqlen_k
TWO = (
    *("dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes"),
    *("deterministic", "return_attn_probs", "block_table"),
)
THREE = (
    *("seqused_q", "seqused_k", "softmax_scale", "causal", "qv"),
    *("q_descale", "k_descale", "v_descale", "window_size", "attention_chunk", "softcap"),
    *("num_splits", "pack_gqa", "deterministic", "sm_margin", "return_attn_probs"),
)


def names_behind(eighth: Any) -> tuple[str, ...]:
    """What the arguments from the eighth on are called, by what the eighth is.

    Raises:
        TypeError: it is neither a probability nor lengths.

    >>> names_behind(0.0)[:2], names_behind([3, 5])[:2], names_behind(None)[0]
    (('dropout_p', 'softmax_scale'), ('seqused_q', 'seqused_k'), 'seqused_q')
    """
    shape = getattr(eighth, "shape", None)
    is_switch = isinstance(eighth, bool | np.bool_)
    if not is_switch and (isinstance(eighth, int | float) or shape == ()):  # NumPy's, too
        return TWO
    if not is_switch and (eighth is None or shape is not None or isinstance(eighth, list | tuple)):
        return THREE
    raise TypeError(
        f"the eighth positional argument is a {type(eighth).__name__}; expected a number, "
        "dropout_p of FlashAttention 2, or lengths or None, seqused_q of FlashAttention 3. Pass "
        "it by name"
    )


def takes_positions_of_both(call: Call) -> Call:
    """Goes around the function: positional arguments behind the seventh get their names.

    A call by the positions of FlashAttention 2 that asks for return_attn_probs gets, as there, a
    third result: None, as no probabilities are kept.
    """
    named = list(inspect.signature(call).parameters)[:ALIKE]

    @functools.wraps(call)
    def tell(*args: Any, **kwargs: Any) -> Any:
        if len(args) <= ALIKE:
            return call(*args, **kwargs)
        names = names_behind(args[ALIKE])
        given = dict(zip(names, args[ALIKE:], strict=False))
        if len(args) > ALIKE + len(names):
            raise TypeError(
                f"{call.__qualname__}() got {len(args)} positional arguments; expected at most "
                f"{ALIKE + len(names)}, the last of them {names[-1]}. Pass the others by name"
            )
        if twice := [name for name in (*named, *given) if name in kwargs]:
            raise TypeError(
                f"{call.__qualname__}() got {twice[0]} by position and by name; expected one of "
                "them. Leave one out"
            )
        found = call(*args[:ALIKE], **given, **kwargs)
        of_two = names is TWO and isinstance(found, tuple)
        return (*found, None) if of_two else found

    return cast(Call, tell)
