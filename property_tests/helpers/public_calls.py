"""A good call of each public function, class and method, from which bad ones are made."""

import pathlib
import sys
import tempfile
import types
import unittest.mock

import numpy as np
import ringside as rs
from bad_calls import LAYOUT, LSE, OUT, PLAN, K, Q, V

OFFSETS, PADDED = [0, 3, 5], [0, 4, 6]
MASK = rs.Mask.causal()
CUSTOM = [[rs.Segment(0, 0, 3)], [rs.Segment(0, 3, 1), rs.Segment(1, 0, 2)]]
OPTIONS = dict.fromkeys(
    ("softmax_scale", "softcap", "sink", "alibi_slopes", "bias", "dropout_p", "dropout_seed")
)
OPTIONS |= {"softcap": 0.0, "dropout_p": 0.0, "dropout_seed": 0}
BACKWARD = {**OPTIONS, "options": None, "qkv_format": "thd"}
FORWARD = {**BACKWARD, "return_max_logit": False}
CHUNKS = {"cu_seqlens": OFFSETS, "cu_seqlens_padded": PADDED, "chunk_size": 2}
RANK = {"cp_size": 2, "rank": 1}
ON_DEVICE = {"num_rows": None, "capacity": None}
STEP = {"layout": LAYOUT, **RANK, "mask": MASK, "layout_k": LAYOUT, "capacity": None}
GROUP = rs.init(ranks_per_process=2)
OF_PLAN = {
    **{"layout_q": LAYOUT, "layout_k": LAYOUT, "mask": MASK, "cp_size": 2},
    **{"partition": CUSTOM, "partition_k": CUSTOM, "comm": "a2a+p2p", "a2a_size": 1},
    **{"stages": None, "num_heads": 4, "num_kv_heads": 2},
}
COUNTED = {
    **{"head_dim": 128, "head_dim_v": 128, "bytes_per_element": 2, "block_size": (128, 128)},
    **{"model": "h200", "dtype": "bfloat16"},
}
OF_MODEL = {"head_dim": 128, "head_dim_v": 128, "dtype": "bfloat16"}
FILE = pathlib.Path(tempfile.mkdtemp()) / "h200.json"
rs.TimeModel.preset("h200").save(FILE)
REORDER = {"x": Q, "cu_seqlens_padded": PADDED, "cp_size": 2}


def buffer_after(pieces):
    """A MicroSequenceBuffer that has gone forward so many times."""
    buffer = rs.MicroSequenceBuffer(LAYOUT, [0, 6], num_heads=4, num_kv_heads=2)
    for i in range(pieces):
        buffer.forward(i, Q, K, V)
    return buffer


def bound(make, name, **good):
    """A method of an object made anew for each call."""
    return (lambda **kwargs: getattr(make(), name)(**kwargs)), good


def plan(name, **good):
    return bound(lambda: PLAN, name, **good)


def layout(name, **good):
    return bound(lambda: LAYOUT, name, **good)


def mask(name, **good):
    return bound(lambda: MASK, name, **good)


def over_torch(**good):
    """rs.init_from, where this process is all that torch.distributed knows."""
    stand_in = types.ModuleType("torch.distributed")
    stand_in.get_rank, stand_in.get_world_size = (lambda _: 0), (lambda _: 1)
    stand_in.all_gather_object = stand_in.broadcast_object_list = lambda *_, **__: None
    names = {"torch": types.ModuleType("torch"), "torch.distributed": stand_in}
    with unittest.mock.patch.dict(sys.modules, names):
        return rs.init_from(**good)


def of_ranks(**arrays):
    """What each rank of PLAN has of these, under the names of rank calls."""
    return {
        f"{name}_r": [PLAN.shard(x, rank, side="k" if name in "kv" else "q") for rank in (0, 1)]
        for name, x in arrays.items()
    }


