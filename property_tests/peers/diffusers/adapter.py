import calls
from ringside.testing import Demands
from ringside.testing.peers import Feature, Supports

ENTRY = "diffusers.models.attention_dispatch._templated_context_parallel_attention"
ROUNDED = Demands(partial="bfloat16", accumulate="float32")
RING = "docs, ContextParallelConfig: ring_degree"
ULYSSES = "docs, ContextParallelConfig: ulysses_degree"
REASONS = {"masks": "it refuses causal attention", "heads": "it refuses grouped heads"}
BATCH = {"masks": ("full",), "equal": True, "unit": "cp", "longest": 6, "reasons": REASONS}


def arguments(kernel, ring):
    def of_plan(plan, softmax_scale):
        degrees = (plan.cp_size, 1) if ring else (1, plan.cp_size)
        given = {"sequences": plan.layout_q.num_sequences, "kernel": kernel}
        return given | {"ring": degrees[0], "ulysses": degrees[1], "scale": softmax_scale}

    return of_plan


def feature(name, claims, cp, kernel="flash", ring=True):
    heads = ((1, 1), (2, 2)) if ring else ((cp, cp), (2 * cp, 2 * cp))
    supports = Supports(cp=(cp,), heads=heads, dtype="bfloat16", **BATCH)
    call = (calls.parallel, arguments(kernel, ring))
    return Feature(name, ENTRY, claims, *call, supports, demands=ROUNDED)


FEATURES = (
    feature("ring of 2, flash kernel", RING, 2),
    feature("ring of 3, flash kernel", RING, 3),
    feature("Ulysses of 2, flash kernel", ULYSSES, 2, ring=False),
    feature("ring of 2, native kernel", RING, 2, "native"),
)
