"""The definition against a third party: jax on the CPU, values and gradients, random dout.

Everything that differs between packed and padded batches is done here in NumPy, from the documented
formulas: jax sees one padded batch, an explicit boolean mask and nothing of ours.
jax.nn.dot_product_attention has its softmax in float32 even for float64 inputs, so that it is held
against float32's rounding; the same formula from jax's own softmax in float64, and its automatic
gradients, against float64's.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from assertions import TOLERANCE, assert_results_close, noted
from hypothesis import given
from hypothesis import strategies as st
from independent import dense_mask, seeing_rows, split
from ringside.testing import Results, strategies

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")

BATCH, TOKENS, DIM = 4, 12, 4  # one shape for all cases: jax compiles once a pair of head counts
# A score, up to some tens, is rounded to 6e-8 of itself; exp makes that a weight's relative error.
FLOAT32 = 64 * float(np.finfo(np.float32).eps)


def dot_product_attention(q, k, v, mask, scale):
    return jax.nn.dot_product_attention(q, k, v, mask=mask, scale=scale, implementation="xla")


def scores_of(q, k, scale):
    return scale * jnp.einsum("bqhd,bkhd->bhqk", q, jnp.repeat(k, q.shape[2] // k.shape[2], axis=2))


def softmax_attention(q, k, v, mask, scale):
    weights = jax.nn.softmax(scores_of(q, k, scale), axis=-1, where=mask)
    v = jnp.repeat(v, q.shape[2] // v.shape[2], axis=2)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


@functools.partial(jax.jit, static_argnums=0)
def values_and_gradients(attention, scale, q, k, v, mask, dout):
    out, vjp = jax.vjp(lambda q, k, v: attention(q, k, v, mask, scale), q, k, v)
    lse = jax.scipy.special.logsumexp(scores_of(q, k, scale), axis=-1, b=mask)
    return out, lse, *vjp(dout)


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


def by_jax(attention, case, arrays):
    """What jax says where a row sees something, and what we say where it sees nothing.

    jax has no answer for a row without keys: it is shown all keys there, and no gradient.
    """
    layout_q, layout_k = case.layout_q, case.keys
    seeing = seeing_rows(case.mask, layout_q, layout_k)
    mask = np.zeros((BATCH, 1, TOKENS, TOKENS), bool)
    for s, (n_q, n_k) in enumerate(zip(layout_q.lengths, layout_k.lengths, strict=True)):
        mask[s, 0, :n_q, :n_k] = dense_mask(case.mask, int(n_q), int(n_k))
    mask |= ~mask.any(axis=-1, keepdims=True)
    dout = np.where(seeing[:, None, None], arrays.dout, 0.0)
    inputs = [
        batched(x, layout)
        for x, layout in zip(arrays[:3], (layout_q, layout_k, layout_k), strict=True)
    ]
    results = values_and_gradients(attention, case.scale, *inputs, mask, batched(dout, layout_q))
    out, lse, dq, dk, dv = (np.asarray(x) for x in results)
    assert all(x.dtype == np.float64 for x in (out, lse, dq, dk, dv))
    return Results(
        np.where(seeing[:, None, None], packed(out, layout_q), 0.0),
        np.where(seeing, packed(lse.transpose(0, 2, 1), layout_q).T, -np.inf),
        np.where(seeing[:, None, None], packed(dq, layout_q), 0.0),
        packed(dk, layout_k),
        packed(dv, layout_k),
    )


def layouts_k(layout_q):
    batch = layout_q.num_sequences
    lengths = strategies.lengths(min_sequences=batch, max_sequences=batch, max_length=TOKENS)
    return st.one_of(st.none(), strategies.layouts(lengths=lengths))


CASES = noted(
    strategies.cases(
        layouts_q=strategies.layouts(
            lengths=strategies.lengths(max_sequences=BATCH, max_length=TOKENS)
        ),
        layouts_k=layouts_k,
        heads=st.sampled_from([(1, 1), (4, 2), (3, 1), (2, 2)]),
        head_dims=st.just(DIM),
        softmax_scales=st.sampled_from([None, 1.5]),
        cp_sizes=st.just(1),
    )
)


@given(CASES)
def test_the_definition_is_what_jax_has_as_dot_product_attention(case):
    arrays = case.arrays()
    wanted = by_jax(dot_product_attention, case, arrays)
    assert_results_close(case, case.by_definition(arrays), wanted, arrays, tolerance=FLOAT32)


@given(CASES)
def test_the_definition_is_jax_softmax_and_its_automatic_gradients_in_float64(case):
    arrays = case.arrays()
    wanted = by_jax(softmax_attention, case, arrays)
    assert_results_close(case, case.by_definition(arrays), wanted, arrays, tolerance=TOLERANCE)
