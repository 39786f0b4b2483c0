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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import ringside as rs
from ringside._rows import valid_rows
from ringside.testing._precision import Demands
from ringside.testing._running import CANARY_ROWS, Misuse, wrote_to
from ringside.testing.cases import Case

__all__ = [
    "JaxFunction",
    "TorchForward",
    "TorchFunction",
    "jax_dot_product",
    "torch_flex",
    "torch_sdpa",
]

Rows = tuple[slice, slice]


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


def _documents(layout_q: rs.PackedLayout, layout_k: rs.PackedLayout) -> Iterator[Rows]:
    """The valid rows of each document that has queries and keys."""
    starts = zip(
        layout_q.cu_seqlens_padded.tolist(), layout_k.cu_seqlens_padded.tolist(), strict=True
    )
    lengths = zip(layout_q.lengths.tolist(), layout_k.lengths.tolist(), strict=True)
    for (begin_q, begin_k), (n_q, n_k) in zip(starts, lengths, strict=False):
        if n_q and n_k:
            yield slice(begin_q, begin_q + n_q), slice(begin_k, begin_k + n_k)


def _refuse(options: dict[str, Any]) -> None:
    """Nothing is silently ignored."""
    if options:
        raise NotImplementedError(f"no {', '.join(sorted(options))} here")


def _sdpa(
    q: Any, k: Any, v: Any, *, layout_q: Any, layout_k: Any, mask: Any, **options: Any
) -> Any:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    scale = options.pop("softmax_scale")
    _refuse(options)
    out = q.new_zeros((*q.shape[:2], v.shape[2]))
    for rows, keys in _documents(layout_q, layout_k):
        visible = torch.from_numpy(mask.to_dense(rows.stop - rows.start, keys.stop - keys.start))
        batch = (x.transpose(0, 1)[None] for x in (q[rows], k[keys], v[keys]))
        grouped = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
        result = scaled_dot_product_attention(*batch, attn_mask=visible, scale=scale, **grouped)
        seen = visible.any(dim=1)[:, None, None]
        out[rows] = torch.where(seen, result[0].transpose(0, 1), 0.0)
    return out


def _flex(
    q: Any, k: Any, v: Any, *, layout_q: Any, layout_k: Any, mask: Any, **options: Any
) -> Any:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    scale, softcap = options.pop("softmax_scale"), options.pop("softcap", 0.0)
    _refuse(options)
    if not len(q) or not len(k):
        return q.new_zeros((*q.shape[:2], v.shape[2]))
    seen = torch.from_numpy(pack_mask(layout_q, layout_k, mask))
    blocks = create_block_mask(
        lambda b, h, i, j: seen[i, j], None, None, len(q), len(k), device="cpu"
    )
    valid = torch.from_numpy(valid_rows(layout_k))[:, None, None]
    k, v = (torch.where(valid, x, 0.0) for x in (k, v))
    out = flex_attention(
        *(x.transpose(0, 1)[None] for x in (q, k, v)),
        score_mod=(lambda s, b, h, i, j: softcap * torch.tanh(s / softcap)) if softcap else None,
        block_mask=blocks,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return torch.where(seen.any(dim=1)[:, None, None], out[0].transpose(0, 1), 0.0)


def pack_mask(
    layout_q: rs.PackedLayout, layout_k: rs.PackedLayout, mask: rs.Mask
) -> npt.NDArray[np.bool_]:
    """[rows_q, rows_k]: the mask of the whole pack, documents and padding included.

    >>> pack_mask(rs.PackedLayout([0, 1, 2]), rs.PackedLayout([0, 1, 2]), rs.Mask.full()).tolist()
    [[True, False], [False, True]]
    """
    seen = np.zeros((layout_q.num_rows, layout_k.num_rows), bool)
    for rows, keys in _documents(layout_q, layout_k):
        seen[rows, keys] = mask.to_dense(rows.stop - rows.start, keys.stop - keys.start)
    return seen


def _jax(q: Any, k: Any, v: Any, *, layout_q: Any, layout_k: Any, mask: Any, **options: Any) -> Any:
    import jax

    dot_product_attention: Any = jax.nn.dot_product_attention
    scale = options.pop("softmax_scale")
    _refuse(options)
    if q.shape[2] != v.shape[2]:
        raise NotImplementedError("head_dim_v must be head_dim here")
    documents = list(_documents(layout_q, layout_k))
    masks = [mask.to_dense(q.stop - q.start, k.stop - k.start) for q, k in documents]

    def pack(q: Any, k: Any, v: Any, masks: list[Any]) -> Any:
        out = jax.numpy.zeros((*q.shape[:2], v.shape[2]), q.dtype)
        for (rows, keys), visible in zip(documents, masks, strict=True):
            batch = (x[None] for x in (q[rows], k[keys], v[keys]))
            result = dot_product_attention(*batch, mask=visible[None, None], scale=scale)[0]
            seen = visible.any(axis=1)[:, None, None]
            out = out.at[rows].set(jax.numpy.where(seen, result, 0.0))
        return out

    # Else each operation is compiled by itself; of float16 XLA for CPUs takes no more.
    whole = pack if q.dtype == np.float16 else jax.jit(pack)
    return whole(q, k, v, masks)


torch_sdpa = _TorchSdpa(_sdpa, "torch_sdpa")
"""torch.nn.functional.scaled_dot_product_attention, document by document; see its demands_for."""

torch_flex = TorchForward(_flex, "torch_flex")
"""FlexAttention on the whole pack, with a document mask; it has no backward pass on CPUs."""

jax_dot_product = JaxFunction(_jax, "jax_dot_product")
"""jax.nn.dot_product_attention, document by document."""
