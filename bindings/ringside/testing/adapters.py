"""Attention of torch and JAX under the protocol of check_attention, and wrappers for your own.

`TorchFunction` and `JaxFunction` take a function of the library's tensors with the signature of
ringside.attention, hand it tensors, and get its gradients by automatic differentiation:

>>> from ringside.testing import Case, adapters, check_attention
>>> import ringside as rs
>>> case = Case(rs.PackedLayout([0, 3, 5], [0, 4, 6]), dtype="float32")
>>> if adapters.jax_dot_product.missing is None:
...     ratio = check_attention(adapters.jax_dot_product, case).largest_ratio
... else:
...     ratio = 0.0
>>> ratio < 1
True

    ringside fuzz --implementation ringside.testing.adapters:torch_sdpa

Three ready ones: torch_sdpa and jax_dot_product go through the documents one by one, torch_flex
takes the whole pack with a document mask. What none of them promises is done around them: padding
is replaced by zeros before (0 times NaN is NaN), and rows that see nothing are set to 0 after.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ringside.testing._libraries import attention as _attention
from ringside.testing._libraries.documents import pack_mask
from ringside.testing._precision import Demands
from ringside.testing._running import CANARY_ROWS, Misuse, wrote_to
from ringside.testing.cases import Case

__all__ = [
    "JaxFunction",
    "TorchForward",
    "TorchFunction",
    "jax_dot_product",
    "pack_mask",
    "torch_flex",
    "torch_sdpa",
]


class _Function:
    """What both libraries' wrappers share: a name, and a reason where the library is absent."""

    library = ""

    def __init__(self, fn: Callable[..., Any], name: str | None = None) -> None:
        self.fn = fn
        named = getattr(fn, "func", fn)  # of a functools.partial
        self.name = name or getattr(named, "__name__", type(named).__name__)

    @functools.cached_property
    def missing(self) -> str | None:
        """Why it cannot run, or None."""
        try:
            importlib.import_module(self.library)
        except (ImportError, OSError) as error:
            return f"{self.library} cannot be imported: {error}"
        return None

    def _import(self) -> Any:
        if self.missing is not None:
            raise NotImplementedError(self.missing)
        return importlib.import_module(self.library)


class TorchFunction(_Function):
    """A function of torch tensors, differentiated by torch.autograd.

    Args:
        fn: fn(q, k, v, layout_q=, layout_k=, mask=, softmax_scale=, ...) -> out or (out, lse); a
            sink comes as a tensor [num_heads] that has a gradient of its own.
        name: what reports call it; default its own.
    """

    library = "torch"

    def __call__(self, q: Any, k: Any, v: Any, **keywords: Any) -> Any:
        """NumPy arrays in and out."""
        torch = self._import()
        with torch.no_grad():
            options = {**keywords, **_sink_leaf(torch, q, keywords)}
            guarded = guards(torch, (q, k, v))
            returned = self.fn(*(x.tensor for x in guarded), **options)
            unwritten(guarded)
        results = returned if isinstance(returned, tuple) else (returned,)
        arrays = tuple(_from_tensor(torch, x) for x in results)
        return arrays if isinstance(returned, tuple) else arrays[0]

    def backward(self, dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, **kw: Any) -> Any:
        """(dq, dk, dv) of sum(dout * out), and dsink of a sink; runs forward once more."""
        del out, lse
        torch = self._import()
        guarded = guards(torch, (q, k, v, dout))
        leaves = [x.tensor.requires_grad_() for x in guarded[:3]]
        sink = _sink_leaf(torch, q, kw)
        leaves += [x.requires_grad_() for x in sink.values()]
        returned = self.fn(*leaves[:3], **{**kw, **sink})
        result = returned[0] if isinstance(returned, tuple) else returned
        _require_tensor(torch, result)
        unwritten(guarded)
        guarded[3] = TensorGuard(torch, torch.nan_to_num(guarded[3].tensor), "dout")
        if not result.requires_grad:  # no token at all
            return tuple(np.zeros(tuple(x.shape)) for x in leaves)
        grads = torch.autograd.grad(result, leaves, guarded[3].tensor, allow_unused=True)
        unwritten(guarded)
        pairs = zip(grads, leaves, strict=True)
        return tuple(_from_tensor(torch, torch.zeros_like(x) if g is None else g) for g, x in pairs)


