import calls
from ringside.testing.adapters import pack_mask
from ringside.testing.peers import Feature, Supports


def of_batch(flash):
    def arguments(plan, softmax_scale):
        given = {"sequences": plan.layout_q.num_sequences, "scale": softmax_scale}
        return given | {"causal": plan.mask.window_size[1] == 0, "flash": flash}

    return arguments


def of_mask(flash):
    def arguments(plan, softmax_scale):
        seen = pack_mask(plan.layout_q, plan.layout_k, plan.mask).astype(int).tolist()
        return {"seen": seen, "scale": softmax_scale, "flash": flash}

    return arguments


OWN = "it maps query heads to kv heads by h % kv_heads, a convention of its own"
ALONE = {"cp": (1,), "longest": 24, "heads": ((1, 1), (2, 2), (4, 1)), "reasons": {"heads": OWN}}
BATCH = Supports(masks=("full", "causal"), equal=True, **ALONE)
PACKS = Supports(masks=("full", "causal", "window", "band", "chunked"), **ALONE)
ENTRY, CLAIM = "x_transformers.attend.Attend", "README: Flash Attention, flash = True"
FEATURES = (
    Feature("causal", ENTRY, "its argument causal", calls.batch, of_batch(False), BATCH),
    Feature("causal, flash=True", ENTRY, CLAIM, calls.batch, of_batch(True), BATCH),
    Feature("mask of packs", ENTRY, "its argument mask", calls.masked, of_mask(False), PACKS),
    Feature("mask of packs, flash=True", ENTRY, CLAIM, calls.masked, of_mask(True), PACKS),
)
