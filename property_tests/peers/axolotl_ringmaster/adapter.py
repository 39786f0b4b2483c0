import calls
from ringside.testing.peers import Feature, Supports


def of_loop(rotate):
    def arguments(plan, softmax_scale):
        left, right = plan.mask.window_size
        given = {"sequences": plan.layout_q.num_sequences, "rotate": rotate}
        given |= {"causal": right == 0, "scaling": softmax_scale}
        return given | {"window": (left, right) if left >= 0 else None}

    return arguments


def of_packs(kind):
    def arguments(plan, softmax_scale):
        left, right = plan.mask.window_size
        scaling = 8**-0.5 if softmax_scale is None else softmax_scale
        given = {"kind": kind, "scaling": scaling}
        given["cu_seqlens"] = plan.layout_q.cu_seqlens.tolist()
        if kind == "gathered":
            given |= {"causal": right == 0, "window": (left, right) if left >= 0 else None}
        return given

    return arguments


SCALED = "its callers pass a scale always"
BATCH = {"cp": (2, 3), "equal": True, "unit": "cp", "longest": 6, "scales": (0.25, 0.5)}
BATCH["reasons"] = {"scales": SCALED}
PACK = {"cp": (2, 3), "unit": "pack", "partition": "whole_pack"}
LOOP, VARLEN = "ringmaster.ring.loop.ring_attention", "ringmaster.ring.loop.varlen_ring_attention"
ZIGZAG = "ringmaster.ring.zigzag.zigzag_ring_attention"
DISTFLASH = "ringmaster.ring.distflash.distflash_attention"
BOTH, PACKED = ("full", "causal"), "README: packing / varlen, global document metadata"
ONE = Supports(cp=(2, 3), unit="2cp", partition="zigzag", documents=1)
CHUNKS = Supports(cp=(2, 3), unit="2cp", partition="whole_pack_zigzag")


def loop(name, rotate, claims, masks=BOTH):
    supports = Supports(masks=masks, **BATCH)
    return Feature(name, LOOP, claims, calls.loop, of_loop(rotate), supports)


def packs(name, entry, kind, supports, claims=PACKED):
    return Feature(name, entry, claims, calls.packs, of_packs(kind), supports)


FEATURES = (
    loop("ring p2p, math kernel", "alltoall", "README: p2p (memory-optimal, fwd+bwd)"),
    loop("ring allgather, math kernel", "allgather", "README: allgather (fast)"),
    loop("ring allgather, window", "allgather", "README: sliding-window", ("window",)),
    packs("gathered packs", VARLEN, "gathered", Supports(masks=(*BOTH, "window"), **PACK)),
    packs("zigzag, one document", ZIGZAG, "zigzag", ONE, "docs: load balancing"),
    packs("zigzag packs", ZIGZAG, "zigzag", CHUNKS),
    packs("distflash packs", DISTFLASH, "distflash", Supports(**PACK)),
)
