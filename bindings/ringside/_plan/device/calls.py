"""All ranks of a DevicePlan in this process: attention and its gradients.

These are methods of DevicePlan; they stand here because they are a concept of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ringside._arguments.gradients import without_gradients
from ringside._arrays import calls as _device_calls
from ringside._attention.differentiable import HALVES, differentiable_by
from ringside._attention.formats import QkvFormat, check_format
from ringside._attention.options import (
    OptionKeywords,
    Options,
    Unpack,
    options_of,
    takes_options,
)
from ringside._core import arguments

if TYPE_CHECKING:
    from ringside._plan.device.plan import DevicePlan

Array = TypeVar("Array")  # of torch, CuPy or JAX: results are of its kind


@overload
def attention(
    self: DevicePlan,
    q: Array,
    k: Array,
    v: Array,
    *,
    options: Options | None = ...,
    qkv_format: QkvFormat = ...,
    return_max_logit: Literal[False] = ...,
    **keywords: Unpack[OptionKeywords],
) -> tuple[Array, Array]: ...
@overload
def attention(
    self: DevicePlan,
    q: Array,
    k: Array,
    v: Array,
    *,
    options: Options | None = ...,
    qkv_format: QkvFormat = ...,
    return_max_logit: Literal[True],
    **keywords: Unpack[OptionKeywords],
) -> tuple[Array, Array, Array]: ...
@differentiable_by(lambda: attention_backward)
@takes_options
def attention(
    self: DevicePlan,
    q: Any,
    k: Any,
    v: Any,
    *,
    options: Options | None = None,
    qkv_format: QkvFormat = "thd",
    return_max_logit: bool = False,
    **keywords: Unpack[OptionKeywords],
) -> Any:
    """(out, lse) of arrays on the device; as Plan.attention(backend="cuda").

    Args:
        q: [num_rows_q, num_heads, head_dim_qk]; k, v: [num_rows_k, num_kv_heads, ...]; of the
            library whose arrays set_lengths() got, or lent to it, as by Plan.attention.
        qkv_format: as for ringside.attention; a dense batch fills all rows there are.
        options, return_max_logit, keywords: as for ringside.attention.

    Returns:
        (out, lse), or (out, lse, max_logit) with return_max_logit, on the device.

    >>> import ringside as rs, torch
    >>> plan = rs.DevicePlan(max_sequences=1, num_rows_q=2)
    >>> plan.set_lengths(torch.tensor([0, 2], dtype=torch.int32, device="cuda"))
    >>> q = k = torch.zeros(2, 1, 8, device="cuda")
    >>> v = torch.tensor([1.0, 3.0], device="cuda").view(2, 1, 1)
    >>> plan.attention(q, k, v)[0].flatten().tolist()
    [1.0, 2.0]
    """
    options = options_of(attention, options, keywords)
    check_format(qkv_format)
    asked = arguments.boolean(return_max_logit, "return_max_logit")
    named = {"q": q, "k": k, "v": v}
    return _device_calls.attention(self, named, options, qkv_format, return_max_logit=asked)


@without_gradients(HALVES)
@takes_options
def attention_backward(
    self: DevicePlan,
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    *,
    options: Options | None = None,
    qkv_format: QkvFormat = "thd",
    deterministic: bool = False,
    **keywords: Unpack[OptionKeywords],
) -> tuple[Any, ...]:
    """(dq, dk, dv), and dsink where there is a sink; as Plan.attention_backward.

    Args:
        dout, q, k, v, out, lse: as for Plan.attention_backward, on the device.
        options, qkv_format, keywords: those of attention().
        deterministic: bit-equal results from run to run.

    >>> import ringside as rs, torch
    >>> plan = rs.DevicePlan(max_sequences=1, num_rows_q=2)
    >>> plan.set_lengths(torch.tensor([0, 2], dtype=torch.int32, device="cuda"))
    >>> q = k = torch.zeros(2, 1, 8, device="cuda")
    >>> v = torch.tensor([1.0, 3.0], device="cuda").view(2, 1, 1)
    >>> out, lse = plan.attention(q, k, v)
    >>> grads = plan.attention_backward(torch.ones_like(out), q, k, v, out, lse)
    >>> grads[2].flatten().tolist()
    [1.5, 0.5]
    """
    options = options_of(attention_backward, options, keywords)
    check_format(qkv_format)
    named = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}
    return _device_calls.attention_backward(
        self, named, options, qkv_format, deterministic=deterministic
    )
