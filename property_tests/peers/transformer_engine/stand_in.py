# What Transformer Engine and FlashAttention 3 have compiled, in plain torch on a CPU.
import contextlib
import enum
import os
import sys
import types
from importlib.machinery import ModuleSpec
from itertools import pairwise

import torch


def seen_by(n_q, n_k, window, bottom_right):
    """[n_q, n_k]; -1 in a window is unbounded; aligned at the first rows, or at the last."""
    left, right = window
    ahead = torch.arange(n_k)[None, :] - torch.arange(n_q)[:, None]
    ahead = ahead - (n_k - n_q if bottom_right else 0)
    seen = torch.ones(n_q, n_k, dtype=torch.bool)
    seen &= (ahead >= -left) if left >= 0 else True
    return seen & ((ahead <= right) if right >= 0 else True)


def slices(starts, sizes):
    return [slice(a, a + n) for a, n in zip(starts.tolist(), sizes.tolist(), strict=True)]


class Pack:
    """Documents somewhere in packed rows, and the mask of each of them."""

    def __init__(self, starts_q, lengths_q, starts_k, lengths_k, window, bottom_right, scale):
        self.scale, self.mask = scale, (window, bottom_right)
        sides = (slices(starts_q, lengths_q), slices(starts_k, lengths_k))
        self.documents = list(zip(*sides, strict=True))

    def scores(self, q, k, rows, keys):
        wide = k[keys].double().repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        scores = torch.einsum("qhd,khd->hqk", q[rows].double(), wide) * self.scale
        seen = seen_by(rows.stop - rows.start, keys.stop - keys.start, *self.mask)
        return scores.masked_fill(~seen, -torch.inf)

    def forward(self, q, k, v):
        """out [rows, heads, dim] and lse [rows, heads]; 0 where no document is."""
        out = torch.zeros(*q.shape[:2], v.shape[2], dtype=torch.float64)
        lse = torch.zeros(q.shape[:2], dtype=torch.float32)
        for rows, keys in self.documents:
            scores = self.scores(q, k, rows, keys)
            of_rows = torch.logsumexp(scores, -1)
            weights = torch.exp(scores - of_rows[..., None].clamp(min=-1e300))
            wide = v[keys].double().repeat_interleave(q.shape[1] // v.shape[1], dim=1)
            out[rows] = torch.einsum("hqk,khd->qhd", weights, wide)
            lse[rows] = of_rows.T.float()
        return out.to(q.dtype), lse

    def backward(self, dout, q, k, v, out, lse):
        """dq, dk, dv; 0 where no document is."""
        found = [torch.zeros(x.shape, dtype=torch.float64) for x in (q, k, v)]
        group = q.shape[1] // k.shape[1]
        for rows, keys in self.documents:
            wide_k, wide_v = (x[keys].double().repeat_interleave(group, dim=1) for x in (k, v))
            of_rows = lse[rows].double().T[..., None].clamp(min=-1e300)
            weights = torch.exp(self.scores(q, k, rows, keys) - of_rows)
            given = dout[rows].double()
            delta = (given * out[rows].double()).sum(-1).T[..., None]
            ds = weights * (torch.einsum("qhd,khd->hqk", given, wide_v) - delta) * self.scale
            dk = torch.einsum("hqk,qhd->khd", ds, q[rows].double())
            dv = torch.einsum("hqk,qhd->khd", weights, given)
            found[0][rows] = torch.einsum("hqk,khd->qhd", ds, wide_k)
            for to, x in zip(found[1:], (dk, dv), strict=True):
                to[keys] = x.unflatten(1, (-1, group)).sum(2)
        return [x.to(q.dtype) for x in found]


def lengths(cu_seqlens):
    return cu_seqlens[1:] - cu_seqlens[:-1]


# cuDNN's attention, through fused_attn_fwd and fused_attn_bwd.


def fused_pack(q, k, scale, layout, mask, window, bottom_right, cu, cu_padded):
    """The documents, and what brings rows out of the layout and back into it."""
    window = (window[0], 0) if "CAUSAL" in mask else tuple(window)
    bottom_right = bottom_right or "BOTTOM_RIGHT" in mask
    if "THD" in layout:
        spans = [(x[:-1], lengths(y)) for x, y in zip(cu_padded, cu, strict=True)]
        return Pack(*spans[0], *spans[1], window, bottom_right, scale), lambda x: x, lambda x, _: x
    first = layout.startswith("NVTE_SBHD")
    rows = (lambda x: x.transpose(0, 1).flatten(0, 1)) if first else (lambda x: x.flatten(0, 1))
    batch = q.shape[1] if first else q.shape[0]

    def back(x, like):
        x = x.unflatten(0, (batch, -1))
        return x.transpose(0, 1).contiguous() if first else x

    sizes = [len(rows(x)) // batch for x in (q, k)]
    spans = [(torch.arange(batch) * n, torch.full((batch,), n)) for n in sizes]
    if "PADDING" in mask:
        spans = [(starts, lengths(y)) for (starts, _), y in zip(spans, cu, strict=True)]
    return Pack(*spans[0], *spans[1], window, bottom_right, scale), rows, back


def fused_attn_fwd(
    max_q, max_k, training, scale, dropout, zero, layout, o_format, scale_format, bias, mask,
    softmax, window, bottom_right, cu_q, cu_k, q, k, v, dtype, cu_q_padded, cu_k_padded, *rest,
):  # fmt: skip
    """[out, stats, rng_state]; stats [rows, heads, 1] of packs, [batch, heads, rows, 1] else."""
    cu, cu_padded = (cu_q, cu_k), (cu_q_padded, cu_k_padded)
    pack, rows, back = fused_pack(q, k, scale, layout, mask, window, bottom_right, cu, cu_padded)
    out, lse = pack.forward(rows(q), rows(k), rows(v))
    if "THD" not in layout:
        lse = lse.unflatten(0, (len(pack.documents), -1)).transpose(1, 2)
    return [back(out, q), lse.contiguous()[..., None], torch.zeros(2, dtype=torch.int64)]


def fused_attn_bwd(
    max_q, max_k, scale, dropout, zero, layout, o_format, do_format, dqkv_layout, scale_format,
    do_scale_format, bias, mask, softmax, window, bottom_right, deterministic, cu_q, cu_k, q, k, v,
    out, dout, dtype, aux, cu_q_padded, cu_k_padded, *rest,
):  # fmt: skip
    """[dq, dk, dv, None, None]."""
    cu, cu_padded = (cu_q, cu_k), (cu_q_padded, cu_k_padded)
    pack, rows, back = fused_pack(q, k, scale, layout, mask, window, bottom_right, cu, cu_padded)
    lse = aux[0][..., 0]
    if "THD" not in layout:
        lse = lse.transpose(1, 2).flatten(0, 1)
    found = pack.backward(*(rows(x) for x in (dout, q, k, v, out)), lse)
    return [*(back(x, like) for x, like in zip(found, (q, k, v), strict=True)), None, None]


# FlashAttention 3: masks and windows are aligned at the last rows.


def flash_3_forward(q, k, v, *packed, softmax_scale, causal, window_size_left, window_size_right):
    cu_q, cu_k, _, used_q, used_k = packed[4:9]
    window = (window_size_left, 0 if causal else window_size_right)
    used_q, used_k = (lengths(x) if y is None else y for x, y in ((cu_q, used_q), (cu_k, used_k)))
    pack = Pack(cu_q[:-1], used_q, cu_k[:-1], used_k, window, True, softmax_scale)
    out, lse = pack.forward(q, k, v)
    return out, lse.T.contiguous(), None, None


def flash_3_backward(
    dout, q, k, v, out, lse, cu_q, cu_k, used_q, used_k, max_q, max_k, dq, dk, dv, *,
    softmax_scale, is_causal, window_size_left, window_size_right, deterministic,
):  # fmt: skip
    window = (window_size_left, 0 if is_causal else window_size_right)
    used_q, used_k = (lengths(x) if y is None else y for x, y in ((cu_q, used_q), (cu_k, used_k)))
    pack = Pack(cu_q[:-1], used_q, cu_k[:-1], used_k, window, True, softmax_scale)
    for to, x in zip((dq, dk, dv), pack.backward(dout, q, k, v, out, lse.T), strict=True):
        to.copy_(x)


# What moves and merges packed rows. A rank's documents are two halves each.


def halves(cu_seqlens):
    """The rows of all first halves, and of all second halves."""
    ends = [(a, (a + b) // 2, b) for a, b in pairwise(cu_seqlens.tolist())]
    first = [torch.arange(a, m) for a, m, _ in ends]
    second = [torch.arange(m, b) for _, m, b in ends]
    return torch.cat(first), torch.cat(second)


def thd_read_half_tensor(x, cu_seqlens, half):
    return x[halves(cu_seqlens)[half]]


def thd_read_second_half_lse(lse, cu_seqlens, packed, size):
    found = lse.new_zeros(lse.shape[0], size)
    rows = halves(cu_seqlens)[1]
    found[:, : len(rows)] = lse[:, rows]
    return found


def thd_second_half_lse_correction(lse, lse_step, cu_seqlens, packed):
    rows = halves(cu_seqlens)[1]
    lse[:, rows] = torch.logaddexp(lse[:, rows], lse_step[:, : len(rows)])


def thd_out_correction(out, out_step, lse_old, lse, lse_step, cu_seqlens, second_half, packed):
    rows = halves(cu_seqlens)[1] if second_half else torch.arange(len(out))
    old = torch.exp(lse_old[:, rows] - lse[:, rows]).T[..., None]
    new = torch.exp(lse_step[:, : len(rows)] - lse[:, rows]).T[..., None]
    out[rows] = (out[rows].float() * old + out_step[: len(rows)].float() * new).to(out.dtype)


def thd_grad_correction(grad, grad_step, cu_seqlens, first, second):
    whole = not {first, second} & {"none", "zero"}
    for what, rows in zip((first, second), halves(cu_seqlens), strict=True):
        given = grad_step[rows] if whole else grad_step
        if what == "zero":
            grad[rows] = 0
        elif what == "copy":
            grad[rows] = given[: len(rows)]
        elif what == "add":
            grad[rows] += given[: len(rows)]


def rank_order(cu_seqlens, cp_size):
    """Rows of the sequences as the ranks hold them, rank after rank."""
    found = []
    for rank in range(cp_size):
        for a, b in pairwise(cu_seqlens.tolist()):
            chunk = (b - a) // (2 * cp_size)
            for number in (rank, 2 * cp_size - 1 - rank):
                found.append(torch.arange(a + number * chunk, a + (number + 1) * chunk))
    return torch.cat(found)


def thd_sequence_order_to_cp_rank_order(x, cu_seqlens, cp_size, total):
    return x[rank_order(cu_seqlens, cp_size)]


def thd_cp_rank_order_to_sequence_order(x, cu_seqlens, cp_size, total):
    found = torch.empty_like(x)
    found[rank_order(cu_seqlens, cp_size)] = x
    return found


def thd_copy_valid_tokens_from_per_split_to_rank_local(to, part, cu_padded, cu_seqlens):
    for rows in slices(cu_padded[:-1], lengths(cu_seqlens)):
        to[rows] = part[rows]


# How Python finds all this.


class Constant(str):
    """It is only handed on: its name says what it is, and it has no number."""

    def __int__(self):
        return 0


class Constants(type):
    """Of a class that has all of them."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Constant(name)


class Extension(types.ModuleType):
    """transformer_engine_torch: what is here, classes that nobody calls for the rest."""

    NVTE_Fused_Attn_Backend = enum.IntEnum(
        "NVTE_Fused_Attn_Backend",
        {"NVTE_No_Backend": -1, "NVTE_F16_arbitrary_seqlen": 1, "NVTE_FP8": 2},
    )
    DType = enum.IntEnum(
        "DType",
        "kByte kInt32 kFloat32 kFloat16 kBFloat16 kFloat8E4M3 kFloat8E5M2 kFloat4E2M1",
        start=0,
    )

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith(("thd_", "fused_")):
            raise NotImplementedError(f"the stand-in has no {name}")
        setattr(self, name, Constants(name, (), {}))
        return getattr(self, name)


class Stream:
    """Nothing waits on a CPU."""

    wait_stream = wait_event = record_event = lambda self, other: None


def install():
    """Puts all this where Transformer Engine looks for it."""
    os.environ["NVTE_PROJECT_BUILDING"] = "1"  # else it looks for shared objects
    os.environ["NVTE_TORCH_COMPILE"] = "0"
    tex = Extension("transformer_engine_torch")
    tex.__spec__ = ModuleSpec("transformer_engine_torch", None)
    tex.get_cudnn_version = lambda: 92000
    for name, value in globals().items():
        if name.startswith(("thd_", "fused_attn")):
            setattr(tex, name, value)
    kernels = types.ModuleType("flash_attn_interface")
    kernels._flash_attn_forward, kernels._flash_attn_backward = flash_3_forward, flash_3_backward
    sys.modules.update({"transformer_engine_torch": tex, "flash_attn_interface": kernels})
    torch.cuda.current_stream, torch.cuda.Event = Stream, Stream
    torch.cuda.stream = contextlib.nullcontext
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.get_device_properties = lambda _: types.SimpleNamespace(major=9, minor=0)
