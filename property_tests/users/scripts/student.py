"""A student reads a plan: who owns what, who sends what, what merges to the answer."""

import numpy as np
import ringside as rs

layout = rs.PackedLayout.from_lengths([8])
plan = rs.plan(layout, cp_size=2)
print(plan.explain())
assert [plan.position_ids(rank).tolist() for rank in (0, 1)] == [[0, 1, 6, 7], [2, 3, 4, 5]]

rng = np.random.default_rng(0)
q, k, v = rng.normal(size=(3, 8, 1, 4))
want, want_lse = rs.attention(q, k, v, layout)

# Half an answer each: row 7 over the keys of either rank, merged by their lse.
halves = []
for rank in (0, 1):
    keys = plan.row_indices(rank)
    scores = k[keys, 0] @ q[7, 0] / 2
    lse = np.log(np.exp(scores).sum())
    halves.append((np.exp(scores - lse) @ v[keys, 0], lse))
(a, lse_a), (b, lse_b) = halves
total = np.logaddexp(lse_a, lse_b)
merged = np.exp(lse_a - total) * a + np.exp(lse_b - total) * b
assert np.allclose(merged, want[7, 0]) and np.isclose(total, want_lse[0, 7])
assert not np.allclose((a + b) / 2, want[7, 0])  # an average is another answer

# Keys on their way round the ring.
moved = plan.exchange(1, "kv", [plan.shard(k, rank) for rank in (0, 1)])
assert (moved[0] == plan.shard(k, 1)).all()
