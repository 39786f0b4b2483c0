import calls
from ringside.testing import Demands
from ringside.testing.peers import Feature, Supports

ROUNDED = Demands(partial="bfloat16", accumulate="float32")
ORDER = {"ring": ("contiguous", "cp"), "zigzag": ("zigzag", "2cp"), "stripe": ("striped", "2cp")}


def of_batch(kind, attn_type):
    def arguments(plan, softmax_scale):
        left, right = plan.mask.window_size
        given = {"kind": kind, "attn_type": attn_type, "sequences": plan.layout_q.num_sequences}
        window = (left, right) if left >= 0 else (-1, -1)
        return given | {"window": window, "causal": right == 0, "softmax_scale": softmax_scale}

    return arguments


def of_packs(plan, softmax_scale):
    cu_seqlens = (plan.layout_q.cu_seqlens_padded // plan.cp_size).tolist()
    longest = int(plan.layout_q.lengths.max()) // plan.cp_size
    given = {"cu_seqlens": cu_seqlens, "longest": longest, "softmax_scale": softmax_scale}
    return given | {"causal": plan.mask.window_size[1] == 0}


def feature(name, kind, claims, masks=("full", "causal"), attn_type="fa", **changes):
    entry = f"yunchang.ring.{'zigzag_ring' if kind == 'zigzag' else kind}_flash_attn_func"
    partition, unit = ORDER[kind]
    settings = {"partition": partition, "unit": unit, "equal": True, "dtype": "bfloat16"}
    gradients = changes.pop("gradients", True)
    supports = Supports(**settings | {"cp": (2, 3), "masks": masks, "longest": 6} | changes)
    call = (calls.batch, of_batch(kind, attn_type), supports)
    return Feature(name, entry, claims, *call, gradients=gradients, demands=ROUNDED)


BOTH = {"masks": ("full", "causal"), "unit": "cp", "dtype": "bfloat16"}
VARLEN = ("ring varlen, flash kernel", "yunchang.ring.ring_flash_attn_varlen_func")
PACKS = (calls.packs, of_packs, Supports(cp=(2, 3), **BOTH))
MATH = {"attn_type": "torch_math", "heads": ((1, 1), (2, 2))}
TORCH = "its argument attn_type: TORCH_MATH"
FEATURES = (
    feature("ring, flash kernel", "ring", "README: ring-attention"),
    feature("zigzag, flash kernel", "zigzag", "README: zigzag", ("causal",)),
    feature("stripe, flash kernel", "stripe", "README: stripe", ("causal",)),
    feature("ring, window_size", "ring", "its signature: window_size", ("window",)),
    feature("ring, kernel TORCH_MATH", "ring", TORCH, **MATH),
    feature("ring, kernel TORCH_MATH, forward", "ring", TORCH, gradients=False, **MATH),
    Feature(
        *VARLEN, "README: Yunchang supports flash_attn 2.6.x and 2.7.x", *PACKS, demands=ROUNDED
    ),
)
