import calls
from ringside.testing import Demands
from ringside.testing.peers import Feature, Supports

CP = "torch.distributed.tensor.experimental._context_parallel._attention._templated_ring_attention"
SDPA, VARLEN = "torch.nn.functional.scaled_dot_product_attention", "torch.nn.attention.varlen"
SIXTEEN = {"dtype": "bfloat16", "head_dim": 64}
EQUAL = ((1, 1), (2, 2), (4, 4))
NO_GROUPS = {"heads": "its shapes: q, k and v have H heads"}
PACKS = {"cp": (1,), "heads": EQUAL, "longest": 300, "reasons": NO_GROUPS, **SIXTEEN}
BATCH = {"cp": (1,), "masks": ("full", "causal"), "equal": True, "longest": 300, **SIXTEEN}
NO_ONE = {"reasons": {"unit": "its warning: cuDNN does not support a sequence length of 1"}}
# A step's results are in 16 bits, and so are each query head's dk and dv before they are summed.
ROUNDED = Demands(partial="bfloat16", accumulate="float32")
RINGS = {"cp": (2, 3, 4), "heads": EQUAL, "equal": True, "reasons": {"heads": "its kernel"}}


def of_packs(plan, softmax_scale):
    lengths = plan.layout_q.lengths
    given = {"cu_seqlens": plan.layout_q.cu_seqlens.tolist(), "longest": int(lengths.max())}
    return given | {"window": plan.mask.window_size, "scale": softmax_scale}


def of_batch(**rest):
    def arguments(plan, softmax_scale):
        given = {"sequences": plan.layout_q.num_sequences, "scale": softmax_scale}
        return given | {"is_causal": plan.mask.window_size[1] == 0} | rest

    return arguments


def packs(name, masks, claims):
    entry = f"{VARLEN}.varlen_attn"
    return Feature(name, entry, claims, calls.packs, of_packs, Supports(masks=masks, **PACKS))


def sdpa(kernel, claims, **supports):
    name, given = f"is_causal, {kernel} kernel", of_batch(kernel=kernel)
    supports = Supports(**BATCH | supports)
    return Feature(name, SDPA, claims, calls.sdpa, given, supports, demands=ROUNDED)


def ring(name, claims, balance, rotate, **supports):
    given, supports = (
        of_batch(balance=balance, rotate=rotate),
        Supports(**RINGS | SIXTEEN | supports),
    )
    return Feature(name, CP, claims, calls.ring, given, supports, demands=ROUNDED)


ROWS = {"masks": ("full", "causal"), "unit": "cp", "longest": 100}
BALANCED = {"masks": ("causal",), "unit": "2cp", "longest": 50, "partition": "zigzag"}
FEATURES = (
    packs("varlen_attn", ("full", "causal"), "docstring: (-1, -1) full, (-1, 0) causal"),
    packs("varlen_attn, window", ("window",), "docstring: (W, 0) causal with a window of size W"),
    packs("varlen_attn, band", ("band",), "docstring: window_size as (left, right)"),
    sdpa("flash", "docstring: FlashAttention-2; enable_gqa"),
    sdpa("cudnn", "docstring of SDPBackend: the cuDNN backend", unit="2cp", longest=150, **NO_ONE),
    sdpa("efficient", "docstring: Memory-Efficient Attention", heads=EQUAL),
    ring("ring, gathered", "docstring: a generalized ring attention", False, "allgather", **ROWS),
    ring("ring, rotated", "set_rotate_method: alltoall", False, "alltoall", **ROWS),
    ring(
        "ring, load balanced", "its note: Round-robin Load Balance", True, "allgather", **BALANCED
    ),
)
