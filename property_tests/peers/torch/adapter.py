import calls
from ringside.testing.adapters import pack_mask
from ringside.testing.peers import Feature, Supports

FAR = 10**6


def of_ring(balance, rotate):
    def arguments(plan, softmax_scale):
        causal = plan.mask.window_size[1] == 0
        given = {"sequences": plan.layout_q.num_sequences, "balance": balance, "rotate": rotate}
        return given | {"is_causal": causal, "scale": softmax_scale}

    return arguments


def of_sdpa(plan, softmax_scale):
    causal = plan.mask.window_size[1] == 0
    sequences = plan.layout_q.num_sequences
    return {"sequences": sequences, "is_causal": causal, "scale": softmax_scale}


def of_mask(plan, softmax_scale):
    seen = pack_mask(plan.layout_q, plan.layout_k, plan.mask).astype(int).tolist()
    return {"seen": seen, "scale": softmax_scale}


def of_flex(plan, softmax_scale):
    lengths = enumerate(plan.layout_q.lengths.tolist())
    left, right = (FAR if bound < 0 else bound for bound in plan.mask.window_size)
    documents = [document for document, length in lengths for _ in range(length)]
    return {"documents": documents, "left": left, "right": right, "scale": softmax_scale}


CP = "torch.distributed.tensor.experimental._context_parallel._attention._templated_ring_attention"
SDPA, FLEX = "torch.nn.functional.scaled_dot_product_attention", "torch.nn.attention.flex_attention"
RING = {"cp": (2, 3), "heads": ((1, 1), (2, 2)), "equal": True, "reasons": {"heads": "its kernel"}}
PLAIN = Supports(masks=("full", "causal"), unit="cp", **RING)
BALANCED = Supports(masks=("causal",), unit="2cp", partition="zigzag", longest=6, **RING)
ALONE = {"cp": (1,), "longest": 24}
CAUSAL = Supports(masks=("full", "causal"), equal=True, **ALONE)
LOW = Supports(masks=("causal",), equal=True, scales=(0.0, -0.5), **ALONE)
ALL = Supports(masks=("full", "causal", "window", "band", "chunked"), **ALONE)
PACKS = Supports(masks=("full", "causal", "window", "band"), **ALONE)
ONE = "docstring: a generalized ring attention implementation"


def ring(name, claims, balance, rotate, supports):
    return Feature(name, CP, claims, calls.ring, of_ring(balance, rotate), supports)


MASKED = ("docstring: attn_mask", calls.masked, of_mask)
LOW_SCALE = ("docstring: scale (optional float)", calls.sdpa, of_sdpa)
BLOCKS = ("docstring: block_mask", calls.flex, of_flex)
FEATURES = (
    ring("ring, gathered", ONE, False, "allgather", PLAIN),
    ring("ring, rotated", "set_rotate_method: alltoall", False, "alltoall", PLAIN),
    ring("ring, load balanced", "its note: Round-robin Load Balance", True, "allgather", BALANCED),
    Feature("is_causal", SDPA, "docstring: is_causal, scale", calls.sdpa, of_sdpa, CAUSAL),
    Feature("is_causal, scale at most 0", SDPA, *LOW_SCALE, LOW),
    Feature("attn_mask of packs", SDPA, *MASKED, ALL),
    Feature("FlexAttention of packs", FLEX, *BLOCKS, PACKS, gradients=False),
)
