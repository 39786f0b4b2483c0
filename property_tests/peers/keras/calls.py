import os

os.environ["KERAS_BACKEND"] = "torch"

import keras


def batch(q, k, v, *, sequences, causal, scale):
    q, k, v = (x.reshape(sequences, -1, *x.shape[1:]) for x in (q, k, v))
    out = keras.ops.dot_product_attention(q, k, v, scale=scale, is_causal=causal)
    return out.flatten(0, 1)


def masked(q, k, v, *, seen, scale):
    mask = keras.ops.convert_to_tensor(seen, dtype="bool")[None, None]
    return keras.ops.dot_product_attention(q[None], k[None], v[None], mask=mask, scale=scale)[0]
