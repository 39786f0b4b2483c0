import calls
from ringside.testing import Demands
from ringside.testing.peers import Feature, Supports

ROUNDED = Demands(partial="bfloat16", accumulate="float32")  # each step's results are in 16 bits
ORDER = {"ring": "contiguous", "zigzag_ring": "zigzag", "stripe": "striped"}


def settings_of(plan, softmax_scale):
    left, right = plan.mask.window_size
    window = (left, right) if left >= 0 else (-1, -1)
    return {"softmax_scale": softmax_scale, "causal": right == 0, "window": window}


def of_packs(kind):
    def arguments(plan, softmax_scale):
        cu_seqlens = (plan.layout_q.cu_seqlens_padded // plan.cp_size).tolist()
        longest = int(plan.layout_q.lengths.max()) // plan.cp_size
        pack = {"kind": kind, "cu_seqlens": cu_seqlens, "longest": longest}
        return pack | settings_of(plan, softmax_scale)

    return arguments


def of_batch(kind):
    return lambda plan, softmax_scale: (
        {"kind": kind, "sequences": plan.layout_q.num_sequences} | settings_of(plan, softmax_scale)
    )


def of_llama3(plan, softmax_scale):
    return {"cu_seqlens": plan.layout_q.cu_seqlens.tolist()} | settings_of(plan, softmax_scale)


def feature(name, kind, masks, claims, **supports):
    varlen = "varlen" in name
    settings = {"partition": ORDER.get(kind, "whole_pack"), "dtype": "bfloat16", "cp": (2, 3)}
    settings |= {"unit": {"ring": "cp", "llama3": "pack"}.get(kind, "2cp"), "equal": not varlen}
    call, arguments = calls.batch, of_batch(kind)
    if varlen:
        call, arguments = calls.packs, of_packs(kind)
    if kind == "llama3":
        call, arguments = calls.llama3, of_llama3
    settings = Supports(masks=masks, longest=6, **settings | supports)
    entry = f"ring_flash_attn.{kind}_flash_attn_{'varlen_' if varlen else ''}func"
    return Feature(name, entry, claims, call, arguments, settings, demands=ROUNDED)


WINDOW = "its signature: window_size=(-1, -1),  # -1 means infinite context window"
FEATURES = (
    feature(
        "zigzag varlen, causal", "zigzag_ring", ("causal",), "README: varlen (packing samples) api"
    ),
    feature("zigzag varlen, window_size", "zigzag_ring", ("window",), WINDOW),
    feature("ring varlen", "ring", ("full", "causal"), "README: A basic implementation"),
    feature("ring varlen, window_size", "ring", ("window", "band"), WINDOW),
    feature("llama3 varlen", "llama3", ("full", "causal"), "README: recommended for most varlen"),
    feature("llama3 varlen, window_size", "llama3", ("window",), WINDOW),
    feature("ring batch", "ring", ("full", "causal"), "README: basic ring attention"),
    feature("zigzag batch, causal", "zigzag_ring", ("causal",), "README: more compute balanced"),
    feature("stripe batch, causal", "stripe", ("causal",), "README: Stripe attention version"),
)
