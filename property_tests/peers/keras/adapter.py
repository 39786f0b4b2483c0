import calls
from ringside.testing.adapters import pack_mask
from ringside.testing.peers import Feature, Supports


def of_batch(plan, softmax_scale):
    given = {"sequences": plan.layout_q.num_sequences, "scale": softmax_scale}
    return given | {"causal": plan.mask.window_size[1] == 0}


def of_mask(plan, softmax_scale):
    seen = pack_mask(plan.layout_q, plan.layout_k, plan.mask).astype(int).tolist()
    return {"seen": seen, "scale": softmax_scale}


ENTRY = "keras.ops.dot_product_attention"
BATCH = Supports(cp=(1,), masks=("full", "causal"), equal=True, longest=24)
PACKS = Supports(cp=(1,), masks=("full", "causal", "window", "band", "chunked"), longest=24)
FEATURES = (
    Feature("is_causal, torch", ENTRY, "docstring: is_causal", calls.batch, of_batch, BATCH),
    Feature("mask of packs, torch", ENTRY, "docstring: mask", calls.masked, of_mask, PACKS),
)
