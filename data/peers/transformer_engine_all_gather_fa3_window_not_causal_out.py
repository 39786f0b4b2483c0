"""transformer_engine 2.20.2: transformer_engine.pytorch.attention.dot_product_attention.context_parallel.attn_forward_func_with_cp, all-gather, FA3, window, not causal.

pip install transformer_engine==2.20.2 torch==2.15.0 einops==0.8.2 onnxscript==0.7.2 packaging==26.3 pydantic==2.14.3
Needs numpy, torch (CPU is enough), and nothing else.
"""

import torch

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


install()

import importlib
import sys
import types
from importlib.util import find_spec

import flash_attn_interface
import torch

PLACE = "transformer_engine.pytorch.attention.dot_product_attention"


def module():
    """Context parallelism, without the package's face, which would look for a GPU and a library."""
    where, parts = find_spec("transformer_engine").submodule_search_locations[0], PLACE.split(".")
    for count in range(1, len(parts) + 1):
        package = types.ModuleType(".".join(parts[:count]))
        package.__path__ = ["/".join([where, *parts[1:count]])]
        sys.modules[package.__name__] = package
    kernels = types.ModuleType(f"{PLACE}.backends")  # it would look for a wheel of flash_attn_3
    kernels._flash_attn_fwd_v3 = flash_attn_interface._flash_attn_forward
    kernels._flash_attn_bwd_v3 = flash_attn_interface._flash_attn_backward
    sys.modules[kernels.__name__] = kernels
    importlib.import_module("transformer_engine.pytorch.module")  # modules import each other
    return importlib.import_module(f"{PLACE}.context_parallel")


context_parallel = module()
communicate = context_parallel.flash_attn_p2p_communicate


class Once:
    """NCCL's requests can be waited for again, as is done; gloo's would wait for one more."""

    def __init__(self, request):
        self.request = request

    def wait(self):
        if self.request is not None:
            self.request.wait()
        self.request = None


context_parallel.flash_attn_p2p_communicate = lambda *given: [Once(x) for x in communicate(*given)]


def call(q, k, v, *, cu_seqlens, cu_seqlens_padded, longest, kernel, balance, window, **settings):
    lengths, padded = (torch.tensor(x, dtype=torch.int32) for x in (cu_seqlens, cu_seqlens_padded))
    return context_parallel.attn_forward_func_with_cp(
        *(True, q, k, v, lengths, lengths, longest, longest, padded, padded, 0.0),
        cp_group=torch.distributed.group.WORLD,
        cp_global_ranks=list(range(torch.distributed.get_world_size())),
        cp_stream=torch.cuda.current_stream(),
        use_fused_attention=kernel == "cuDNN",
        use_flash_attn_3=kernel == "FlashAttention 3",
        pad_between_seqs=cu_seqlens != cu_seqlens_padded,
        load_balancing_strategy=context_parallel.CPLoadBalancingStrategy[balance],
        window_size=tuple(window),
        **settings,
    )


def packs(q, k, v, **settings):
    return call(q, k, v, qkv_format="thd", **settings).reshape(q.shape)


def batch(q, k, v, *, sequences, qkv_format, **settings):
    """[rows, heads, dim], sequence after sequence, as bshd or sbhd and back."""
    order = (1, 0, 2, 3) if qkv_format == "sbhd" else (0, 1, 2, 3)
    given = (x.reshape(sequences, -1, *x.shape[1:]).permute(order).contiguous() for x in (q, k, v))
    q, k, v = given
    out = call(q, k, v, qkv_format=qkv_format, **settings).reshape(q.shape)
    return out.permute(order).flatten(0, 1)

