"""What a process of a group does on its GPU with lengths that only the device knows.

Imported by tests and by the processes they start; torch is imported where it is needed.
"""

import numpy as np
import ringside as rs
from group_cuda import ARRAYS, listed, on_gpu, on_host, one_or_list, rounded

NEAR = {"float32": 1.6e-5, "float16": 1.6e-2, "bfloat16": 0.128}  # of the largest number


def offsets_of(layout, sequences):
    """cu_seqlens and cu_seqlens_padded, empty sequences added up to a number of them."""
    more = sequences - layout.num_sequences
    both = (layout.cu_seqlens, layout.cu_seqlens_padded)
    return [np.concatenate([x, np.full(more, x[-1])]) for x in both]


def capacity_of(case, room=9):
    """Room for a case, and for more."""
    return {
        "max_sequences": case.layout_q.num_sequences + 1 + room,
        "num_rows_q": case.layout_q.num_rows + room,
        "num_rows_k": case.keys.num_rows + room,
    }


def device_plan(case, capacity):
    names = ("mask", "cp_size", "partition", "comm", "a2a_size", "num_heads", "num_kv_heads")
    return rs.DevicePlan(**{name: getattr(case, name) for name in names}, **capacity)


class Room:
    """A DevicePlan over a group, and arrays of its capacity: lengths, and rows of hosted ranks.

    Behind the sequences of a rank lies NaN, as it does in padding. `set` writes other lengths and
    rows into the same arrays.
    """

    def __init__(self, case, group, dtype, device, capacity=None):
        import torch
        from ringside._ranks import calls

        calls.POISON.on = True
        self.group, self.dtype, self.device = group, dtype, device
        self.capacity = capacity or capacity_of(case)
        self.plan, self.alone = (device_plan(case, self.capacity) for _ in range(2))
        sizes = [self.capacity["max_sequences"] + 1] * 4
        types = (torch.int32, torch.int64) * 2  # valid, padded, and of k
        self.cu = [
            torch.zeros(n, dtype=t, device=f"cuda:{device}")
            for n, t in zip(sizes, types, strict=True)
        ]
        self.q = self.k = self.v = self.dout = None
        self.write(case)

    def write(self, case):
        """Lengths and rows of a case into the arrays, which stay where they are."""
        sequences = self.capacity["max_sequences"]
        offsets = [*offsets_of(case.layout_q, sequences), *offsets_of(case.keys, sequences)]
        for mine, x in zip(self.cu, offsets, strict=True):
            mine.copy_(on_gpu(x, "int64", self.device))
        self.case, known = case, case.plan()
        q, k, v, dout = rounded(case, self.dtype)
        for name, x, side in (("q", q, "q"), ("k", k, "k"), ("v", v, "k"), ("dout", dout, "q")):
            parts = [self._own(known, x, rank, side) for rank in self.group.ranks]
            if getattr(self, name) is None:
                setattr(self, name, one_or_list(parts))
            else:
                for mine, part in zip(listed(getattr(self, name), self.group), parts, strict=True):
                    mine.copy_(part)

    def _own(self, known, x, rank, side):
        part = known.shard(x, rank, side=side)
        room = np.full((self.plan.rank_rows(side=side), *x.shape[1:]), np.nan)
        room[: len(part)] = part
        return on_gpu(room, self.dtype, self.device)

    def set_lengths(self):
        self.plan.set_lengths(*self.cu)

    def forward(self, exchange="peer", **more):
        more = {**self.case.options, **more}
        return self.plan.attention_rank(
            self.q, self.k, self.v, group=self.group, exchange=exchange, **more
        )

    def backward(self, out, lse, exchange="peer", **more):
        arrays = (self.dout, self.q, self.k, self.v, out, lse)
        more = {"deterministic": True, **self.case.options, **more}
        return self.plan.attention_backward_rank(
            *arrays, group=self.group, exchange=exchange, **more
        )

    def on_one_gpu(self, plan, logits=True, **more):
        """Arrays of all rows, by a DevicePlan in one process or by a Plan; and max_logit.

        Kernels that give max_logit are others, which round otherwise.
        """
        import torch

        arrays = []
        for x, rows in zip(rounded(self.case, self.dtype), ("q", "k", "k", "q"), strict=True):
            room = self.capacity[f"num_rows_{rows}"] if isinstance(plan, rs.DevicePlan) else len(x)
            whole = np.full((room, *x.shape[1:]), np.nan)
            whole[: len(x)] = x
            arrays.append(on_gpu(whole, self.dtype, self.device))
        q, k, v, dout = arrays
        more = {**self.case.options, **more}
        out, lse, *logits = plan.attention(q, k, v, return_max_logit=logits, **more)
        gradients = plan.attention_backward(dout, q, k, v, out, lse, deterministic=True, **more)
        torch.cuda.synchronize()
        return dict(zip(ARRAYS, (out, lse, *gradients), strict=False)), *logits

    def alone_found(self, **more):
        """What a DevicePlan of the same capacity and lengths computes in one process."""
        self.alone.set_lengths(*self.cu)
        return self.on_one_gpu(self.alone, **more)

    def wrong(self, found, want):
        """Names of arrays whose rows are not these, bit for bit, or not of nobody behind them."""
        import torch

        known, text = self.case.plan(), []
        for name, parts in zip(ARRAYS[:5], found, strict=False):
            side = "k" if name in ("dk", "dv") else "q"
            for rank, got in zip(self.group.ranks, listed(parts, self.group), strict=True):
                rows = torch.from_numpy(known.row_indices(rank, side=side)).to(got.device)
                got, whole = (x.movedim(1, 0) if name == "lse" else x for x in (got, want[name]))
                off = int((got[: len(rows)] != whole[rows]).sum())
                nobody = -np.inf if name == "lse" else 0
                behind = int((got[len(rows) :] != nobody).sum())
                if off or behind:
                    text.append(f"{name} of rank {rank}: {off} differ, {behind} behind")
        return text

    def far(self, found):
        """Likewise, of those that are not near what the plan finds that knows the lengths."""
        import torch

        want, _ = self.on_one_gpu(self.case.plan(), backend="cuda")
        known, text = self.case.plan(), []
        for name, parts in zip(ARRAYS[:5], found, strict=False):
            side = "k" if name in ("dk", "dv") else "q"
            size = max(1.0, float(want[name][torch.isfinite(want[name])].abs().max()))
            for rank, got in zip(self.group.ranks, listed(parts, self.group), strict=True):
                rows = torch.from_numpy(known.row_indices(rank, side=side)).to(got.device)
                got, whole = (x.movedim(1, 0) if name == "lse" else x for x in (got, want[name]))
                got, whole = got[: len(rows)], whole[rows]
                near = torch.isclose(got, whole, rtol=0, atol=NEAR[self.dtype] * size)
                if not bool(near.all()):
                    text.append(f"{name} of rank {rank}: {int((~near).sum())} are far")
        return text

    def passes(self, exchange="peer", **more):
        """(out, lse, dq, dk, dv and dsink), max_logit; between canaries."""
        from cuda_cases import canaries

        with canaries():
            out, lse, logits = self.forward(exchange, return_max_logit=True, **more)
            gradients = self.backward(out, lse, exchange, **more)
            self.group.synchronize()
        return (out, lse, *gradients), logits


def lengths_difference(room, exchange="peer", near=True):
    """What of both passes is not as in one process, in words; and dsink of the ranks and of all."""
    room.set_lengths()
    found, logits = room.passes(exchange)
    room.plan.check()
    want, want_logits = room.alone_found()
    text = room.wrong(found, want)
    if not np.array_equal(on_host(logits), on_host(want_logits)):
        text.append("max_logit")
    if near:
        text += room.far(found)
    if room.case.sink is None:
        return text, None, None
    parts = [on_host(x) for x in listed(found[5], room.group)]
    return text, np.sum(parts, axis=0), on_host(want["dsink"])


def is_empty(room, found, logits):
    """Whether results are those of an empty batch, everywhere."""
    wrong = []
    for name, parts in zip(ARRAYS, found, strict=False):
        nobody = -np.inf if name == "lse" else 0
        for x in listed(parts, room.group):
            if not bool((x == nobody).all()):
                wrong.append(name)
    return wrong + ([] if np.all(np.isneginf(on_host(logits))) else ["max_logit"])
