import calls
from ringside.testing.peers import Feature, Supports


def of_packs(kind):
    def arguments(plan, softmax_scale):
        lengths = plan.layout_q.lengths.tolist()
        given = {"kind": kind, "positions": [i for n in lengths for i in range(n)]}
        given["scaling"] = 8**-0.5 if softmax_scale is None else softmax_scale
        left, chunk = plan.mask.window_size[0], plan.mask.chunk_size
        if chunk:
            return given | {"mask": "chunked_causal", "attention_chunk_size": chunk}
        if left >= 0:  # a window of n keys counts the query's own
            return given | {"mask": "sliding_window_causal", "sliding_window": left + 1}
        return given | {"mask": "causal"}

    return arguments


DOC = "find_packed_sequence_indices: several sequences packed in the same batch dimension"
CREATE = "transformers.masking_utils.create_"


def feature(name, kind, mask, entry):
    supports = Supports(cp=(1,), masks=(mask,), longest=24, documents=5)
    return Feature(f"{name}, {kind}", CREATE + entry, DOC, calls.packed, of_packs(kind), supports)


FEATURES = (
    feature("packs, causal", "sdpa", "causal", "causal_mask"),
    feature("packs, causal", "eager", "causal", "causal_mask"),
    feature("packs, sliding window", "sdpa", "window", "sliding_window_causal_mask"),
    feature("packs, sliding window", "eager", "window", "sliding_window_causal_mask"),
    feature("packs, chunked", "sdpa", "chunked", "chunked_causal_mask"),
)
