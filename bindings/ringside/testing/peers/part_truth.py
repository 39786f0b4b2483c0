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
