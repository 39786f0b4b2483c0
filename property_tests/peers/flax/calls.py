import jax
from flax import nnx


def packed(q, k, v, *, documents, causal):
    """Packs as the docstring of make_attention_mask has them: by equal segment ids."""
    ids = jax.numpy.asarray(documents)[None]
    mask = nnx.make_attention_mask(ids, ids, jax.numpy.equal)
    if causal:
        mask = nnx.combine_masks(mask, nnx.make_causal_mask(ids))
    return nnx.dot_product_attention(q[None], k[None], v[None], mask=mask)[0]


def batch(q, k, v, *, sequences, causal):
    q, k, v = (x.reshape(sequences, -1, *x.shape[1:]) for x in (q, k, v))
    return nnx.dot_product_attention(q, k, v, is_causal=causal).reshape(-1, *q.shape[2:])
