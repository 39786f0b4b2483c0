"""Random cases of right implementations, 10,000 by ./dev alarms: none may be called wrong.

In pieces, each with a seed of its own; an alarm is printed and counted, and the rest goes on.
"""

from __future__ import annotations

import argparse
import sys
import time

import hypothesis
from hypothesis import strategies as st
from right_torch import Attention, Ring
from ringside.testing import (
    Disagreement,
    adapters,
    check_attention,
    check_context_parallel,
    strategies,
)

PIECE = 250
KINDS = [
    (ranks, store) for ranks in ("one rank", "ring of 2 and 3") for store in ("float32", "bfloat16")
] + [("torch's sdpa", "bfloat16"), ("torch's sdpa", "float16")]


def cases(ranks, store):
    """Any documents, padding, masks, grouped heads, scales; and any partition for a ring."""
    how = {"dtypes": st.just(store), "comms": st.just("p2p")}
    if ranks == "torch's sdpa":  # documents of more than one of its blocks, and of many keys
        how["layouts_q"] = strategies.layouts(
            lengths=st.lists(st.integers(0, 256), min_size=1, max_size=2)
        )
    if ranks != "ring of 2 and 3":
        return strategies.cases(cp_sizes=st.just(1), partitions=st.just("zigzag"), **how)
    return strategies.cases(cp_sizes=st.sampled_from([2, 3]), **how)


def piece(kind, count, seed):
    """(cases that ran, reports of those called wrong, the largest ratio of the others)."""
    check, fn = {
        "one rank": lambda: (check_attention, Attention(kind[1])),
        "ring of 2 and 3": lambda: (check_context_parallel, Ring(kind[1])),
        "torch's sdpa": lambda: (check_attention, adapters.torch_sdpa),
    }[kind[0]]()
    ran, alarms, largest = [0], [], [0.0]

    def one(case):
        ran[0] += 1
        try:
            largest[0] = max(largest[0], check(fn, case).largest_ratio)
        except Disagreement as alarm:
            alarms.append(str(alarm))

    settings = hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    hypothesis.seed(seed)(settings(hypothesis.given(cases(*kind))(one)))()
    return ran[0], alarms, largest[0]


def main():
    """Exit code 1 where there was an alarm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="of all kinds together")
    parser.add_argument("--seed", type=int, default=0, help="of the first piece")
    given = parser.parse_args()
    begin, all_ran, all_alarms = time.monotonic(), 0, 0
    for kind in KINDS:
        ran, alarms, largest, seed = 0, [], 0.0, given.seed
        while ran < given.cases // len(KINDS):
            count = min(PIECE, given.cases // len(KINDS) - ran)
            more, new, ratio = piece(kind, count, seed)
            ran, alarms, largest, seed = ran + more, alarms + new, max(largest, ratio), seed + 1
            for alarm in new:
                print(alarm, flush=True)
        name = f"{kind[0]}, {kind[1]}"
        print(
            f"{name}: {ran} cases, {len(alarms)} alarms, largest error {largest:.2f} of the bound",
            flush=True,
        )
        all_ran, all_alarms = all_ran + ran, all_alarms + len(alarms)
    seconds = time.monotonic() - begin
    print(f"{all_ran} cases of right implementations, {all_alarms} alarms, {seconds:.0f} s")
    return 1 if all_alarms else 0


if __name__ == "__main__":
    sys.exit(main())
