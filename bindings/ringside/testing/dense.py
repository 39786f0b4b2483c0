"""Functions of dense batches, [batch, seqlen, heads, dim] or sequences first, in the ring.

`Dense` gives check_attention's packs to such a function as a batch of equal lengths, and what comes
back as a pack; `Cupy` gives arrays of CuPy in place of NumPy's. They nest, and `batches` draws what
a function of batches can take:

>>> import ringside as rs
>>> from ringside.testing import Case, check_attention
>>> def mine(q, k, v, *, mask, softmax_scale):
...     return rs.attention(q, k, v, mask=mask, softmax_scale=softmax_scale, qkv_format="sbhd")[0]
>>> case = Case(rs.PackedLayout([0, 3, 6]), dtype="float32")
>>> check_attention(Dense(mine, "sbhd"), case).largest_ratio < 1
True
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

import ringside as rs
from ringside._extras import extra

__all__ = ["Cupy", "Dense", "batches"]

FORMATS = ("bshd", "sbhd")


class Dense:
    """A function of dense batches, under the protocol of check_attention.

    It refuses documents of several lengths and padding, which a batch cannot hold.

    Args:
        fn: fn(q, k, v, *, mask, softmax_scale, ...) of batches; returns out of the same format, or
            (out, lse) with lse [batch, heads, seqlen].
        qkv_format: "bshd" for [batch, seqlen, heads, dim], "sbhd" for [seqlen, batch, heads, dim].
        backward: backward(dout, q, k, v, out, lse, *, mask, ...) -> (dq, dk, dv); None for fn's
            attribute `backward`, if any.

    Raises:
        ValueError: another format.
    """

    def __init__(
        self, fn: Callable[..., Any], qkv_format: str, backward: Callable[..., Any] | None = None
    ) -> None:
        if qkv_format not in FORMATS:
            raise ValueError(
                f'qkv_format="{qkv_format}"; expected "bshd" or "sbhd". Packs need no wrapper'
            )
        self.fn, self.qkv_format = fn, qkv_format
        self.name = getattr(fn, "name", None) or getattr(fn, "__name__", type(fn).__name__)
        own = backward or getattr(fn, "backward", None)
        self._gradients = own
        self.backward = None if own is None else self._backward

    def __call__(
        self, q: Any, k: Any, v: Any, *, layout_q: Any, layout_k: Any, **keywords: Any
    ) -> Any:
        """Of packs, in and out."""
        given = self._batches(((q, layout_q), (k, layout_k), (v, layout_k)))
        returned = self.fn(*given, **keywords)
        if not isinstance(returned, tuple):
            return self._rows(returned)
        out, lse = returned
        return self._rows(out), _statistic_of_rows(lse)

    def _backward(
        self, dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *, layout_q: Any,
        layout_k: Any, **keywords: Any,
    ) -> Any:  # fmt: skip
        pairs = ((dout, layout_q), (q, layout_q), (k, layout_k), (v, layout_k), (out, layout_q))
        if lse is not None:
            batch = layout_q.num_sequences
            lse = np.moveaxis(np.asarray(lse).reshape(len(lse), batch, -1), 1, 0)
        assert self._gradients is not None  # else nobody calls this
        found = self._gradients(*self._batches(pairs), lse, **keywords)
        return tuple(self._rows(x) for x in found)

    def _batches(self, pairs: Any) -> list[Any]:
        return [self._batch(x, layout) for x, layout in pairs]

    def _batch(self, x: Any, layout: rs.PackedLayout) -> Any:
        lengths = set(layout.padded_lengths.tolist())
        if len(lengths) != 1 or layout.num_rows != int(layout.lengths.sum()):
            raise NotImplementedError(
                "a dense batch holds documents of one length, without padding"
            )
        dense = x.reshape(layout.num_sequences, *lengths, *x.shape[1:])
        return dense if self.qkv_format == "bshd" else np.ascontiguousarray(dense.swapaxes(0, 1))

    def _rows(self, x: Any) -> Any:
        x = x if self.qkv_format == "bshd" else x.swapaxes(0, 1)
        return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def _statistic_of_rows(lse: Any) -> Any:
    """[batch, heads, seqlen] as [heads, rows]."""
    lse = lse.swapaxes(0, 1)
    return lse.reshape(lse.shape[0], -1)


class Cupy:
    """A function of CuPy's arrays: it gets them in place of NumPy's, and its results come back.

    Args:
        fn: with the protocol of check_attention or, inside Dense, that of dense batches.
        backward: its gradients, of CuPy's arrays; None for fn's attribute `backward`, if any.
    """

    def __init__(self, fn: Callable[..., Any], backward: Callable[..., Any] | None = None) -> None:
        self.fn = fn
        self.name = getattr(fn, "__name__", type(fn).__name__)
        own = backward or getattr(fn, "backward", None)
        self.backward = None if own is None else _of_cupy(own)

    def __call__(self, *arrays: Any, **keywords: Any) -> Any:
        """NumPy arrays in and out."""
        return _of_cupy(self.fn)(*arrays, **keywords)


def _of_cupy(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arrays: Any, **keywords: Any) -> Any:
        try:
            cupy = importlib.import_module("cupy")
        except ImportError as error:
            raise NotImplementedError(f"cupy cannot be imported: {error}") from error
        given = (None if x is None else cupy.asarray(np.asarray(x)) for x in arrays)
        returned = fn(*given, **keywords)
        if isinstance(returned, tuple):
            return tuple(cupy.asnumpy(x) for x in returned)
        return cupy.asnumpy(returned)

    return run


def batches(dtype: str = "float32", **restrictions: Any) -> Any:
    """A strategy of cases that a dense batch holds: equal lengths, no padding, keys alike.

    Args:
        dtype: of the arrays.
        restrictions: for ringside.testing.strategies.cases.

    >>> batches(dtype="bfloat16").example()  # doctest: +SKIP
    Case(PackedLayout(cu_seqlens=[0, 3, 6]), dtype="bfloat16")
    """
    with extra("testing", "ringside.testing.dense.batches"):
        from hypothesis import strategies as st

        from ringside.testing import strategies

    sizes = st.tuples(st.integers(1, 4), st.integers(1, 24))
    alone = {"partitions": st.just("zigzag"), "comms": st.just("p2p"), "cp_sizes": st.just(1)}
    return strategies.cases(
        **{
            "layouts_q": sizes.map(lambda x: rs.PackedLayout.from_lengths([x[1]] * x[0])),
            "layouts_k": lambda _: st.none(),
            "dtypes": st.just(dtype),
            **alone,
            **restrictions,
        }
    )
