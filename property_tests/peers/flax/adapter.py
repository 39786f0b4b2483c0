import calls
from ringside.testing.peers import Feature, Supports


def of_packs(plan, softmax_scale):
    lengths = enumerate(plan.layout_q.lengths.tolist())
    documents = [document for document, length in lengths for _ in range(length)]
    return {"documents": documents, "causal": plan.mask.window_size[1] == 0}


def of_batch(plan, softmax_scale):
    causal = plan.mask.window_size[1] == 0
    return {"sequences": plan.layout_q.num_sequences, "causal": causal}


ENTRY = "flax.nnx.dot_product_attention"
ALONE = {"cp": (1,), "masks": ("full", "causal"), "longest": 12, "scales": (None,)}
ALONE["reasons"] = {"scales": "it takes no scale"}
MASK = "docstring of make_attention_mask: pairwise_fn"
FEATURES = (
    Feature("packs by segment ids", ENTRY, MASK, calls.packed, of_packs, Supports(**ALONE)),
    Feature(
        *("is_causal", ENTRY, "docstring: is_causal", calls.batch, of_batch),
        Supports(equal=True, **ALONE),
    ),
)
