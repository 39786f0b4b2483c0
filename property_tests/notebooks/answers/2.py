"""Answers to exercise 2: one that holds, and what one writes first."""


def visible(q, len_q, len_k, window_size, chunk_size, align):
    place = q + len_k - len_q if align == "bottom_right" else q
    begin, end = 0, len_k
    if window_size[0] >= 0:
        begin = max(begin, place - window_size[0])
    if window_size[1] >= 0:
        end = min(end, place + window_size[1] + 1)
    if chunk_size > 0:
        chunk = place // chunk_size * chunk_size
        begin, end = max(begin, chunk), min(end, chunk + chunk_size)
    return begin, end


def wrong_the_right_edge_is_exclusive(q, len_q, len_k, window_size, chunk_size, align):
    begin, end = visible(q, len_q, len_k, window_size, chunk_size, align)
    place = q + len_k - len_q if align == "bottom_right" else q
    return begin, min(end, place + window_size[1]) if window_size[1] >= 0 else end


def wrong_the_chunk_is_that_of_the_row(q, len_q, len_k, window_size, chunk_size, align):
    begin, end = visible(q, len_q, len_k, window_size, 0, align)
    if chunk_size > 0:
        chunk = q // chunk_size * chunk_size
        begin, end = max(begin, chunk), min(end, chunk + chunk_size)
    return begin, end


def wrong_everything_is_top_left(q, len_q, len_k, window_size, chunk_size, align):
    return visible(q, len_q, len_k, window_size, chunk_size, "top_left")


def wrong_the_alignment_is_a_scalar_of_the_longest(q, len_q, len_k, window_size, chunk_size, align):
    if align == "bottom_right":
        q = q + max(len_k - len_q, 0)  # as if no document had fewer keys than queries
    return visible(q, max(len_q, q + 1), len_k, window_size, chunk_size, "top_left")


def wrong_no_bound_is_a_bound_of_minus_one(q, len_q, len_k, window_size, chunk_size, align):
    begin, end = visible(q, len_q, len_k, (-1, -1), chunk_size, align)
    place = q + len_k - len_q if align == "bottom_right" else q
    return max(begin, place - window_size[0]), min(end, place + window_size[1] + 1)


def wrong_keys_before_the_first(q, len_q, len_k, window_size, chunk_size, align):
    begin, end = visible(q, len_q, len_k, window_size, chunk_size, align)
    place = q + len_k - len_q if align == "bottom_right" else q
    return (place - window_size[0] if window_size[0] >= 0 else begin), end


def wrong_the_chunk_replaces_the_window(q, len_q, len_k, window_size, chunk_size, align):
    window = (-1, window_size[1]) if chunk_size > 0 else window_size
    return visible(q, len_q, len_k, window, chunk_size, align)


def is_small(case):
    return case.len_q <= 4 and case.len_k <= 4
