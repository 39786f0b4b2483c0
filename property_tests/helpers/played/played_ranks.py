"""GPUs of several processes that are played: what is Python about them runs as it is.

Links and programs are stand-ins. A program of a process that hosts all ranks computes on the CPU;
one of several processes writes the mark by which its calls are told apart. Links can be told to
stand still, to have met messages of another call, or to fail.
"""

from __future__ import annotations

import os
import types
from pathlib import Path

import numpy as np
import played_cuda
import ringside as rs
from ringside._arrays import cuda as _cuda
from ringside._arrays import layout
from ringside._ranks import nccl


class Library(played_cuda.Library):
    """As Torch and Cupy of ringside/_arrays/cuda.py: arrays of the class OnGpu."""

    def owns(self, x):
        return isinstance(x, OnGpu)

    def device(self, x):
        return x.place

    def dense(self, x):
        return x

    def empty(self, shape, like, dtype=None):
        return on_gpu(super().empty(shape, np.asarray(like), dtype), like.place)

    def vector(self, x, like, size):
        return on_gpu(super().vector(x, like, size), like.place)


class OnGpu(np.ndarray):
    """An array that lies on a GPU, for whoever asks."""

    place = 0
    __cuda_array_interface__ = None


def on_gpu(x, place=0):
    array = np.asarray(x).view(OnGpu)
    array.place = place
    return array


class Links:
    """As DeviceLinks; `made` are all of this process."""

    made = ()  # a list, once played
    wrong = ()  # of: standing, mismatch, map, meet, nccl, rehearse, interrupt
    took = types.MappingProxyType({"peer": 1.0, "nccl": 2.0})  # us of a program's messages

    def __init__(self, device, mine, processes, words_path):
        self.device, self.room, self.heard, self.is_aborted = device, 0, [], False
        self.calls, self.exchange, self.patience_s = 0, "", None
        self.made.append(self)
        Path(words_path).touch(exist_ok=False)

    def reserve(self, count):
        grown, self.room = count > self.room, max(count, self.room)
        return grown

    def unmap_workspaces(self):
        self.heard.append("unmap")

    def free_workspace(self):
        self.room = 0
        self.heard.append("free")

    def forget_workspace(self):
        self.heard.append("forget")

    def workspace_handle(self):
        return f"room {self.room}".encode()

    def meet_peers(self, paths):
        if "meet" in self.wrong:
            raise RuntimeError("nobody there")
        assert len(set(paths)) == len(paths)
        self.exchange = "peer"
        self.heard.append("peers")

    def map_workspace(self, process, handle):
        if "map" in self.wrong:
            raise RuntimeError("no such memory")
        self.heard.append((process, bytes(handle).decode()))

    def meet_nccl(self, library, unique):
        if "nccl" in self.wrong:
            raise RuntimeError("no socket")
        self.exchange = "nccl"
        self.heard.append((library, bytes(unique)))

    def abort(self):
        self.is_aborted = True

    def guard(self, patience_s):
        self.patience_s = patience_s

    def is_idle(self):
        if "interrupt" in self.wrong:
            raise KeyboardInterrupt
        return self.is_aborted or "standing" not in self.wrong

    def progress(self):
        ended = self.calls - ("standing" in self.wrong)
        return self.calls, ended, 3, "mismatch" in self.wrong, self.is_aborted