LSE_OF_RANKS = {"lse_r": [np.ones((4, 3))] * 2}
SAVED = {"dout": OUT, "q": Q, "k": K, "v": V, "out": OUT, "lse": LSE}
POSITIONS = {"q": 0, "len_q": 3, "len_k": 3}
CALLS = {
    "DevicePlan": (
        rs.DevicePlan,
        {
            **{"max_sequences": 4, "num_rows_q": 8, "num_rows_k": 8, "mask": MASK, "cp_size": 2},
            **{"partition": "zigzag", "comm": "p2p", "a2a_size": None, "num_heads": 1},
            **{"num_kv_heads": 1, "pad_to_multiple_of": 1},
        },
    ),
    "Group.close": bound(rs.init, "close"),
    "Group.explain": bound(lambda: GROUP, "explain"),
    "Group.synchronize": bound(lambda: GROUP, "synchronize"),
    "Mask": (rs.Mask, {"window_size": (2, 0), "chunk_size": 0, "align": "top_left"}),
    "Mask.allows": mask("allows", **POSITIONS, k=0),
    "Mask.causal": (rs.Mask.causal, {"align": "top_left"}),
    "Mask.chunked": (rs.Mask.chunked, {"chunk_size": 4, "align": "top_left"}),
    "Mask.full": (rs.Mask.full, {}),
    "Mask.sliding_window": (
        rs.Mask.sliding_window,
        {"left": 2, "right": 0, "align": "top_left"},
    ),
    "Mask.to_dense": mask("to_dense", len_q=3, len_k=3),
    "Mask.visible": mask("visible", **POSITIONS),
    "MicroSequenceBuffer": (
        rs.MicroSequenceBuffer,
        {"layout": LAYOUT, "splits": [0, 2, 6], "mask": MASK, "cp_size": 2, "num_heads": 2},
    ),
    "MicroSequenceBuffer.backward": bound(
        lambda: buffer_after(1), "backward", i=0, dout=OUT, q=Q, out=OUT, lse=LSE
    ),
    "MicroSequenceBuffer.first_document_begin": bound(
        lambda: buffer_after(0), "first_document_begin", i=0
    ),
    "MicroSequenceBuffer.forward": bound(
        lambda: buffer_after(0), "forward", i=0, q=Q, k=K, v=V, softcap=0.0, dropout_seed=1
    ),
    "MicroSequenceBuffer.layouts": bound(lambda: buffer_after(0), "layouts", i=0),
    "Options": (rs.Options, OPTIONS),
    "PackedLayout": (rs.PackedLayout, {"cu_seqlens": OFFSETS, "cu_seqlens_padded": PADDED}),
    "PackedLayout.from_flash": (
        rs.PackedLayout.from_flash,
        {"cu_seqlens": PADDED, "seqused": [3, 2]},
    ),
    "PackedLayout.from_lengths": (
        rs.PackedLayout.from_lengths,
        {"lengths": [3, 2], "pad_to_multiple_of": 4},
    ),
    "PackedLayout.from_position_ids": (
        rs.PackedLayout.from_position_ids,
        {"position_ids": [0, 1, 0]},
    ),
    "PackedLayout.from_segment_ids": (
        rs.PackedLayout.from_segment_ids,
        {"segment_ids": [1, 1, 2]},
    ),
    "PackedLayout.from_te": (
        rs.PackedLayout.from_te,
        {"cu_seqlens": OFFSETS, "cu_seqlens_padded": PADDED, "num_rows": 8},
    ),
    "PackedLayout.pack": layout("pack", arrays=[np.arange(3), np.arange(2)], fill_value=7),
    "PackedLayout.roll": layout("roll", x=np.arange(6), shift=1, fill_value=7),
    "PackedLayout.unpack": layout("unpack", x=np.arange(6)),
    "Plan.attention": plan("attention", q=Q, k=K, v=V, backend="reference", **FORWARD),
    "Plan.attention_backward": plan(
        "attention_backward", **SAVED, **BACKWARD, deterministic=True, backend="reference"
    ),
    "Plan.attention_backward_rank": plan(
        "attention_backward_rank",
        **of_ranks(dout=OUT, q=Q, k=K, v=V, out=OUT),
        **{**LSE_OF_RANKS, **OPTIONS, "options": None, "group": GROUP, "backend": "reference"},
        **{"exchange": "auto", "deterministic": False, "kept_kv": None},
    ),
    "Plan.attention_rank": plan(
        "attention_rank",
        **of_ranks(q=Q, k=K, v=V),
        **{**OPTIONS, "options": None, "group": GROUP, "return_max_logit": False},
        **{"exchange": "auto", "keep_kv": False},
        backend="reference",
    ),
    "Plan.cost": plan("cost", **COUNTED, keep_kv=False),
    "Plan.draw": plan("draw", path=None),
    "Plan.draw_heads": plan("draw_heads", path=None, ax=None),
    "Plan.draw_mask": plan("draw_mask", path=None, head=0, sequence=0, mark=(0, 0), ax=None),
    "Plan.draw_ranks": plan("draw_ranks", path=None, sequence=0),
    "Plan.draw_shards": plan("draw_shards", path=None, ax=None),
    "Plan.draw_story": plan("draw_story", row=0, path=None, q=Q, k=K, head=0, ax=None),
    "Plan.draw_timeline": plan("draw_timeline", path=None, timeline=None, ax=None),
    "Plan.draw_work": plan("draw_work", path=None, ax=None),
    "Plan.exchange": plan("exchange", step=0, operand="q", buffers=[np.ones((3, 4, 2))] * 2),
    "Plan.exchange_transposed": plan(
        "exchange_transposed", step=0, operand="q", buffers=[np.ones((3, 4, 2))] * 2
    ),
    "Plan.explain": plan("explain"),
    "Plan.first_steps": plan("first_steps", steps=1),
    "Plan.from_json": (rs.Plan.from_json, {"text": PLAN.to_json()}),
    "Plan.position_ids": plan("position_ids", rank=1, side="q"),
    "Plan.roll": plan("roll", x=np.arange(6), shift=1, fill_value=7),
    "Plan.prepare": plan(
        "prepare",
        **{**OPTIONS, "options": None, "group": GROUP, "head_dim": 8, "head_dim_v": 8},
        **{"dtype": "float32", "device": None, "exchange": "auto", "keep_kv": False},
    ),
    "Plan.row_indices": plan("row_indices", rank=1, side="q"),
    "Plan.timeline": plan("timeline", model="h200", direction="backward", **OF_MODEL),
    "TimeModel.kernel": bound(lambda: rs.TimeModel.preset("h200"), "kernel", **OF_MODEL),
    "TimeModel.load": (rs.TimeModel.load, {"path": FILE}),
    "TimeModel.preset": (rs.TimeModel.preset, {"name": "h200"}),
    "TimeModel.presets": (rs.TimeModel.presets, {}),
    "TimeModel.save": bound(lambda: rs.TimeModel.preset("h200"), "save", path=FILE),
    "Timeline.save": bound(lambda: PLAN.timeline("h200"), "save", path=FILE.with_name("x.json")),
    "Plan.shard": plan("shard", x=np.arange(6), rank=1, side="k"),
    "Plan.shards_k": plan("shards_k", rank=1),
    "Plan.shards_q": plan("shards_q", rank=1),
    "Plan.steps": plan("steps", rank=1),
    "Plan.story": plan("story", row=0, q=Q, k=K, head=0),
    "Plan.tables": plan("tables"),
    "Plan.to_json": plan("to_json"),
    "Plan.unshard": plan("unshard", parts=[np.arange(3), np.arange(3)], side="q"),
    "Plan.schedule": plan("schedule", rank=0, backward=True, keep_kv=True),
    "Plan.show": plan("show", compare=PLAN),
    "Plan.verify": plan("verify"),
    "Plan.who": plan("who", row=0, key=0),
    "Segment": (rs.Segment, {"seq": 0, "pos": 0, "len": 2, "stride": 1, "row": 0}),
    "attention": (
        rs.attention,
        {"q": Q, "k": K, "v": V, "layout_q": LAYOUT, "layout_k": LAYOUT, "mask": MASK, **FORWARD},
    ),
    "attention_backward": (
        rs.attention_backward,
        {**SAVED, "layout_q": LAYOUT, "layout_k": LAYOUT, "mask": MASK, **BACKWARD},
    ),
    "draw_layout": (rs.draw_layout, {"layout": LAYOUT, "path": None, "ax": None}),
    "draw_mask": (
        rs.draw_mask,
        {
            **{"mask": MASK, "layout": LAYOUT, "layout_k": LAYOUT, "path": None, "ax": None},
            **{"against": np.ones((6, 6), bool), "sequence": 0, "mark": (0, 0)},
        },
    ),
    "flash_attn_varlen_func": (
        rs.flash_attn_varlen_func,
        {
            **{"q": Q, "k": K, "v": V, "cu_seqlens_q": PADDED, "cu_seqlens_k": PADDED},
            **{"max_seqlen_q": 4, "max_seqlen_k": 4, "seqused_q": [3, 2], "seqused_k": [3, 2]},
            **{"softmax_scale": 1.0, "causal": True, "window_size": (-1, 0), "softcap": 0.0},
            **{"attention_chunk": 0, "deterministic": True, "return_attn_probs": True},
            **{"options": None, "sink": None, "alibi_slopes": None, "bias": None},
            **{"dropout_p": 0.0, "dropout_seed": 0, "num_splits": 1, "sm_margin": 0},
            **dict.fromkeys(("pack_gqa", "qv", "q_descale", "k_descale", "v_descale")),
            "block_table": None,
        },
    ),
    "Plan.diff": plan("diff", other=PLAN),
    "from_ranges": (
        rs.from_ranges,
        {"q_ranges": [[0, 3], [3, 8]], "k_ranges": [[0, 3], [3, 8]], "types": "full"}
        | {"num_rows_q": 9, "num_rows_k": 9},
    ),
    "init": (
        rs.init,
        {
            **{"rank": [0, 1], "size": 2, "ranks_per_process": 1, "timeout_s": 5.0},
            **{"address": "127.0.0.1:99", "key": "secret", "name": "pair"},
        },
    ),
    "init_from": (over_torch, {"ranks_per_process": 2, "timeout_s": 5.0}),
    "partition": (
        rs.partition,
        {"name": "zigzag", "layout": LAYOUT, "cp_size": 2, "mask": MASK},
    ),
    "lengths.load": (rs.lengths.load, {"name_or_path": "long_tail_pack", "cu_seqlens": False}),
    "lengths.names": (rs.lengths.names, {}),
    "lengths.parse": (rs.lengths.parse, {"text": "5,7", "source": "mine", "cu_seqlens": False}),
    "lengths.pack": (rs.lengths.pack, {"lengths": [3, 2], "tokens": 4}),
    "plan": (rs.plan, {**OF_PLAN, "max_tiles": 99, "name": "mine"}),
    "estimate": (rs.estimate, {**OF_PLAN, **COUNTED}),
    "thd.add_rows": (
        rs.thd.add_rows,
        {
            **{"accumulator": np.ones(6, np.float32), "x": np.ones(6, np.float32)},
            "segments": [(0, 1, 0, 1, 2)],
        },
    ),
    "thd.check_step_metadata": (
        rs.thd.check_step_metadata,
        {
            "theirs": [rs.thd.p2p_step_metadata(LAYOUT, 2, 1, step, MASK) for step in range(2)],
            **{"layout": LAYOUT, **RANK, "mask": MASK, "layout_k": LAYOUT, "comm": "p2p"},
        },
    ),
    "thd.all_gather_step_metadata": (rs.thd.all_gather_step_metadata, STEP),
    "thd.canonical_cu_seqlens_k": (
        rs.thd.canonical_cu_seqlens_k,
        {"lengths": [3, 2], "begin": 1, "end": 4},
    ),
    "thd.check_canonical_cu_seqlens_k": (
        rs.thd.check_canonical_cu_seqlens_k,
        {"cu_seqlens_k": OFFSETS},
    ),
    "thd.check_offsets": (
        rs.thd.check_offsets,
        {"cu_seqlens_padded": PADDED, "cu_seqlens": OFFSETS, "num_rows": 6, "covers": True},
    ),
    "thd.check_segments": (
        rs.thd.check_segments,
        {"segments": [(0, 1, 0, 1, 2)], "out_rows": 6, "x_rows": 6},
    ),
    "thd.chunkify": (rs.thd.chunkify, {**CHUNKS, **ON_DEVICE}),
    "thd.chunkify_p2p": (rs.thd.chunkify_p2p, {**CHUNKS, **RANK, **ON_DEVICE}),
    "thd.chunkify_p2p_above_diagonal": (
        rs.thd.chunkify_p2p_above_diagonal,
        {**CHUNKS, "cp_size": 2, "rank": 0, "kv_rank": 1},
    ),
    "thd.chunkify_p2p_below_diagonal": (
        rs.thd.chunkify_p2p_below_diagonal,
        {**CHUNKS, **RANK, "kv_rank": 0},
    ),
    "thd.copy_rows": (
        rs.thd.copy_rows,
        {"out": np.zeros(6), "x": np.ones(6), "segments": [(0, 1, 0, 1, 2)]},
    ),
    "thd.copy_valid_tokens": (
        rs.thd.copy_valid_tokens,
        {
            **{"out": np.zeros(6), "step_out": np.ones(6)},
            **{"cu_seqlens_padded": PADDED, "cu_seqlens": OFFSETS},
        },
    ),
    "thd.cp_rank_order_to_sequence_order": (rs.thd.cp_rank_order_to_sequence_order, REORDER),
    "thd.p2p_step_metadata": (rs.thd.p2p_step_metadata, {**STEP, "step": 1}),
    "thd.pad_to_multiple": (
        rs.thd.pad_to_multiple,
        {
            **{"tokens": np.arange(5), "labels": np.arange(5), "cu_seqlens": OFFSETS},
            **{"multiple": 4, "pad_token": 7, "pad_label": -100},
        },
    ),
    "thd.partition_indices": (
        rs.thd.partition_indices,
        {"cu_seqlens_padded": PADDED, **RANK, **ON_DEVICE},
    ),
    "thd.sequence_order_to_cp_rank_order": (rs.thd.sequence_order_to_cp_rank_order, REORDER),
}
