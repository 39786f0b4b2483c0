"""Answers to exercise 4: one that holds, and what one writes first."""

import ringside as rs


def partition(layout, cp_size):
    pieces = []  # of 512 rows, with the blocks that a causal mask makes of each
    for seq, rows in enumerate(layout.padded_lengths.tolist()):
        for pos in range(0, rows, 512):
            piece = rs.Segment(seq, pos, min(512, rows - pos))
            ends = range(pos + 128, pos + piece.len + 128, 128)
            pieces.append((sum(end // 128 for end in ends), piece))
    load, shards = [0] * cp_size, [[] for _ in range(cp_size)]
    for blocks, piece in sorted(pieces, key=lambda pair: -pair[0]):  # costliest first,
        rank = load.index(min(load))  # each to the rank that has least to do
        load[rank] += blocks
        shards[rank].append(piece)
    return shards


def _dealt(layout, cp_size, size):
    """Pieces of so many rows, in turn."""
    shards, turn = [[] for _ in range(cp_size)], 0
    for seq, rows in enumerate(layout.padded_lengths.tolist()):
        for pos in range(0, rows, size):
            shards[turn % cp_size].append(rs.Segment(seq, pos, min(size, rows - pos)))
            turn += 1
    return shards


def wrong_a_row_is_lost(layout, cp_size):
    shards = partition(layout, cp_size)
    last = max(shards, key=len)
    if last:
        piece = last.pop()
        last += [rs.Segment(piece.seq, piece.pos, piece.len - 1)] if piece.len > 1 else []
    return shards


def wrong_padding_has_no_owner(layout, cp_size):
    return partition(rs.PackedLayout(layout.cu_seqlens), cp_size)


def wrong_whole_documents_only(layout, cp_size):
    load, owners = [0] * cp_size, [0] * layout.num_sequences
    for seq in sorted(range(layout.num_sequences), key=lambda i: -layout.lengths[i]):
        owners[seq] = load.index(min(load))
        load[owners[seq]] += int(layout.lengths[seq]) ** 2
    return owners


def wrong_tiny_chunks(layout, cp_size):
    return _dealt(layout, cp_size, 16)


def wrong_pieces_in_turn(layout, cp_size):
    return _dealt(layout, cp_size, 512)


def wrong_zigzag(layout, cp_size):
    return rs.partition("zigzag", layout, cp_size)


def wrong_runs_of_equal_length(layout, cp_size):
    return rs.partition("whole_pack", layout, cp_size)


def wrong_a_piece_has_two_owners(layout, cp_size):
    shards = partition(layout, cp_size)
    shards[-1] = shards[-1] + shards[0][:1]
    return shards


def is_small(case):
    return len(case.told) < 100 and (case.is_large or len(case.lengths) <= 2)
