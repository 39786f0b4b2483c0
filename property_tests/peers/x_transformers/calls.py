import torch
from x_transformers.attend import Attend


def batch(q, k, v, *, sequences, causal, flash, scale):
    heads = q.shape[1]
    q, k, v = (x.reshape(sequences, -1, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
    attend = Attend(heads=heads, causal=causal, flash=flash, scale=scale)
    return attend(q, k, v)[0].transpose(1, 2).flatten(0, 1)


def masked(q, k, v, *, seen, flash, scale):
    mask = torch.tensor(seen, dtype=torch.bool)[None, None]
    attend = Attend(heads=q.shape[1], flash=flash, scale=scale)
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return attend(q, k, v, mask=mask)[0][0].transpose(0, 1)
