import calls
from ringside.testing import Demands
from ringside.testing.peers import Feature, Supports

ENTRY = "flash_attn3_jax.flash_mha"
HEAD = {"head_dim": "README: published wheels are built for head dimension 128 only"}
ONE = {"cp": (1,), "head_dim": 128, "dtype": "bfloat16", "longest": 300, "reasons": HEAD}
ROUNDED = Demands(partial="bfloat16", accumulate="float32")
AS_EVER, UNSEEN = Demands(), Demands(padding="any")
NAN = {"nan": "no word of what is behind a sequence's end"}


def options(plan, softmax_scale):
    left, right = plan.mask.window_size
    window = (left, right) if left >= 0 else (-1, -1)
    return {"softmax_scale": softmax_scale, "is_causal": right == 0, "window": window}


def of_packs(plan, softmax_scale):
    given = {"cu_seqlens": plan.layout_q.cu_seqlens_padded.tolist()}
    given["longest"] = int(plan.layout_q.padded_lengths.max())
    return given | options(plan, softmax_scale)


def of_used(plan, softmax_scale):
    return of_packs(plan, softmax_scale) | {"used": plan.layout_q.lengths.tolist()}


def of_batch(plan, softmax_scale, gpus=1):
    given = {"sequences": plan.layout_q.num_sequences, "gpus": gpus}
    return given | options(plan, softmax_scale)


def of_ring(plan, softmax_scale):
    return of_batch(plan, softmax_scale, gpus=2)


def packs(name, claims, arguments=of_packs, demands=AS_EVER, **supports):
    given = (f"{ENTRY}_varlen", claims, calls.packs, arguments)
    return Feature(name, *given, Supports(**ONE | supports), demands=demands)


def batch(name, claims, arguments=of_batch, demands=AS_EVER, **supports):
    given = (ENTRY, claims, calls.batch, arguments)
    return Feature(name, *given, Supports(**ONE | {"equal": True} | supports), demands=demands)


PLAIN, WINDOW = ("full", "causal"), "README: Causal masking and sliding window attention"
PADDED = {"padding": True, "nan": False, "masks": ("full",), "reasons": HEAD | NAN}
FEATURES = (
    packs("varlen", "README: Variable length sequences within batches", masks=PLAIN),
    packs("varlen, window", WINDOW, masks=("window", "band")),
    packs("varlen, seqused_k", "its signature: seqused_k", of_used, UNSEEN, **PADDED),
    batch("batch", "README: Main function for flash attention", masks=PLAIN),
    batch("batch, window", WINDOW, masks=("window", "band")),
    batch(
        "ring of 2 GPUs",
        "README: dispatches to ring attention",
        of_ring,
        ROUNDED,
        masks=PLAIN,
        unit="2cp",
        longest=150,
        gpus=2,
    ),
)
