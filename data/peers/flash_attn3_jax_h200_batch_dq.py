"""flash-attn3-jax 0.2.3: flash_attn3_jax.flash_mha, batch.

pip install flash-attn3-jax==0.2.3 jax==0.11.2 jax-cuda13-plugin==0.11.2
Needs numpy, jax (a GPU for each rank), and nothing else.
"""

import jax

import flash_attn3_jax
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def packs(q, k, v, *, cu_seqlens, longest, window, used=None, **settings):
    lengths = jax.numpy.asarray(cu_seqlens, "int32")
    settings["window_size"] = tuple(window)
    if used is not None:
        settings["seqused_k"] = jax.numpy.asarray(used, "int32")
    both = {"max_seqlen_q": longest, "max_seqlen_k": longest}
    return flash_attn3_jax.flash_mha_varlen(q, k, v, lengths, lengths, **both, **settings)


def batch(q, k, v, *, sequences, window, gpus=1, **settings):
    q, k, v = (x.reshape(sequences, -1, *x.shape[1:]) for x in (q, k, v))
    settings["window_size"] = tuple(window)
    if gpus > 1:  # rows sharded over several: it takes a ring
        mesh = Mesh(jax.devices()[:gpus], ("ring",))
        rows = NamedSharding(mesh, PartitionSpec(None, "ring", None, None))
        q, k, v = (jax.device_put(x, rows) for x in (q, k, v))
    attend = jax.jit(lambda *arrays: flash_attn3_jax.flash_mha(*arrays, **settings))
    out = attend(q, k, v)
    return out.reshape(-1, *out.shape[2:])

# The problem's numbers: normal ones of the type in rows that hold a token.
import numpy as np


def rounded(x, dtype):
    """To the nearest of the type; NumPy has no bfloat16, of 8 bits."""
    if dtype != "bfloat16":
        return x.astype(dtype).astype(np.float64)
    last_bit = np.frexp(x)[1] - 8
    return np.ldexp(np.rint(np.ldexp(x, -last_bit)), last_bit)


def drawn(seed, dtype, other, *arrays):
    """(numbers, shape) of each; arrays are (rows that hold a token, shape)."""
    rng = np.random.default_rng(seed)
    made = []
    for rows, shape in arrays:
        x = np.full(shape, other)
        x[rows] = rounded(rng.normal(size=(len(rows), *shape[1:])), dtype)
        made.append((x, shape))
    return made

nan = float('nan')
# The problem: all rows, each rank's rows, who sees whom.
ROWS = [[*range(0, 81)]]
SEEN = [[*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)], [*range(0, 81)]]
SCALE = 0.25
ARGUMENTS = {'sequences': 1, 'gpus': 1, 'softmax_scale': 0.25, 'is_causal': False, 'window': (-1, -1)}
GRADIENTS = True
DTYPE = jax.numpy.bfloat16
DEVICE = 'cuda'
CALL = batch
PROBLEM = drawn(0, 'bfloat16', nan, ([*range(0, 81)], (81, 1, 128)), ([*range(0, 81)], (81, 1, 128)), ([*range(0, 81)], (81, 1, 128)), ([*range(0, 81)], (81, 1, 128)))

# What it should be: dense, in float64.
import numpy as np


def truth():
    """out, dq, dk, dv of all rows: row i sees key j where SEEN[i] has j."""
    q, k, v, dout = (np.nan_to_num(np.array(x)).reshape(x_shape) for x, x_shape in PROBLEM)
    group = q.shape[1] // k.shape[1]
    wide_k, wide_v = (np.repeat(x, group, axis=1) for x in (k, v))
    seen = np.zeros((len(q), len(k)), bool)
    for row, keys in enumerate(SEEN):
        seen[row, keys] = True
    scores = np.where(seen, np.einsum("qhd,khd->hqk", q, wide_k) * SCALE, -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    out = np.einsum("hqk,khd->qhd", weights, wide_v)
    inner = np.einsum("qhd,khd->hqk", dout, wide_v) - (dout * out).sum(-1).T[..., None]
    ds = weights * inner * SCALE
    dk = np.einsum("hqk,qhd->khd", ds, q).reshape(len(k), -1, group, k.shape[2]).sum(2)
    dv = np.einsum("hqk,qhd->khd", weights, dout).reshape(len(v), -1, group, v.shape[2]).sum(2)
    return {"out": out, "dq": np.einsum("hqk,khd->qhd", ds, wide_k), "dk": dk, "dv": dv}


def compare(got):
    """Prints the largest difference of each result, and the row that it is in."""
    for name, want in truth().items():
        if name in got:
            error = np.abs(np.asarray(got[name], np.float64) - want)
            error = np.where(np.isnan(error), np.inf, error)
            row, head, _ = np.unravel_index(error.argmax(), error.shape)
            print(f"{name}: largest error {error.max():.3g}, in row {row}, head {head}")
            print(f"  got      {np.asarray(got[name], np.float64)[row, head].round(4).tolist()}")
            print(f"  expected {want[row, head].round(4).tolist()}")

# The package, in this process.
import jax


def main():
    for run in range(5 if DEVICE == "cuda" else 1):
        print(f"run {run}")
        run_once()


def run_once():
    if DEVICE == "cuda":  # memory that is free holds NaN: whoever reads what nobody wrote shows it
        for gpu in jax.devices():
            jax.block_until_ready(jax.device_put(jax.numpy.full(1 << 28, nan), gpu))
    q, k, v, dout = (jax.numpy.asarray(x, DTYPE).reshape(x_shape) for x, x_shape in PROBLEM)
    out, pull = jax.vjp(lambda *operands: CALL(*operands, **ARGUMENTS), q, k, v)
    found = {"out": out}
    if GRADIENTS:
        found.update(zip(("dq", "dk", "dv"), pull(dout)))
    compare(found)


if __name__ == "__main__":
    main()
