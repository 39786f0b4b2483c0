"""Faults of kernels that small cases do not reach, under the signature of ringside.attention."""

import ringside as rs


def _row_of(layout, position):
    """The rows at this position and after, of every document."""
    starts = zip(layout.cu_seqlens_padded, layout.lengths, strict=False)
    return [row for begin, n in starts for row in range(begin + position, begin + n)]


def keys_from_65(q, k, v, *, layout_q, layout_k, **keywords):
    v = v.copy()
    v[_row_of(layout_k, 65)] *= 2
    return rs.attention(q, k, v, layout_q, layout_k, **keywords)


def rows_from_257(q, k, v, *, layout_q, layout_k, **keywords):
    out, lse = rs.attention(q, k, v, layout_q, layout_k, **keywords)
    rows = _row_of(layout_q, 257)
    out[rows] = 0.5 * out[rows]
    lse[:, rows] += 1
    return out, lse


def fifth_document(q, k, v, *, layout_q, layout_k, **keywords):
    out, lse = rs.attention(q, k, v, layout_q, layout_k, **keywords)
    if layout_q.num_sequences > 4:
        begin = int(layout_q.cu_seqlens_padded[4])
        out[begin : begin + int(layout_q.lengths[4])] *= 2
    return out, lse


def head_dim_from_8(q, k, v, **keywords):
    if q.shape[2] >= 8:
        q = q.copy()
        q[..., 7] = 0
    return rs.attention(q, k, v, **keywords)


def swallowed_sink(q, k, v, *, layout_q, layout_k, mask, softmax_scale, sink=None):
    return rs.attention(q, k, v, layout_q, layout_k, mask=mask, softmax_scale=softmax_scale)


def sink_by_keywords(q, k, v, *, layout_q, layout_k, mask, softmax_scale, **ignored):
    return rs.attention(q, k, v, layout_q, layout_k, mask=mask, softmax_scale=softmax_scale)


FAULTS = (
    keys_from_65,
    rows_from_257,
    fifth_document,
    head_dim_from_8,
    swallowed_sink,
    sink_by_keywords,
)
