"""Answers to exercise 6: one that holds, and what one writes first."""


def bytes_in(rows, num_heads, num_kv_heads, head_dim, group, groups):
    heads, kv_heads = (
        num_heads // group,
        max(num_kv_heads // group, 1),
    )  # of a rank
    others = (group - 1) * rows
    q = others * heads * head_dim * 2
    kv = others * kv_heads * head_dim * 2 * 2
    ring = (groups - 1) * group * rows * kv_heads * head_dim * 2 * 2
    results = others * heads * (head_dim * 2 + 4)
    return q + kv + ring + results


def wrong_kv_heads_are_not_replicated(rows, num_heads, num_kv_heads, head_dim, group, groups):
    kv = (group - 1) * rows + (groups - 1) * group * rows
    kv = kv * num_kv_heads * head_dim * 4 / group
    return kv + (group - 1) * rows * num_heads // group * (head_dim * 4 + 4)


def wrong_sends_to_oneself_count(rows, num_heads, num_kv_heads, head_dim, group, groups):
    own = num_heads // group * (head_dim * 4 + 4) + max(num_kv_heads // group, 1) * head_dim * 4
    return bytes_in(rows, num_heads, num_kv_heads, head_dim, group, groups) + rows * own


def wrong_results_are_forgotten(rows, num_heads, num_kv_heads, head_dim, group, groups):
    results = (group - 1) * rows * (num_heads // group) * (head_dim * 2 + 4)
    return bytes_in(rows, num_heads, num_kv_heads, head_dim, group, groups) - results


def wrong_lse_is_forgotten(rows, num_heads, num_kv_heads, head_dim, group, groups):
    lse = (group - 1) * rows * (num_heads // group) * 4
    return bytes_in(rows, num_heads, num_kv_heads, head_dim, group, groups) - lse


def wrong_the_ring_carries_one_ranks_rows(rows, num_heads, num_kv_heads, head_dim, group, groups):
    lost = (groups - 1) * (group - 1) * rows * max(num_kv_heads // group, 1) * head_dim * 4
    return bytes_in(rows, num_heads, num_kv_heads, head_dim, group, groups) - lost


def wrong_only_keys_travel(rows, num_heads, num_kv_heads, head_dim, group, groups):
    whole = bytes_in(rows, num_heads, num_kv_heads, head_dim, group, groups)
    rows_moved = (group - 1) * rows + (groups - 1) * group * rows
    return whole - rows_moved * max(num_kv_heads // group, 1) * head_dim * 2


def is_small(trade):
    return trade.rows <= 2 and trade.head_dim == 1 and trade.group * trade.groups <= 4
