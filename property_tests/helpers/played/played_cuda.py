"""A GPU that is played: NumPy arrays pass for a device's, the CPU executor for kernels.

What stands between a call and its kernels (formats, kinds of arrays, options, programs and their
keys, lengths) is Python and runs as it is.
"""

from __future__ import annotations

import types

import numpy as np
import ringside as rs
from ringside import _core
from ringside._arrays import cuda as _cuda
from ringside._arrays import layout
from ringside._arrays import programs as _programs

NUMBERS = ("softmax_scale", "softcap", "dropout_p", "dropout_seed")


class Library:
    """As Torch and Cupy of ringside/_arrays/cuda.py."""

    def owns(self, x):
        return isinstance(x, np.ndarray)

    def device(self, x):
        return 0

    def describe(self, x):
        return x

    def ready(self, x):
        return x

    def empty(self, shape, like, dtype=None):
        return np.full(shape, 255 if dtype == "uint8" else np.nan, dtype or like.dtype)

    def vector(self, x, like, size):
        x = np.array(x, np.float32)
        return np.full(size, x) if x.ndim == 0 else x

    def stream(self, device):
        return 7


class Program:
    """Runs on the CPU what it was uploaded for; `made` counts them."""

    made = 0
    forward_bytes = backward_bytes = 1

    def __init__(self, source, q, v, device, options, poison):
        type(self).made += 1
        self.source = source

    def set_lengths(self, of_q, of_k, stream):
        (q, q_padded, rows_q), (k, k_padded, rows_k) = of_q, of_k
        assert stream == 7
        assert (rows_q, rows_k) == (self.source.max_rows_q, self.source.max_rows_k)
        capacity = vars(self.source).copy()
        for name in ("max_sequences", "max_rows_q", "max_rows_k", "pad_to_multiple_of"):
            del capacity[name]
        del capacity["max_seqlen"]
        capacity["a2a_size"] = capacity["a2a_size"] or None
        self.source = rs.plan(
            rs.PackedLayout(q, q_padded), rs.PackedLayout(k, k_padded), **capacity
        )

    def core(self, options):
        """What C++ would make of the call's options, with what lies on the device."""
        (numbers, origin), sink, slopes = options
        return _core.OptionsArgument(
            **numbers, sink=sink, alibi_slopes=slopes, dropout_origin=origin
        )

    def forward(self, arrays, *, options, workspace, stream):
        assert stream == 7
        found = self.source._attention(*arrays[:3], self.core(options), "reference")
        for mine, theirs in zip(arrays[3:], found, strict=False):
            mine[...] = theirs

    def backward(self, arrays, *, dsink, options, deterministic, workspace, stream):
        assert isinstance(deterministic, bool)
        core = self.core(options)
        found = self.source._attention_backward(*arrays[:6], core, "reference")
        for mine, theirs in zip((*arrays[6:], dsink), found, strict=True):
            if mine is not None:
                mine[...] = theirs


def play(monkeypatch):
    """From here on backend="cuda" and DevicePlan run."""

    def to_core(options, origin=(0, 0), *, per_head=()):
        return {name: getattr(options, name) for name in NUMBERS}, origin

    core = types.SimpleNamespace(
        Program=Program,
        CallOptions=lambda core, sink, slopes: (core, sink, slopes),
        Capacity=types.SimpleNamespace,
        thd=types.SimpleNamespace(Layout=lambda *parts: parts),
    )
    library = Library()
    for name, played in {
        "require_cuda": lambda *_: None,
        "cuda_core": lambda: core,
        "library_of": lambda x: library,
        "pointer": lambda x: x,
    }.items():
        monkeypatch.setattr(_cuda, name, played)
    monkeypatch.setattr(_programs, "to_core", to_core)
    _programs._plain_options.cache_clear()
    monkeypatch.setattr(layout, "on_device", lambda x: True)
    return Program