class _TorchSdpa(TorchFunction):
    """Its kernel for CPUs has roundings of its own."""

    BLOCK = 32
    """Queries whose share of dk and dv it adds up in float32."""

    def demands_for(self, case: Case) -> Demands:
        """dk and dv are summed in the inputs' type from block to block, and from head to head.

        One of 93 rows is off by 1.2 of what roundings of the weights and of the result explain.
        """
        blocks = -(-int(case.layout_q.lengths.max(initial=0)) // self.BLOCK)
        shares = blocks * (case.num_heads // case.num_kv_heads)
        if case.dtype not in ("bfloat16", "float16") or shares < 2:
            return Demands()
        return Demands(merges=shares, gradients=case.dtype)


class TorchForward(TorchFunction):
    """A TorchFunction of which gradients are not asked, because it has none on this device."""

    backward = None  # type: ignore[assignment]


class JaxFunction(_Function):
    """A function of JAX arrays, differentiated by jax.vjp; arguments as for TorchFunction."""

    library = "jax"

    def __call__(self, q: Any, k: Any, v: Any, **keywords: Any) -> Any:
        """NumPy arrays in and out."""
        jax = self._import()
        if q.dtype == np.float64 and not jax.config.jax_enable_x64:
            raise NotImplementedError("JAX has no float64 unless jax_enable_x64 is set")
        jnp = jax.numpy
        options = {**keywords, **{n: jnp.asarray(x) for n, x in _sink_rows(q, keywords).items()}}
        returned = self.fn(*(jnp.asarray(x) for x in (q, k, v)), **options)
        if isinstance(returned, tuple):
            return tuple(np.asarray(x) for x in returned)
        return np.asarray(returned)

    def backward(self, dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, **kw: Any) -> Any:
        """(dq, dk, dv) of sum(dout * out), and dsink of a sink; runs forward once more."""
        del out, lse
        jax = self._import()
        sink = _sink_rows(q, kw)

        def out_of(q: Any, k: Any, v: Any, *sinks: Any) -> Any:
            returned = self.fn(q, k, v, **{**kw, **dict(zip(sink, sinks, strict=True))})
            return returned[0] if isinstance(returned, tuple) else returned

        given = (q, k, v, *sink.values())
        result, pull = jax.vjp(out_of, *(jax.numpy.asarray(x) for x in given))
        seed = jax.numpy.nan_to_num(jax.numpy.asarray(dout)).astype(result.dtype)
        return tuple(np.asarray(x) for x in pull(seed))


def _sink_rows(q: Any, keywords: dict[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """The keyword sink as [num_heads], in float32 or wider; nothing where there is none."""
    if keywords.get("sink") is None:
        return {}
    dtype = np.float64 if q.dtype == np.float64 else np.float32
    sink = np.ravel(np.asarray(keywords["sink"], dtype))
    return {"sink": np.array(np.broadcast_to(sink, q.shape[1]))}


def _sink_leaf(torch: Any, q: Any, keywords: dict[str, Any]) -> dict[str, Any]:
    """The same as a tensor."""
    return {name: torch.from_numpy(x) for name, x in _sink_rows(q, keywords).items()}


def _tensor(torch: Any, x: Any) -> Any:
    """bfloat16 by way of float32: torch does not know ml_dtypes."""
    if str(x.dtype) == "bfloat16":
        return torch.from_numpy(x.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.array(x))


def _from_tensor(torch: Any, x: Any) -> npt.NDArray[Any]:
    _require_tensor(torch, x)
    x = x.detach().cpu()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()


class TensorGuard:
    """A tensor inside a larger one of NaN; notices when either is written to, gradient or not."""

    def __init__(self, torch: Any, x: Any, name: str) -> None:
        self.name, self._torch = name, torch
        self._buffer = x.new_full((len(x) + 2 * CANARY_ROWS, *x.shape[1:]), float("nan"))
        inside = slice(CANARY_ROWS, CANARY_ROWS + len(x))
        self._buffer[inside] = x
        self._before = self._buffer.clone()
        self.tensor = self._buffer[inside]

    def check(self) -> None:
        """Raises Misuse where a byte changed."""
        now, before = (x.view(self._torch.uint8).flatten(1) for x in (self._buffer, self._before))
        changed = (now != before).any(1)
        if changed.any():
            row = int(changed.int().argmax()) - CANARY_ROWS
            raise wrote_to(self.name, row, len(self.tensor))


def guards(torch: Any, arrays: Sequence[Any], place: str = "cpu") -> list[TensorGuard]:
    """Of q, k and v, and dout where it is there."""
    given = zip(("q", "k", "v", "dout"), arrays, strict=False)
    return [TensorGuard(torch, _tensor(torch, x).to(place), name) for name, x in given]


def unwritten(guarded: Sequence[TensorGuard]) -> None:
    """Raises Misuse where one was written to."""
    for each in guarded:
        each.check()


def _require_tensor(torch: Any, x: Any) -> None:
    if not isinstance(x, torch.Tensor):
        raise Misuse(
            f"returned a {type(x).__name__}; expected a torch.Tensor, or a tuple of two of them. "
            "Return out, or (out, lse), as torch computes them"
        )


torch_sdpa = _TorchSdpa(_attention.sdpa, "torch_sdpa")
"""torch.nn.functional.scaled_dot_product_attention, document by document; see its demands_for."""

torch_flex = TorchForward(_attention.flex, "torch_flex")
"""FlexAttention on the whole pack, with a document mask; it has no backward pass on CPUs."""

jax_dot_product = JaxFunction(_attention.dot_product, "jax_dot_product")
"""jax.nn.dot_product_attention, document by document."""
