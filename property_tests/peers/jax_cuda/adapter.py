import calls
from ringside.testing import Demands
from ringside.testing.adapters import pack_mask
from ringside.testing.peers import Feature, Supports

ENTRY = "jax.nn.dot_product_attention"
EVEN = {"unit": "refuses gradients of an odd number of rows: Unsupported sequence length"}
ONE = {"cp": (1,), "unit": "2cp", "longest": 100, "equal": True, "reasons": EVEN}
ONE |= {"head_dim": 64, "dtype": "bfloat16"}
ROUNDED = Demands(partial="bfloat16", accumulate="float32")  # dk and dv of each query head
NAN = {"nan": "no word of what is behind a sequence's end"}
NO_NAN = {"nan": False, "reasons": EVEN | NAN}


def of_batch(**rest):
    def arguments(plan, softmax_scale):
        left, right = plan.mask.window_size
        given = {"sequences": plan.layout_q.num_sequences, "scale": softmax_scale} | rest
        if left < 0:
            return given | {"is_causal": right == 0}
        return given | {"local_window_size": (left, right)}

    return arguments


def of_padded(plan, softmax_scale):
    lengths = plan.layout_q.lengths.tolist()
    given = {"query_seq_lengths": lengths, "key_value_seq_lengths": lengths}
    return of_batch()(plan, softmax_scale) | given


def of_mask(plan, softmax_scale):
    seen = pack_mask(plan.layout_q, plan.layout_k, plan.mask).astype(int).tolist()
    return {"seen": seen, "scale": softmax_scale}


def feature(name, claims, call, arguments, **supports):
    supports = Supports(**ONE | supports)
    return Feature(name, ENTRY, claims, call, arguments, supports, demands=ROUNDED)


WINDOW = "docstring: local_window_size"
FEATURES = (
    feature(
        "is_causal, cuDNN",
        "docstring: is_causal",
        calls.batch,
        of_batch(),
        masks=("full", "causal"),
    ),
    feature("local_window_size, cuDNN", WINDOW, calls.batch, of_batch(), masks=("window",)),
    feature(
        "local_window_size, is_causal, cuDNN",
        WINDOW,
        calls.batch,
        of_batch(is_causal=True),
        masks=("window",),
    ),
    feature(
        "query_seq_lengths, cuDNN",
        "docstring: int32 array of sequence lengths",
        calls.batch,
        of_padded,
        masks=("full", "causal"),
        padding=True,
        **NO_NAN,
    ),
    feature(
        "mask of packs, cuDNN",
        "docstring: mask",
        calls.masked,
        of_mask,
        equal=False,
        masks=("full", "causal", "window", "band", "chunked"),
        longest=30,
    ),
)
