import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel, varlen

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def packs(q, k, v, *, cu_seqlens, longest, window, scale):
    lengths = torch.tensor(cu_seqlens, dtype=torch.int32, device=q.device)
    both = (lengths, lengths, longest, longest)
    aux = varlen.AuxRequest(lse=True)
    return varlen.varlen_attn(
        q, k, v, *both, return_aux=aux, scale=scale, window_size=tuple(window)
    )


def heads_first(x, sequences):
    return x.reshape(sequences, -1, *x.shape[1:]).transpose(1, 2)


def rows(x):
    return x.transpose(1, 2).flatten(0, 1)


def sdpa(q, k, v, *, kernel, sequences, **settings):
    q, k, v = (heads_first(x, sequences) for x in (q, k, v))
    grouped = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
    with sdpa_kernel(KERNELS[kernel]):
        return rows(F.scaled_dot_product_attention(q, k, v, **grouped, **settings))


class Ring(torch.autograd.Function):
    """torch's ring over its flash kernel, which it takes no part in choosing."""

    @staticmethod
    def forward(ctx, q, k, v, balance, settings):
        from torch.distributed.tensor.experimental._context_parallel import _attention as cp

        cp._cp_options.enable_load_balance = balance
        cp.set_rotate_method(settings.pop("rotate"))
        kernel = torch.ops.aten._scaled_dot_product_flash_attention
        group = torch.distributed.group.WORLD
        found = cp._templated_ring_attention(group, 2, kernel, q, k, v, **settings)
        out, lse, cu_q, cu_k, max_q, max_k, seed, offset, *_ = found
        ctx.save_for_backward(q, k, v, out, lse, seed, offset)
        ctx.rest = {"cum_seq_q": cu_q, "cum_seq_k": cu_k, "max_q": max_q, "max_k": max_k}
        ctx.settings = settings
        return out

    @staticmethod
    def backward(ctx, dout):
        from torch.distributed.tensor.experimental._context_parallel import _attention as cp

        kernel = torch.ops.aten._scaled_dot_product_flash_attention_backward.default
        q, k, v, out, lse, seed, offset = ctx.saved_tensors
        given = {"query": q, "key": k, "value": v, "out": out, "logsumexp": lse}
        given |= {"philox_seed": seed, "philox_offset": offset, "dropout_p": 0.0}
        given |= ctx.rest | ctx.settings
        found = cp._templated_ring_attention_backward(
            torch.distributed.group.WORLD, 2, kernel, dout, "grad_out", **given
        )
        return (*found[:3], None, None)


def ring(q, k, v, *, sequences, balance, **settings):
    return rows(Ring.apply(*(heads_first(x, sequences) for x in (q, k, v)), balance, settings))
