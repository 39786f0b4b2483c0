"""The balanced partition on real lengths, counted in the blocks that a kernel would pay for.

Blocks are counted here from who owns what, by NumPy, without the plan's tiles: rows of queries and
of keys are cut in blocks of 128 where a rank's piece begins, and a block counts that holds a pair
of the causal mask. Run the file itself for the table, other partitions beside it.
"""

import math
import time

import numpy as np
import pytest
import ringside as rs

BLOCK = 128
CP_SIZES = (8, 32, 64)
HISTOGRAM = "pretraining_mix_histogram"


def taken(name, tokens):
    """The first documents of a trace that fill a pack; the last one is cut."""
    ends = np.minimum(np.cumsum(rs.lengths.load(name)), tokens)
    return np.diff(ends[: int(np.searchsorted(ends, tokens)) + 1], prepend=0).tolist()


def drawn(tokens, seed):
    """Lengths drawn from the published histogram, even inside a bin."""
    from pathlib import Path

    path = Path(__file__).parents[2] / "data" / "lengths" / f"{HISTOGRAM}.csv"
    lines = [x for x in path.read_text(encoding="utf-8").splitlines() if not x.startswith("#")][1:]
    edges = [0, *(int(line.split(",")[0]) for line in lines)]
    shares = np.array([float(line.split(",")[-1]) for line in lines])
    rng, lengths = np.random.default_rng(seed), []
    while sum(lengths) < tokens:
        i = int(rng.choice(len(shares), p=shares / shares.sum()))
        lengths.append(
            min(int(rng.integers(edges[i] + 1, edges[i + 1] + 1)), tokens - sum(lengths))
        )
    return lengths


def log_normal(documents, median, seed):
    lengths = np.random.default_rng(seed).lognormal(math.log(median), 1.1, documents)
    return np.maximum(lengths, 1).astype(int).tolist()


PACKS = {
    "man pages, 1M tokens": taken("man_pages", 2**20),
    "Perl manual, 1M tokens": taken("perl_manual", 2**20),
    "pretraining histogram, 1M tokens": drawn(2**20, seed=0),
    "pretraining histogram, 131,072 tokens": drawn(2**17, seed=1),
    "108 log-normal documents, median 664": log_normal(108, 664, seed=3),
    "172 log-normal documents, median 880": log_normal(172, 880, seed=3),
}


