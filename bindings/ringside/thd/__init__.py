"""The primitives that users of Transformer Engine, FlashAttention and Fast-LLM hold in their hands.

Everything is about packed arrays (THD: tokens first) in dual chunks: each sequence is cut into
2*cp_size chunks, of which rank r holds number r, then number 2*cp_size-1-r. It is the partition
"zigzag" of ringside.plan; unlike the peers', it takes any length, chunk c beginning at row
floor(c * rows / (2*cp_size)) of its sequence. Names say from -> to. cu_seqlens* are global unless a
docstring says local.

**On a device.** Where all arrays of a call lie on one (torch, CuPy), so does the result, of the
same kind. The work is put on the current stream and nothing is read back, so calls may be captured
in a CUDA graph and replayed with other lengths in the same memory. cu_seqlens* are then int32 or
int64 on the device, and their values cannot be checked: whatever they hold, no memory outside the
arrays is touched, but results are only right for valid ones. check_offsets and check_segments look
at them, wait for the device, and raise what the functions on the host would.
"""

from __future__ import annotations

from ringside._arrays.layout import DeviceLayout
from ringside.thd._check_steps import MetadataReport, check_step_metadata
from ringside.thd._chunks import (
    PiecePairs,
    Pieces,
    chunkify,
    chunkify_p2p,
    chunkify_p2p_above_diagonal,
    chunkify_p2p_below_diagonal,
)
from ringside.thd._micro_sequences import (
    MicroSequence,
    canonical_cu_seqlens_k,
    check_canonical_cu_seqlens_k,
)
from ringside.thd._on_device import DeviceIndices, DevicePieces
from ringside.thd._padding import PaddedBatch, pad_to_multiple
from ringside.thd._rows import (
    check_offsets,
    copy_valid_tokens,
    cp_rank_order_to_sequence_order,
    partition_indices,
    sequence_order_to_cp_rank_order,
)
from ringside.thd._segments import add_rows, check_segments, copy_rows
from ringside.thd._steps import StepMetadata, all_gather_step_metadata, p2p_step_metadata

__all__ = [
    "DeviceIndices",
    "DeviceLayout",
    "DevicePieces",
    "MetadataReport",
    "MicroSequence",
    "PaddedBatch",
    "PiecePairs",
    "Pieces",
    "StepMetadata",
    "add_rows",
    "all_gather_step_metadata",
    "canonical_cu_seqlens_k",
    "check_canonical_cu_seqlens_k",
    "check_offsets",
    "check_segments",
    "check_step_metadata",
    "chunkify",
    "chunkify_p2p",
    "chunkify_p2p_above_diagonal",
    "chunkify_p2p_below_diagonal",
    "copy_rows",
    "copy_valid_tokens",
    "cp_rank_order_to_sequence_order",
    "p2p_step_metadata",
    "pad_to_multiple",
    "partition_indices",
    "sequence_order_to_cp_rank_order",
]
