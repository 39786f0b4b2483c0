"""Answers to exercise 1: one that holds, and what one writes first."""

import numpy as np


def positions(cu_seqlens, cu_seqlens_padded):
    lengths = np.diff(cu_seqlens)
    where = np.arange(cu_seqlens_padded[-1])
    document = np.searchsorted(cu_seqlens_padded, where, side="right") - 1
    where = where - cu_seqlens_padded[document]
    return np.where(where < lengths[document], where, -1)


def wrong_off_by_one(cu_seqlens, cu_seqlens_padded):
    found = positions(cu_seqlens, cu_seqlens_padded)
    return np.where(found >= 0, found + 1, -1)


def wrong_padding_is_counted(cu_seqlens, cu_seqlens_padded):
    where = np.arange(cu_seqlens_padded[-1])
    return where - cu_seqlens_padded[np.searchsorted(cu_seqlens_padded, where, side="right") - 1]


def wrong_there_is_no_padding(cu_seqlens, cu_seqlens_padded):
    return np.concatenate([[], *(np.arange(n) for n in np.diff(cu_seqlens))]).astype(int)


def wrong_an_empty_document_ends_the_pack(cu_seqlens, cu_seqlens_padded):
    found = np.full(cu_seqlens_padded[-1], -1)
    for begin, length in zip(cu_seqlens_padded, np.diff(cu_seqlens), strict=False):
        if length == 0:
            break
        found[begin : begin + length] = np.arange(length)
    return found


def wrong_the_pack_is_one_document(cu_seqlens, cu_seqlens_padded):
    return np.arange(cu_seqlens_padded[-1])


def is_small(layout):
    return layout.num_rows <= 3 and layout.num_sequences <= 2
