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