nan = float('nan')
# The problem: all rows, each rank's rows, who sees whom.
ROWS = [[0, 3, 4, 7], [1, 2, 5, 6]]
SEEN = [[0], [], [], [], [4, 5], [4, 5, 6], [5, 6], []]
SCALE = 0.3535533905932738
ARGUMENTS = {'cp_comm_type': 'all_gather', 'kernel': 'FlashAttention 3', 'balance': 'DUAL_CHUNK_SWAP', 'attn_mask_type': 'padding', 'window': (1, 1), 'softmax_scale': None, 'cu_seqlens': [0, 1, 4], 'cu_seqlens_padded': [0, 4, 8], 'longest': 4}
GRADIENTS = True
DTYPE = torch.float32
CALL = packs
PROBLEM = [([0.1257302165031433, -0.13210485875606537, 0.6404226422309875, 0.10490011423826218, -0.5356693863868713, 0.3615950644016266, 1.3040000200271606, 0.9470809698104858, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, -0.7037352323532104, -1.2654215097427368, -0.6232744455337524, 0.04132597893476486, -2.32503080368042, -0.218791663646698, -1.2459110021591187, -0.7322673797607422, -0.5442590117454529, -0.3163001537322998, 0.4116305410861969, 1.042513370513916, -0.12853465974330902, 1.3664634227752686, -0.6651946902275085, 0.35151007771492004, 0.9034701585769653, 0.0940122976899147, -0.7434992790222168, -0.9217253923416138, -0.4577258229255676, 0.22019512951374054, -1.0096181631088257, -0.20917557179927826, nan, nan, nan, nan, nan, nan, nan, nan], (8, 1, 8)), ([-0.15922501683235168, 0.5408455729484558, 0.21465912461280823, 0.35537269711494446, -0.6538286209106445, -0.12961363792419434, 0.7839754819869995, 1.4934310913085938, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, -1.2590655088424683, 1.5139237642288208, 1.3458753824234009, 0.7813113927841187, 0.2644556164741516, -0.31392282247543335, 1.4580206871032715, 1.9602583646774292, 1.8016349077224731, 1.3151037693023682, 0.3573804199695587, -1.2083185911178589, -0.004454133100807667, 0.6564749479293823, -1.2883614301681519, 0.39512205123901367, 0.42986369132995605, 0.6960427165031433, -1.1841179132461548, -0.661702573299408, -0.4364352524280548, -1.169801950454712, 1.7393678426742554, -0.49591073393821716, nan, nan, nan, nan, nan, nan, nan, nan], (8, 1, 8)), ([0.3289696276187897, -0.2585725486278534, 1.5834728479385376, 1.3203610181808472, 0.6333526372909546, -2.20350980758667, 0.052028972655534744, 0.6836861968040466, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, 1.0039615631103516, -0.6179070472717285, 1.8220113515853882, -1.3204309940338135, -0.6615280508995056, 0.9350500106811523, 0.04905461519956589, 2.002392530441284, 0.1885191947221756, -0.633194088935852, -0.3775635063648224, -1.0911461114883423, -1.2776801586151123, 0.6304115056991577, 0.5811657905578613, 1.2945587635040283, -0.754605770111084, 1.6891074180603027, -0.2873876988887787, 1.5744082927703857, -0.43278583884239197, -0.7354832887649536, 0.249785378575325, 1.0314531326293945, nan, nan, nan, nan, nan, nan, nan, nan], (8, 1, 8)), ([0.16100957989692688, -0.5855288505554199, -1.3412196636199951, -1.4015202522277832, 0.5026828646659851, 0.9897130131721497, -0.16429458558559418, -1.0743649005889893, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, 0.8730421662330627, -1.2803939580917358, -0.7130680680274963, 0.6210178732872009, -2.250141143798828, 0.38636958599090576, -0.5816408395767212, 0.10927969962358475, -0.0757015272974968, 0.20211438834667206, 0.6941719651222229, -0.7583697438240051, 1.420982003211975, 0.7260937690734863, 0.8437326550483704, 1.16486394405365, 0.7875882387161255, 0.8440786600112915, 0.07559361308813095, -1.4267739057540894, -0.1350450962781906, -0.7695146203041077, -1.4227417707443237, 0.25845280289649963, nan, nan, nan, nan, nan, nan, nan, nan], (8, 1, 8))]

# What it should be: dense, in float64.
import numpy as np


def truth():
    """out, dq, dk, dv of all rows: row i sees key j where SEEN[i] has j."""
    q, k, v, dout = (np.nan_to_num(np.array(x)).reshape(x_shape) for x, x_shape in PROBLEM)
    group = q.shape[1] // k.shape[1]
    wide_k, wide_v = (np.repeat(x, group, axis=1) for x in (k, v))
    seen = np.zeros((len(q), len(k)), bool)
    for row, keys in enumerate(SEEN):
        seen[row, keys] = True
    scores = np.where(seen, np.einsum("qhd,khd->hqk", q, wide_k) * SCALE, -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    out = np.einsum("hqk,khd->qhd", weights, wide_v)
    inner = np.einsum("qhd,khd->hqk", dout, wide_v) - (dout * out).sum(-1).T[..., None]
    ds = weights * inner * SCALE
    dk = np.einsum("hqk,qhd->khd", ds, q).reshape(len(k), -1, group, k.shape[2]).sum(2)
    dv = np.einsum("hqk,qhd->khd", weights, dout).reshape(len(v), -1, group, v.shape[2]).sum(2)
    return {"out": out, "dq": np.einsum("hqk,khd->qhd", ds, wide_k), "dk": dk, "dv": dv}


def compare(got):
    """Prints the largest difference of each result, and the row that it is in."""
    for name, want in truth().items():
        if name in got:
            error = np.abs(np.asarray(got[name], np.float64) - want)
            error = np.where(np.isnan(error), np.inf, error)
            row, head, _ = np.unravel_index(error.argmax(), error.shape)
            print(f"{name}: largest error {error.max():.3g}, in row {row}, head {head}")
            print(f"  got      {np.asarray(got[name], np.float64)[row, head].round(4).tolist()}")
            print(f"  expected {want[row, head].round(4).tolist()}")

# The package, one process a rank.
import os
import tempfile

import torch


def rank_main(rank, size, store, results):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=size
    )
    rows = ROWS[rank]
    whole = (torch.tensor(x, dtype=DTYPE).reshape(x_shape) for x, x_shape in PROBLEM)
    q, k, v, dout = (x[rows].requires_grad_() for x in whole)
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    returned = CALL(q, k, v, **ARGUMENTS)
    out = returned[0] if isinstance(returned, tuple) else returned
    found = {"out": out.detach().float().numpy()}
    if GRADIENTS:
        gradients = torch.autograd.grad(out, (q, k, v), dout.detach(), allow_unused=True)
        for name, x, like in zip(("dq", "dk", "dv"), gradients, (q, k, v)):
            x = torch.zeros_like(like) if x is None else x
            found[name] = x.float().numpy()
    torch.save(found, f"{results}/{rank}")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        arguments = (len(ROWS), store, folder)
        torch.multiprocessing.spawn(rank_main, arguments, nprocs=len(ROWS))
        parts = [torch.load(f"{folder}/{r}", weights_only=False) for r in range(len(ROWS))]
    got = {}
    for name in parts[0]:
        got[name] = np.zeros((sum(map(len, ROWS)), *parts[0][name].shape[1:]))
        for rows, part in zip(ROWS, parts):
            got[name][rows] = part[name]
    compare(got)


if __name__ == "__main__":
    main()
