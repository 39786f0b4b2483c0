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
