import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def heads_first(x, sequences=1):
    return x.reshape(sequences, -1, *x.shape[1:]).transpose(1, 2)


def rows(x):
    return x.transpose(1, 2).flatten(0, 1)


class Ring(torch.autograd.Function):
    """torch's ring over the CPU's own flash kernel, which it takes no part in choosing."""

    @staticmethod
    def forward(ctx, q, k, v, balance, settings):
        from torch.distributed.tensor.experimental._context_parallel import _attention as cp

        cp._cp_options.enable_load_balance = balance
        cp.set_rotate_method(settings.pop("rotate"))
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        group = torch.distributed.group.WORLD
        out, lse = cp._templated_ring_attention(group, 2, kernel, q, k, v, **settings)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.settings = settings
        return out

    @staticmethod
    def backward(ctx, dout):
        from torch.distributed.tensor.experimental._context_parallel import _attention as cp

        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
        q, k, v, out, lse = ctx.saved_tensors
        given = {"query": q, "key": k, "value": v, "out": out, "logsumexp": lse}
        settings = {"dropout_p": 0.0, **ctx.settings}
        found = cp._templated_ring_attention_backward(
            torch.distributed.group.WORLD, 2, kernel, dout, "grad_out", **given, **settings
        )
        return (*found[:3], None, None)


def ring(q, k, v, *, sequences, balance, **settings):
    return rows(Ring.apply(*(heads_first(x, sequences) for x in (q, k, v)), balance, settings))


def sdpa(q, k, v, *, sequences, **settings):
    q, k, v = (heads_first(x, sequences) for x in (q, k, v))
    return rows(F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **settings))


def masked(q, k, v, *, seen, scale):
    mask = torch.tensor(seen, dtype=torch.bool)
    return sdpa(q, k, v, sequences=1, attn_mask=mask, scale=scale)


def flex(q, k, v, *, documents, left, right, scale):
    document = torch.tensor(documents)

    def visible(b, h, i, j):
        return (document[i] == document[j]) & (j - i <= right) & (i - j <= left)

    blocks = create_block_mask(visible, None, None, len(q), len(k), device="cpu")
    q, k, v = map(heads_first, (q, k, v))
    return rows(flex_attention(q, k, v, block_mask=blocks, scale=scale, enable_gqa=True))
