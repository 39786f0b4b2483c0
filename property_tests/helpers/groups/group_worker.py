"""A process of a group in a test: runs what it is told on standard input, and answers.

What it is told is a snippet and values for its names; both are pickled, as only tests speak here.
The snippet finds what earlier ones left, and the answer is what it assigns to `answer`.
"""

import os
import pickle
import sys
import threading
import time

import numpy as np
import ringside as rs


class Spoken(Exception):
    """Raised by snippets that are told to raise."""


def mine(plan, ranks, x, side="q"):
    """The shard of the one rank that a process hosts, or the list of several."""
    parts = [plan.shard(x, rank, side=side) for rank in ranks]
    return parts[0] if len(parts) == 1 else parts


def both_passes(case, group):
    """What a process gets of its ranks: out, lse, dq, dk, dv, dsink, lists each; and max_logit."""
    plan, (q, k, v, dout) = case.plan(), case.arrays()
    shards = [mine(plan, group.ranks, *x) for x in ((q,), (k, "k"), (v, "k"))]
    out, lse, max_logit = plan.attention_rank(
        *shards, group=group, return_max_logit=True, **case.options
    )
    gradients = plan.attention_backward_rank(
        mine(plan, group.ranks, dout), *shards, out, lse, group=group, **case.options
    )
    found = (out, lse, *gradients)
    listed = found if len(group.ranks) > 1 else [[x] for x in found]
    return [list(x) for x in listed], max_logit


def described(error):
    """An exception as it crosses to the test."""
    attributes = {name: getattr(error, name, None) for name in ("ranks", "call", "step")}
    return type(error).__name__, str(error), attributes


def main():
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    names = {"np": np, "rs": rs, "os": os, "sys": sys, "time": time, "threading": threading}
    names |= {"Spoken": Spoken, "mine": mine, "both_passes": both_passes}
    while True:
        try:
            snippet, values = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        names |= {"answer": None, **values}
        begin = time.monotonic()
        try:
            exec(snippet, names)
            told = ("answered", names["answer"])
        except Exception as error:
            told = ("raised", described(error))
        except KeyboardInterrupt as error:
            told = ("raised", described(error))
        pickle.dump((*told, time.monotonic() - begin), answers)
        answers.flush()


if __name__ == "__main__":
    main()