def blocks(begin, end):
    """Of a causal document in one piece."""
    return -(-(end - begin) // BLOCK)


def ideal(lengths):
    """Blocks of all documents, uncut."""
    n = blocks(0, np.asarray(lengths, dtype=np.int64))
    return int((n * (n + 1) // 2).sum())


def work_of_ranks(plan):
    """[cp_size] blocks that each rank computes, against the keys of every rank's pieces."""
    pieces = [
        (s.seq, rank, begin, min(begin + BLOCK, s.pos + s.len), s.pos, s.pos + s.len)
        for rank in range(plan.cp_size)
        for s in plan.shards_q(rank)
        for begin in range(s.pos, s.pos + s.len, BLOCK)
    ]
    table = np.array(pieces, dtype=np.int64)
    work = np.zeros(plan.cp_size, dtype=np.int64)
    order = np.argsort(table[:, 0], kind="stable")
    for rows in np.split(table[order], np.flatnonzero(np.diff(table[order, 0])) + 1):
        keys = np.unique(rows[:, 4:], axis=0)
        seen = np.minimum(rows[:, 3, None], keys[None, :, 1]) - keys[None, :, 0]
        np.add.at(work, rows[:, 1], np.maximum(-(-seen // BLOCK), 0).sum(axis=1))
    return work


def measured(lengths, cp_size, partition):
    """(busiest rank's blocks over ideal, all ranks' over ideal, most rows over mean, pieces)"""
    layout = rs.PackedLayout.from_lengths(lengths)
    plan = rs.plan(layout, cp_size=cp_size, partition=partition, comm="all_gather")
    work = work_of_ranks(plan)
    rows = [sum(s.len for s in plan.shards_q(rank)) for rank in range(cp_size)]
    pieces = sum(len(plan.shards_q(rank)) for rank in range(cp_size))
    share = ideal(lengths) / cp_size
    return work.max() / share, work.mean() / share, max(rows) / np.mean(rows), pieces


def rows_moved(lengths, cp_size, partition, comm):
    """Rows of keys that reach other ranks, over all of them."""
    layout = rs.PackedLayout.from_lengths(lengths)
    plan = rs.plan(layout, cp_size=cp_size, partition=partition, comm=comm)
    steps = [(rank, step) for rank in range(cp_size) for step in plan.steps(rank)]
    return sum(m.rows for rank, step in steps for m in step.receives if m.peer != rank)


@pytest.mark.parametrize("name", [name for name in PACKS if "1M" not in name])
def test_fetch_moves_at_most_three_tenths_of_a_ring_on_long_tails(name):
    for cp_size in (4, 8):
        ring = rows_moved(PACKS[name], cp_size, "zigzag", "p2p")
        assert 0 < rows_moved(PACKS[name], cp_size, "balanced", "fetch") <= 0.3 * ring


def test_counting_by_hand():
    """Two documents of 3 blocks over 2 ranks: cut in two, the second half alone meets 5 of 6."""
    layout = rs.PackedLayout([0, 384])
    halves = [[rs.Segment(0, 0, 128)], [rs.Segment(0, 128, 256)]]
    assert work_of_ranks(rs.plan(layout, partition=halves)).tolist() == [1, 5]
    thirds = [[rs.Segment(0, 0, 100)], [rs.Segment(0, 100, 284)]]  # 3 blocks of rows 100 to 383
    assert work_of_ranks(rs.plan(layout, partition=thirds)).tolist() == [1, 2 + 3 + 4]
    assert ideal([384]) == 6


@pytest.mark.parametrize("cp_size", CP_SIZES)
@pytest.mark.parametrize("name", PACKS)
def test_the_busiest_rank_has_at_most_a_tenth_above_its_share(name, cp_size):
    busiest, _, rows, _ = measured(PACKS[name], cp_size, "balanced")
    assert busiest <= 1.10
    assert rows <= 1.01


def test_a_million_tokens_are_dealt_in_a_moment():
    """A tenth of the bound on an idle machine; the rest of making a plan is in it, too."""
    layout = rs.PackedLayout.from_lengths(PACKS["man pages, 1M tokens"])
    took = []
    for _ in range(5):
        begin = time.thread_time()
        rs.plan(layout, mask=rs.Mask.sliding_window(0, 0), cp_size=64, partition="balanced")
        took.append(time.thread_time() - begin)
    assert min(took) < 0.05


def main():
    """The table: how far above its share the busiest rank of each partition is."""
    print("| pack | cp | partition | busiest / share | all / uncut | rows, most / mean | pieces |")
    print("|---|---|---|---|---|---|---|")
    for name, lengths in PACKS.items():
        for cp_size in CP_SIZES:
            for partition in ("balanced", "whole_pack_zigzag", "zigzag"):
                busiest, total, rows, pieces = measured(lengths, cp_size, partition)
                print(
                    f"| {name} | {cp_size} | {partition} | {busiest:.3f} | {total:.3f} | "
                    f"{rows:.4f} | {pieces} |"
                )
    print("\n| pack | cp | rows that balanced over fetch moves, over those of a zigzag ring |")
    print("|---|---|---|")
    packs = {**PACKS, "16 documents of 4,096": [4_096] * 16}
    for name, lengths in ((name, x) for name, x in packs.items() if "1M" not in name):
        for cp_size in (4, 8, 32):
            ring = rows_moved(lengths, cp_size, "zigzag", "p2p")
            moved = rows_moved(lengths, cp_size, "balanced", "fetch")
            print(f"| {name} | {cp_size} | {moved / ring:.2f} |")


if __name__ == "__main__":
    main()
