from types import SimpleNamespace

import torch
from transformers import LlamaConfig, masking_utils
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.llama.modeling_llama import eager_attention_forward

ATTEND = {"sdpa": sdpa_attention_forward, "eager": eager_attention_forward}


def packed(q, k, v, *, kind, positions, mask, scaling, **settings):
    """position_ids alone say where a document begins; attention_mask is None."""
    config = LlamaConfig(attn_implementation=kind)
    for name, value in settings.items():
        setattr(config, name, value)
    make = getattr(masking_utils, f"create_{mask}_mask")
    ids = torch.tensor(positions, device=q.device)[None]
    made = make(config, torch.zeros(1, len(q), 1, device=q.device), None, None, position_ids=ids)
    groups = q.shape[1] // k.shape[1]
    module = SimpleNamespace(num_key_value_groups=groups, is_causal=True, training=False)
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return ATTEND[kind](module, q, k, v, made, scaling=scaling, dropout=0.0)[0][0]
