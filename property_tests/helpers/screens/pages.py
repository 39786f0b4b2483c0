"""What a page has to show of a plan, from the plan itself: Plan.who and the ranks' colours."""

import numpy as np
import ringside as rs
from ringside._page.data import DONE, TO_COME
from ringside._pictures.colours import rank_colours

GREY, WHITE, BLACK = (213, 216, 222), (255, 255, 255), (27, 29, 34)


def token(layout, row):
    """(document, position), the position None in padding; by counting."""
    for doc, first in enumerate(layout.cu_seqlens_padded[:-1]):
        if first <= row < layout.cu_seqlens_padded[doc + 1]:
            position = row - int(first)
            return doc, position if position < layout.lengths[doc] else None
    raise IndexError(row)


def token_in_words(layout, row):
    doc, position = token(layout, row)
    return f"document {doc}, " + ("padding" if position is None else f"position {position}")


def hover_text(plan, row, key):
    """Both lines under the mask, of which the second is what Plan.who says."""
    q, k = token_in_words(plan.layout_q, row), token_in_words(plan.layout_k, key)
    return f"Query of {q}; key of {k}.{plan.who(row, key)}"


def colour(plan, row, key, step, head):
    """(red, green, blue) of a pair while a step of a head is shown."""
    if None in (token(plan.layout_q, row)[1], token(plan.layout_k, key)[1]):
        return GREY
    here = [p for p in plan.who(row, key).places if p.heads[0] <= head < p.heads[1]]
    if not here:
        return WHITE
    white = 0.0 if here[0].step == step else DONE if here[0].step < step else TO_COME
    shade = rank_colours(plan.cp_size)[here[0].rank]
    return tuple(np.rint((shade + (1 - shade) * white) * 255).astype(int).tolist())


def pairs_of(plan, rng, count):
    """Random pairs, most of them of one document."""
    starts = plan.layout_q.cu_seqlens_padded, plan.layout_k.cu_seqlens_padded
    found = []
    for _ in range(count):
        row = int(rng.integers(plan.layout_q.num_rows))
        doc = token(plan.layout_q, row)[0]
        low, high = (int(starts[1][doc]), int(starts[1][doc + 1])) if rng.random() < 0.8 else (0, 0)
        key = rng.integers(low, high) if high > low else rng.integers(plan.layout_k.num_rows)
        found.append((row, int(key)))
    return found


LAYOUT = rs.PackedLayout.from_lengths([37, 5, 0, 90, 61], pad_to_multiple_of=8)
KEYS = rs.PackedLayout.from_lengths([50, 3, 4, 61, 80], pad_to_multiple_of=4)


def plan_over(comm, mask=None, layout_k=None, partition="zigzag", cp_size=4):
    """Of LAYOUT, with heads enough for every transport."""
    mask = rs.Mask.causal() if mask is None else mask
    group = {"a2a_size": 2} if comm == "a2a+p2p" else {}
    how = {"cp_size": cp_size, "partition": partition, "comm": comm, **group}
    return rs.plan(LAYOUT, layout_k, mask=mask, num_heads=8, num_kv_heads=4, **how)
