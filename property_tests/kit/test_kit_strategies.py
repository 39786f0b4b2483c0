"""What strategies draw: all kinds of cases often, and few that meet nothing.

Shares of one run scatter widely: Hypothesis copies parts of what it drew, and takes some numbers
from the modules that are loaded, whatever the seed. So many short runs are counted together, and
limits are some four standard deviations from what was seen.
"""

import functools

import pytest
import ringside as rs
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import InvalidArgument
from ringside.testing import strategies

RUNS, EXAMPLES = 30, 50


@functools.cache
def drawn_cases():
    """What properties see in so many runs of ./dev test."""
    seen = []
    for number in range(RUNS):

        @seed(number)
        @settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(strategies.cases(options=strategies.options))
        def draw(case):
            seen.append(case)

        draw()
    return seen


def share_of(question):
    """Of all drawn cases, how many answer yes."""
    answers = [bool(question(case)) for case in drawn_cases()]
    return sum(answers) / len(answers)


def busy_ranks(case):
    return int((case.plan().cost().pairs.sum(axis=1) > 0).sum())


def test_most_cases_have_pairs_on_several_ranks():
    assert share_of(lambda case: busy_ranks(case) > 1) > 0.45
    assert share_of(lambda case: busy_ranks(case) == 0) < 0.27
    assert 0.01 < share_of(lambda case: case.layout_q.num_sequences == 0) < 0.1


def test_every_partition_and_transport_has_its_share():
    shares = {
        **{
            name: share_of(lambda case, name=name: case.partition == name) for name in rs.PARTITIONS
        },
        **{name: share_of(lambda case, name=name: case.comm == name) for name in rs.COMMS},
    }
    assert min(shares.values()) > 0.02 and max(shares.values()) < 0.4, shares


def out_of_order(case):
    """Whether a rank has pieces in another order than sequences, their stripes and rows are in."""
    if isinstance(case.partition, str):
        return False
    places = [[(x.seq, x.pos % x.stride, x.pos) for x in shard] for shard in case.partition]
    return any(shard != sorted(shard) for shard in places)


def pieces(case):
    return [] if isinstance(case.partition, str) else [x for shard in case.partition for x in shard]


def in_thirds(case):
    """Whether a stripe of a sequence has three pieces or more."""
    stripes = [(piece.seq, piece.stride, piece.pos % piece.stride) for piece in pieces(case)]
    return any(stripes.count(stripe) > 2 for stripe in stripes)


MET = {
    "rows out of order": (out_of_order, 0.15),
    "strides": (lambda case: any(piece.stride > 1 for piece in pieces(case)), 0.15),
    "three pieces of a stripe": (in_thirds, 0.15),
    "padding": (lambda case: case.layout_q.num_rows > case.layout_q.num_tokens, 0.4),
    "an empty document": (lambda case: 0 in case.layout_q.lengths, 0.15),
    "a document of one token": (lambda case: 1 in case.layout_q.lengths, 0.1),
    "a long document": (lambda case: case.layout_q.lengths.max(initial=0) > 8, 0.4),
    "other keys": (lambda case: case.layout_k is not None, 0.2),
    "a window": (lambda case: 0 <= case.mask.window_size[0] < 2**31 - 1, 0.25),
    "chunks": (lambda case: 0 < case.mask.chunk_size < 2**31 - 1, 0.25),
    "bottom right": (lambda case: case.mask.align == "bottom_right", 0.25),
    "grouped heads": (lambda case: case.num_heads != case.num_kv_heads, 0.3),
    "several kv heads": (lambda case: case.num_kv_heads > 1, 0.25),
    "head dimensions alike": (lambda case: case.head_dim == case.head_dim_v, 0.35),
    "head dimensions that differ": (lambda case: case.head_dim != case.head_dim_v, 0.3),
    "an option": (lambda case: len(case.options) > 1, 0.5),
}


def test_what_cases_are_to_meet_is_met_often():
    shares = {name: share_of(question) for name, (question, _) in MET.items()}
    assert not {name: x for name, x in shares.items() if x < MET[name][1]}


def test_lengths_of_any_range_are_drawn_and_wrong_ones_refused():
    seen = []

    @settings(max_examples=100, database=None, deadline=None)
    @given(strategies.lengths(min_sequences=4, min_length=3, max_length=10**9))
    def draw(lengths):
        seen.extend(lengths)

    draw()
    assert min(seen) >= 3 and max(seen) > 10**4
    assert 0.3 < sum(n < 12 for n in seen) / len(seen) < 0.9

    @given(strategies.lengths(min_length=3, max_length=2))
    def never(lengths):
        pass

    with pytest.raises(InvalidArgument, match="max_value=2"):
        never()
