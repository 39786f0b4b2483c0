import calls
from ringside.testing import Demands
from ringside.testing.peers import Feature, Supports

ENTRY = (
    "transformer_engine.pytorch.attention.dot_product_attention.context_parallel"
    ".attn_forward_func_with_cp"
)
ROUNDED = Demands(partial="bfloat16", accumulate="float32")  # its buffers are of 16 bits
DUAL, CONTIGUOUS = "DUAL_CHUNK_SWAP", "NO_LOAD_BALANCE"


def of_packs(plan, softmax_scale, comm, kernel, causal, balance):
    left, right = plan.mask.window_size
    layout, causal = plan.layout_q, causal and right == 0
    given = {"cp_comm_type": comm, "kernel": kernel, "balance": balance}
    given |= {"attn_mask_type": "padding_causal" if causal else "padding"}
    given |= {"window": (left, right), "softmax_scale": softmax_scale}
    given |= {"cu_seqlens": layout.cu_seqlens.tolist()}
    given |= {"cu_seqlens_padded": layout.cu_seqlens_padded.tolist()}
    return given | {"longest": int(layout.padded_lengths.max())}


def of_batch(plan, softmax_scale, *how):
    given = of_packs(plan, softmax_scale, *how)
    mask = "causal" if "causal" in given["attn_mask_type"] else "no_mask"
    return given | {"sequences": plan.layout_q.num_sequences, "attn_mask_type": mask}


def feature(name, masks, claims, comm, kernel="cuDNN", causal=True, balance=DUAL, **supports):
    settings = {"cp": (2, 3), "unit": "2cp", "partition": "zigzag", "longest": 6, "padding": True}
    settings |= supports

    def arguments(plan, softmax_scale):
        return of_packs(plan, softmax_scale, comm, kernel, causal, balance)

    demands = ROUNDED if "bfloat16" in name else Demands()
    supports = Supports(masks=masks, **settings)
    return Feature(name, ENTRY, claims, calls.packs, arguments, supports, demands=demands)


def dense(name, masks, claims, comm, qkv_format):
    def arguments(plan, softmax_scale):
        how = (comm, "cuDNN", True, DUAL)
        return of_batch(plan, softmax_scale, *how) | {"qkv_format": qkv_format}

    settings = {"cp": (2, 3), "unit": "2cp", "partition": "zigzag", "longest": 6, "equal": True}
    supports = Supports(masks=masks, **settings)
    return Feature(name, ENTRY, claims, calls.batch, arguments, supports)


BOTH, FA3 = ("full", "causal"), "FlashAttention 3"
GATHER = 'docstring, cp_comm_type: "all_gather": All-gather to get full sequence of KV'
P2P = 'docstring, cp_comm_type: "p2p": Exchange KV chunks with P2P communications in ring topology'
A2A = 'docstring, cp_comm_type: "a2a": Like DeepSpeed Ulysses, scatter attention heads'
BEHIND = "check_set_window_size: causal, padding_causal | (-1, 0) or (>=0, 0)"
AROUND = "check_set_window_size: no_mask, padding, arbitrary | (-1, -1) or (>=0, >=0)"
CHUNKS = (("causal",), "docstring: NO_LOAD_BALANCE, one contiguous chunk a rank", "all_gather")
WHOLE = {"partition": "whole_pack", "unit": "pack", "longest": 12}
LOW = {"dtype": "bfloat16", "cp": (2,)}  # more ranks would round sums more often
EVEN = {"cp": (2,), "heads": ((2, 2), (4, 4), (4, 2))}
FEATURES = (
    feature("all-gather, cuDNN", BOTH, GATHER, "all_gather"),
    feature("all-gather, cuDNN, bfloat16", BOTH, GATHER, "all_gather", **LOW),
    feature("all-gather, cuDNN, window", ("window",), BEHIND, "all_gather"),
    feature("all-gather, FA3", BOTH, GATHER, "all_gather", FA3),
    feature("all-gather, FA3, window", ("window",), BEHIND, "all_gather", FA3),
    feature(
        "all-gather, FA3, window, not causal", ("window", "band"), AROUND, "all_gather", FA3, False
    ),
    feature("all-gather, cuDNN, no load balance", *CHUNKS, balance=CONTIGUOUS, **WHOLE),
    feature("p2p, cuDNN", BOTH, P2P, "p2p"),
    feature("p2p, cuDNN, bfloat16", BOTH, P2P, "p2p", **LOW),
    feature("a2a, cuDNN", (*BOTH, "window"), A2A, "a2a", **EVEN),
    dense("p2p, cuDNN, bshd", BOTH, P2P, "p2p", "bshd"),
    dense("all-gather, cuDNN, sbhd", BOTH, GATHER, "all_gather", "sbhd"),
)