class Program:
    """As RankProgram."""

    family, workspace_bytes = "played", 1000
    made, rehearsed = 0, ()  # a list, once played

    def __init__(self, source, processes, mine, q, v, device, options, keep_kv, poison):
        type(self).made += 1
        of_lengths = isinstance(source, Capacity)
        rows = [
            source.rank_rows_q if of_lengths else len(source.row_indices(rank))
            for rank in processes[mine]
        ]
        self.kept_bytes = [100 * n if keep_kv else 0 for n in rows]
        self.bytes_sent = 1000 * rows[0]
        type(self).hosting = processes, mine
        self.source, self.ranks, self.is_alone = source, processes[mine], len(processes) == 1
        self.plan = None if of_lengths else source
        self.device, self.lengths, self.fits = device, [], True

    def set_lengths(self, q, k, stream):
        assert stream == 7
        self.lengths.append(np.asarray(q[0]).tolist())
        layouts = [rs.PackedLayout(*(np.asarray(x, np.int64) for x in side[:2])) for side in (q, k)]
        self.plan = self.source.plan(*layouts)

    def lengths_fitted(self, stream):
        assert stream == 7
        return self.fits

    def attach(self, links, kind):
        assert 0 <= kind < 2**31
        self.mark, self.links = kind, links

    def make_room_to_rehearse(self):
        if "rehearse " + self.links.exchange in self.links.wrong:
            raise RuntimeError("no room for it")
        self.has_room = True

    def rehearse(self, links, times):
        assert times >= 1 and self.links is links and self.has_room
        self.has_room = False
        self.rehearsed.append(links.exchange)
        return links.took[links.exchange]

    def whole(self, arrays, i, side="q"):
        """Of what each rank owns: there may be more room."""
        owned = [len(self.plan.row_indices(rank, side=side)) for rank in self.ranks]
        parts = [np.asarray(x[i])[:n] for x, n in zip(arrays, owned, strict=True)]
        return self.plan.unshard(parts, side=side)

    def forward(self, links, arrays, options, max_logit, stream):
        links.calls += 1
        assert self.links is links
        for x, size in zip(arrays, self.kept_bytes, strict=True):
            assert x[5].dtype == "uint8" and tuple(x[5].shape) == (size,)
            if size:
                x[5][...] = 7
        if not self.is_alone:
            for x in arrays:
                x[3][...] = self.mark
            return
        q, k, v = (self.whole(arrays, i, side) for i, side in enumerate("qkk"))
        out, lse, logits = self.plan._attention(q, k, v, options, "reference")
        for rank, x in zip(self.ranks, arrays, strict=True):
            own = self.plan.row_indices(rank)
            x[3][: len(own)], x[3][len(own) :] = out[own], 0
            x[4][:, : len(own)], x[4][:, len(own) :] = lse[:, own], -np.inf
        if max_logit is not None:
            max_logit[...] = logits

    def backward(self, links, arrays, options, deterministic, stream):
        links.calls += 1
        assert self.links is links
        for x, size in zip(arrays, self.kept_bytes, strict=True):
            assert tuple(x[9].shape) == (size,) and (size == 0 or np.all(x[9] == 7))
            for i in (6, 7, 8):
                x[i][...] = self.mark


class Capacity(types.SimpleNamespace):
    """As Capacity of ringside._cuda_core; enough for padding to 2 * cp_size."""

    @property
    def rank_rows_q(self):
        return self.max_rows_q // self.cp_size

    @property
    def rank_rows_k(self):
        return self.max_rows_k // self.cp_size

    def plan(self, layout_q, layout_k):
        names = ("mask", "cp_size", "partition", "comm", "num_heads", "num_kv_heads")
        return rs.plan(layout_q, layout_k, **{name: getattr(self, name) for name in names})


def play(identity="gpu", problem=""):
    """From here on this process has a GPU, and no NCCL unless it is named."""
    os.environ[nccl.VARIABLE] = "/nowhere/libnccl.so.2"
    library, Links.made, Program.rehearsed = Library(), [], []
    core = types.SimpleNamespace(
        Capacity=Capacity,
        thd=types.SimpleNamespace(Layout=lambda *parts: parts),
        CallOptions=lambda core, sink, slopes: core,
        DeviceLinks=Links,
        RankProgram=Program,
        device_identity=lambda device: f"{identity} {device}",
        nccl_id=lambda library: b"i" * 128,
    )
    _cuda.require_cuda = lambda *_: None
    _cuda.problem = lambda: problem
    _cuda.cuda_core = lambda: core
    _cuda.library_of = lambda x: library
    layout.on_device = library.owns
