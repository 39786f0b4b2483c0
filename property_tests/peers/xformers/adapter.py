import calls
from ringside.testing.peers import Feature, Supports

ENTRY = "xformers.ops.fmha.attn_bias.BlockDiagonalMask.{}"


def arguments(kind):
    def of_plan(plan, softmax_scale):
        left = plan.mask.window_size[0]
        window = (left + 1,) if left >= 0 else ()  # it counts the query's own key
        lengths = plan.layout_q.lengths.tolist()
        return {"lengths": lengths, "kind": kind, "window": window, "scale": softmax_scale}

    return of_plan


def feature(name, kind, mask, claims):
    entry = ENTRY.format("from_seqlens" if kind == "full" else f"make_{kind}")
    supports = Supports(cp=(1,), masks=(mask,), longest=24, documents=5)
    return Feature(name, entry, claims, calls.masked, arguments(kind), supports)


LOCAL = "docstring: Makes each block causal with local attention"
FEATURES = (
    feature("packs", "full", "full", "docstring: a block-diagonal mask"),
    feature("packs, causal", "causal", "causal", "docstring: Makes each block causal"),
    feature(
        "packs, causal from the bottom right", "causal_from_bottomright", "causal", "docstring"
    ),
    feature("packs, local", "local_attention", "window", LOCAL),
    feature(
        "packs, local from the bottom right", "local_attention_from_bottomright", "window", LOCAL
    ),
)
