import calls
from ringside.testing import Demands
from ringside.testing.peers import Feature, Supports

OWN = "it maps query heads to kv heads by h % kv_heads, a convention of its own"
NONE = "it takes no scale"
BATCH = {
    "cp": (2, 3),
    "heads": ((1, 1), (2, 2)),
    "equal": True,
    "longest": 6,
    "scales": (None,),
    "reasons": {"heads": OWN, "scales": NONE},
}


def of_ring(striped):
    def arguments(plan, softmax_scale):
        length = int(plan.layout_q.lengths[0]) // plan.cp_size
        given = {"sequences": plan.layout_q.num_sequences, "striped": striped, "bucket": length}
        return given | {"causal": plan.mask.window_size[1] == 0}

    return arguments


def of_zigzag(plan, softmax_scale):
    length = int(plan.layout_q.lengths[0])
    return {"sequences": plan.layout_q.num_sequences, "chunk": length // (2 * plan.cp_size)}


RING, ZIGZAG = "ring_attention_pytorch.ring_flash_attn", "ring_attention_pytorch.zig_zag_attn"
PLAIN = Supports(masks=("full", "causal"), unit="cp", **BATCH)
STRIPED = Supports(masks=("causal",), unit="cp", partition="striped", **BATCH)
CHUNKS = Supports(masks=("causal",), unit="2cp", partition="zigzag", **BATCH)
FEATURES = (
    Feature("ring", RING, "README: Ring Attention", calls.ring, of_ring(False), PLAIN),
    Feature(
        "striped ring, causal",
        RING,
        "README: Striped Attention",
        calls.ring,
        of_ring(True),
        STRIPED,
    ),
    Feature(
        "zigzag, causal",
        ZIGZAG,
        "README: Zig Zag sharding, Llama 3",
        calls.zigzag,
        of_zigzag,
        CHUNKS,
        demands=Demands(merges=0),
    ),
)
