"""A researcher has a partition of their own and asks what it is worth."""

import numpy as np
import ringside as rs

lengths = rs.lengths.pack(rs.lengths.load("man_pages"), 16_384)
layout = rs.PackedLayout.from_lengths(lengths)


def longest_first(layout: rs.PackedLayout, cp_size: int) -> np.ndarray:
    """Whole documents, the longest first, to whoever has the fewest tokens."""
    held, owner = np.zeros(cp_size), np.zeros(layout.num_sequences, int)
    for document in np.argsort(-layout.lengths, kind="stable"):
        owner[document] = held.argmin()
        held[owner[document]] += layout.lengths[document]
    return owner


mine = rs.plan(layout, cp_size=4, partition=longest_first, name="longest first", comm="fetch")
print(mine.verify())
print(mine.explain(short=True))
zigzag = rs.plan(layout, cp_size=4)
for plan in (mine, zigzag):
    print(plan.cost())
assert mine.cost().fill > zigzag.cost().fill  # whole documents fill a kernel's blocks
assert mine.cost().imbalance > zigzag.cost().imbalance  # and are not balanced
print("\n".join(mine.diff(zigzag)[:3]))

# Pieces of a named one to start from; the busiest rank hands its last piece to the next.
pieces = rs.partition("balanced", layout, 4)
pieces[1].append(pieces[0].pop())
assert rs.plan(layout, cp_size=4, partition=pieces, comm="all_gather").verify()
