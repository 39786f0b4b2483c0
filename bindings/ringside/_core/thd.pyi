# mypy: disable-error-code="assignment,override,overload-overlap"
from __future__ import annotations

import typing

import numpy
import numpy.typing
import ringside._core

def all_gather_step_metadata(
    layout: ringside._core.PackedLayout,
    layout_k: ringside._core.PackedLayout,
    cp_size: typing.SupportsIndex,
    rank: typing.SupportsIndex,
    mask: ringside._core.Mask,
) -> list: ...
def canonical_cu_seqlens_k(
    lengths: typing.Any, begin: typing.SupportsIndex, end: typing.SupportsIndex
) -> tuple: ...
def check_canonical_cu_seqlens_k(cu_seqlens_k: typing.Any) -> None: ...
def check_offsets(
    cu_seqlens_padded: typing.Any,
    cu_seqlens: typing.Any,
    num_rows: typing.SupportsIndex | None,
    covers: bool,
) -> None: ...
def chunkify(layout: ringside._core.PackedLayout, chunk_size: typing.SupportsIndex) -> tuple: ...
def chunkify_p2p(
    layout: ringside._core.PackedLayout,
    chunk_size: typing.SupportsIndex,
    cp_size: typing.SupportsIndex,
    rank: typing.SupportsIndex,
) -> tuple: ...
def chunkify_p2p_above_diagonal(
    layout: ringside._core.PackedLayout,
    chunk_size: typing.SupportsIndex,
    cp_size: typing.SupportsIndex,
    rank: typing.SupportsIndex,
    kv_rank: typing.SupportsIndex,
) -> tuple: ...
def chunkify_p2p_below_diagonal(
    layout: ringside._core.PackedLayout,
    chunk_size: typing.SupportsIndex,
    cp_size: typing.SupportsIndex,
    rank: typing.SupportsIndex,
    kv_rank: typing.SupportsIndex,
) -> tuple: ...
def copy_valid_tokens(
    out: typing.Any, step_out: typing.Any, cu_seqlens_padded: typing.Any, cu_seqlens: typing.Any
) -> None: ...
def cp_rank_order_to_sequence_order(
    x: typing.Any, cu_seqlens_padded: typing.Any, cp_size: typing.SupportsIndex
) -> numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]: ...
def p2p_step_metadata(
    layout: ringside._core.PackedLayout,
    layout_k: ringside._core.PackedLayout,
    cp_size: typing.SupportsIndex,
    rank: typing.SupportsIndex,
    step: typing.SupportsIndex,
    mask: ringside._core.Mask,
) -> dict: ...
def partition_indices(
    cu_seqlens_padded: typing.Any, cp_size: typing.SupportsIndex, rank: typing.SupportsIndex
) -> numpy.typing.NDArray[numpy.int32]: ...
def sequence_order_to_cp_rank_order(
    x: typing.Any, cu_seqlens_padded: typing.Any, cp_size: typing.SupportsIndex
) -> numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]: ...
