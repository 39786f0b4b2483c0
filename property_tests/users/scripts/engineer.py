"""An engineer changes Transformer Engine's context parallelism and wants its metadata checked."""

import numpy as np
import ringside as rs

layout = rs.PackedLayout.from_te(np.array([0, 13, 20, 20]), np.array([0, 16, 24, 24]))
mask = rs.Mask.causal()

# What a rank's two steps of an all-gather mean, for arrays as the kernels take them.
theirs = rs.thd.all_gather_step_metadata(layout, 2, 1, mask)
report = rs.thd.check_step_metadata(theirs, layout, 2, 1, mask, comm="all_gather")
print(report)
assert report

# The change: somebody's step forgets the second document. What is missing is said by name.
step = theirs[0]
wrong = {
    name: np.asarray(getattr(step, name))
    for name in ("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded")
}
wrong["cu_seqlens_kv"] = np.minimum(wrong["cu_seqlens_kv"], wrong["cu_seqlens_kv"][1])
wrong |= {"attn_mask_type": "padding", "window_size": step.window_size or (-1, -1)}
report = rs.thd.check_step_metadata([wrong, theirs[1]], layout, 2, 1, mask, comm="all_gather")
print(report)
assert not report

# Rows in the order of ranks, and the shard of one of them.
tokens = np.arange(24)
gathered = rs.thd.sequence_order_to_cp_rank_order(tokens, [0, 16, 24, 24], 2)
rows = rs.thd.partition_indices([0, 16, 24, 24], 2, 1)
assert (gathered[12:] == tokens[rows]).all()
