import calls
from ringside.testing import Demands
from ringside.testing.peers import Feature, Supports

ENTRY = "flashinfer.parallel_attention.ParallelAttention.run"
MERGED = Demands(partial="bfloat16", merge="bfloat16", accumulate="float32")  # in its own type
REASONS = {"masks": "it refuses causal attention", "scales": "it has no argument for another"}
ALL = {"masks": ("full",), "scales": (None,), "dtype": "bfloat16", "reasons": REASONS}
RING = {"unit": "cp", "longest": 6, "cp": (2, 3)} | ALL
ULYSSES = {"unit": "pack", "partition": "whole_pack", "heads": ((2, 2), (4, 4), (4, 2))} | ALL


def of_pack(ulysses, layout):
    def arguments(plan, softmax_scale):
        ranks = 1 if ulysses else plan.cp_size
        lengths = (plan.layout_q.lengths // ranks).tolist()
        return {"ulysses": ulysses, "layout": layout, "lengths": lengths}

    return arguments


def of_one(ulysses, layout):
    return lambda plan, softmax_scale: {"ulysses": ulysses, "layout": layout, "lengths": None}


def feature(name, claims, arguments, supports):
    how = {"gradients": False, "demands": MERGED}
    return Feature(name, ENTRY, claims, calls.run, arguments, Supports(**supports), **how)


SPLIT = "docstring of VarlenCPConfig: Ring-only, each individual sequence is split across ranks"
WHOLE = "docstring of VarlenCPConfig: Ulysses-only, the packed sequences are treated as a whole"
BOTH = "docstring of ParallelAttention: Ulysses and/or Ring parallelism"
FEATURES = (
    feature("ring, FA3, NHD", BOTH, of_one(False, "NHD"), RING | {"documents": 1}),
    feature("ring, FA3, HND", BOTH, of_one(False, "HND"), RING | {"documents": 1}),
    feature("ring varlen, FA3, NHD", SPLIT, of_pack(False, "NHD"), RING),
    feature("ring varlen, FA3, HND", SPLIT, of_pack(False, "HND"), RING),
    feature("Ulysses, FA3, HND", BOTH, of_one(True, "HND"), ULYSSES | {"documents": 1}),
    feature("Ulysses varlen, FA3, NHD", WHOLE, of_pack(True, "NHD"), ULYSSES),
)
