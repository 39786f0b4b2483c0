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


def of_hybrid(attn_type, ulysses):
    def arguments(plan, softmax_scale):
        given = {"ulysses": ulysses, "attn_type": attn_type}
        given |= {"sequences": plan.layout_q.num_sequences, "softmax_scale": softmax_scale}
        return given | {"causal": plan.mask.window_size[1] == 0}

    return arguments


def feature(name, kind, claims, masks=("full", "causal"), attn_type="fa", **changes):
    entry = f"yunchang.ring.{'zigzag_ring' if kind == 'zigzag' else kind}_flash_attn_func"
    partition, unit = ORDER[kind]
    settings = {"partition": partition, "unit": unit, "equal": True, "dtype": "bfloat16"}
    supports = Supports(**settings | {"cp": (2, 3), "masks": masks, "longest": 6} | changes)
    return Feature(name, entry, claims, calls.batch, of_batch(kind, attn_type), supports, demands=ROUNDED)


PACKS = Supports(masks=("full", "causal"), unit="cp", dtype="bfloat16", cp=(2, 3))
HYBRID = Supports(masks=("full", "causal"), unit="cp", equal=True, dtype="bfloat16", heads=((2, 2), (4, 2)), longest=6)
LAYER = "yunchang.LongContextAttention"
FEATURES = (
    feature("ring, flash kernel", "ring", "README: ring-attention"),
    feature("zigzag, flash kernel", "zigzag", "README: zigzag", ("causal",)),
    feature("stripe, flash kernel", "stripe", "README: stripe", ("causal",)),
    feature("ring, window_size", "ring", "its signature: window_size", ("window",)),
    feature("ring, kernel TORCH_MATH", "ring", "its argument attn_type: AttnType.TORCH_MATH", attn_type="torch_math", heads=((1, 1), (2, 2))),
    Feature("Ulysses of 2, flash kernel", LAYER, "README: LongContextAttention", calls.hybrid, of_hybrid("fa", 2), HYBRID, demands=ROUNDED),
    Feature("Ulysses of 2, kernel TORCH_MATH", LAYER, "README: attn_type", calls.hybrid, of_hybrid("torch_math", 2), HYBRID, demands=ROUNDED),
    Feature("ring varlen, flash kernel", "yunchang.ring.ring_flash_attn_varlen_func", "its signature: cu_seqlens", calls.packs, of_packs, PACKS, demands=ROUNDED),
)
