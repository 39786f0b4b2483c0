import calls
from ringside.testing.adapters import pack_mask
from ringside.testing.peers import Feature, Supports


def of_batch(plan, softmax_scale):
    left, right = plan.mask.window_size
    given = {"sequences": plan.layout_q.num_sequences, "scale": softmax_scale}
    if left < 0:
        return given | {"is_causal": right == 0}
    return given | {"local_window_size": (left, right)}


def of_padded(plan, softmax_scale):
    lengths = plan.layout_q.lengths.tolist()
    given = {"query_seq_lengths": lengths, "key_value_seq_lengths": lengths}
    return of_batch(plan, softmax_scale) | given


def of_mask(plan, softmax_scale):
    seen = pack_mask(plan.layout_q, plan.layout_k, plan.mask).astype(int).tolist()
    return {"seen": seen, "scale": softmax_scale}


ALL = ("full", "causal", "window", "band")
ONE = {"cp": (1,), "longest": 24}
REASONS = {"nan": "a mask multiplies what it hides by 0, as documented nowhere otherwise"}


def feature(name, claims, call, arguments, **supports):
    entry = "jax.nn.dot_product_attention"
    return Feature(name, entry, claims, call, arguments, Supports(**ONE | supports))


FEATURES = (
    feature(
        "is_causal",
        "docstring: is_causal",
        calls.batch,
        of_batch,
        masks=("full", "causal"),
        equal=True,
    ),
    feature(
        "local_window_size",
        "docstring: local_window_size",
        calls.batch,
        of_batch,
        masks=("window", "band"),
        equal=True,
    ),
    feature(
        "query_seq_lengths",
        "docstring: int32 array of sequence lengths",
        calls.batch,
        of_padded,
        masks=ALL,
        equal=True,
        padding=True,
        nan=False,
        reasons=REASONS,
    ),
    feature("mask of packs", "docstring: mask", calls.masked, of_mask, masks=(*ALL, "chunked")),
)
