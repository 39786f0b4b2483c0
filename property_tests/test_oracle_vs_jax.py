"""The definition against a third party: jax.nn.dot_product_attention, float64, on the CPU.

Everything that differs between packed and padded batches is done here in NumPy, from the documented
formulas: jax sees one padded batch, an explicit boolean mask and nothing of ours.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from assertions import assert_results_close, noted
from hypothesis import given
from hypothesis import strategies as st
from independent import dense_mask, seeing_rows, split
from ringside.testing import Results, strategies

import ringside as rs

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")

BATCH, TOKENS, DIM = 4, 12, 4  # one shape for all cases: jax compiles once a pair of head counts


@functools.cache
def jitted(scale):
    def values_and_gradients(q, k, v, mask, dout):
        def attend(q, k, v):
            return jax.nn.dot_product_attention(
                q, k, v, mask=mask, scale=scale, implementation="xla"
            )

        out, vjp = jax.vjp(attend, q, k, v)
        return out, *vjp(dout)

    return jax.jit(values_and_gradients)


def batched(x, layout):
    """[BATCH, TOKENS, heads, dim] with zeros where there is no token."""
    batch = np.zeros((BATCH, TOKENS, *x.shape[1:]))
    for s, rows in enumerate(split(x, layout)):
        batch[s, : len(rows)] = rows
    return batch


def packed(batch, layout):
    """Back to rows, zero in padding."""
    rows = np.zeros((layout.num_rows, *batch.shape[2:]))
    for s, sequence in enumerate(split(rows, layout)):
        sequence[...] = batch[s, : len(sequence)]
    return rows


def by_jax(case, arrays):
    """(out, dq, dk, dv). jax averages all keys where a row sees none: there we say zero."""
    layout_q, layout_k = case.layout_q, case.keys
    seeing = seeing_rows(case.mask, layout_q, layout_k)[:, None, None]
    mask = np.zeros((BATCH, 1, TOKENS, TOKENS), bool)
    for s, (n_q, n_k) in enumerate(zip(layout_q.lengths, layout_k.lengths, strict=True)):
        mask[s, 0, :n_q, :n_k] = dense_mask(case.mask, int(n_q), int(n_k))
    q, k, v, dout = arrays
    inputs = [batched(q, layout_q), batched(k, layout_k), batched(v, layout_k)]
    dout = batched(np.where(seeing, dout, 0.0), layout_q)
    results = jitted(case.scale)(*inputs, mask, dout)
    assert all(x.dtype == jnp.float64 for x in results)
    out, dq, dk, dv = (np.asarray(x) for x in results)
    return (
        np.where(seeing, packed(out, layout_q), 0.0),
        np.where(seeing, packed(dq, layout_q), 0.0),
        packed(dk, layout_k),
        packed(dv, layout_k),
    )


LENGTHS = strategies.lengths(max_sequences=BATCH, max_length=TOKENS)


def layouts_k(layout_q):
    batch = layout_q.num_sequences
    lengths = strategies.lengths(
        min_sequences=batch, max_sequences=batch, max_length=TOKENS
    )
    return st.one_of(st.none(), strategies.layouts(lengths=lengths))


CASES = noted(
    strategies.cases(
        layouts_q=strategies.layouts(lengths=LENGTHS),
        layouts_k=layouts_k,
        heads=st.sampled_from([(1, 1), (4, 2), (3, 1), (2, 2)]),
        head_dims=st.just(DIM),
        softmax_scales=st.sampled_from([None, 1.5]),
        cp_sizes=st.just(1),
    )
)


@given(CASES)
def test_the_definition_is_attention_as_jax_has_it(case):
    arrays = case.arrays()
    ours = case.by_definition(arrays)
    out, dq, dk, dv = by_jax(case, arrays)
    assert_results_close(case, ours, Results(out, ours.lse, dq, dk, dv), arrays)


@given(CASES)
def test_lse_is_the_log_of_the_summed_exponentials(case):
    """jax returns no lse; with the keys' own lse as values it does: log of a mean times a count."""
    q, k, v, _ = case.arrays()
    _, lse = rs.attention(
        q, k, v, case.layout_q, case.layout_k, mask=case.mask, softmax_scale=case.softmax_scale
    )
    group = case.num_heads // case.num_kv_heads
    for s, (n_q, n_k) in enumerate(zip(case.layout_q.lengths, case.keys.lengths, strict=True)):
        dense = dense_mask(case.mask, int(n_q), int(n_k))
        rows_k = split(k, case.keys)[s].repeat(group, axis=1)
        scores = case.scale * jnp.einsum("qhd,khd->hqk", split(q, case.layout_q)[s], rows_k)
        wanted = jax.scipy.special.logsumexp(scores, axis=-1, b=dense[None], keepdims=False)
        got = split(lse.T, case.layout_q)[s].T
        np.testing.assert_allclose(got, np.asarray(wanted).reshape(got.shape), rtol=0, atol=1e-12)
