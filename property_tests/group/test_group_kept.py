"""Keys and values that are kept: the same gradients to the bit, and what is refused."""

import numpy as np
import pytest
import ringside as rs
from group_processes import started
from hypothesis import given, settings
from hypothesis import strategies as st
from played_libraries import START
from ringside.testing import Case, strategies

HOSTED = {"two ranks a process": [[0, 1], [2, 3]], "one and two": [[0], [1, 2]]}
BOTH_WAYS = """
plan, (q, k, v, dout) = case.plan(), case.arrays()
shards = [mine(plan, group.ranks, *x) for x in ((q,), (k, "k"), (v, "k"))]
dout = mine(plan, group.ranks, dout)
def listed(found):
    return [x if len(group.ranks) > 1 else [x] for x in found]
answer = []
for keep in (False, True):
    out, lse, max_logit, *kept = plan.attention_rank(
        *shards, group=group, keep_kv=keep, return_max_logit=True, **case.options)
    gradients = plan.attention_backward_rank(
        dout, *shards, out, lse, group=group, kept_kv=kept[0] if keep else None, **case.options)
    answer.append((listed((out, lse, *gradients)), max_logit))
sizes = plan.cost(
    head_dim=q.shape[-1], head_dim_v=v.shape[-1], bytes_per_element=8, keep_kv=True).kept_bytes
answer.append((kept[0].nbytes, sizes[list(group.ranks)].sum()))
"""


class Pool:
    """Processes with a group of each kind."""

    def __init__(self, workers):
        self.workers, self.made = workers, {}

    def both_ways(self, name, case):
        """Of each process what it gets without, with, and the bytes that it keeps and should."""
        if self.made.get("group") != name:
            self.workers.make_group(HOSTED[name], timeout_s=20)
            self.made["group"] = name
        return self.workers.all(BOTH_WAYS, case=case)


@pytest.fixture(scope="module")
def pool():
    with started(2) as workers:
        yield Pool(workers)


def check(pool, name, case):
    for (without, logit), (with_it, same_logit), (kept, counted) in pool.both_ways(name, case):
        assert kept == counted
        np.testing.assert_array_equal(logit, same_logit)
        for many, one in zip(without, with_it, strict=True):
            for x, y in zip(many, one, strict=True):
                np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", HOSTED)
@pytest.mark.parametrize("comm", rs.COMMS)
def test_every_transport(pool, comm, name):
    size = sum(map(len, HOSTED[name]))
    layout = rs.PackedLayout([0, 90, 90, 93, 190], [0, 100, 104, 110, 210])
    more = {"a2a_size": 2 if size == 4 else 3} if comm == "a2a+p2p" else {}
    heads = {"num_heads": 12, "num_kv_heads": 6, "head_dim": 8, "head_dim_v": 6, "sink": 0.5}
    check(pool, name, Case(layout, cp_size=size, comm=comm, **more, **heads))


@st.composite
def groups_and_cases(draw):
    name = draw(st.sampled_from(list(HOSTED)))
    sizes = st.just(sum(map(len, HOSTED[name])))
    return name, draw(strategies.cases(cp_sizes=sizes, options=strategies.options))


@settings(max_examples=min(40, settings().max_examples))
@given(groups_and_cases())
def test_any_plan(pool, drawn):
    check(pool, *drawn)


PAIR = """
import dataclasses
plan = rs.plan(rs.PackedLayout([0, 16]), cp_size=2)
other = rs.plan(rs.PackedLayout([0, 16]), cp_size=2, comm="all_gather")
x, wide = np.ones((8, 1, 4)), np.ones((8, 1, 6))
out, lse, kept = plan.attention_rank(x, x, x, group=group, keep_kv=True)
of_other = other.attention_rank(x, x, x, group=group, keep_kv=True)[-1]
of_wide = plan.attention_rank(wide, wide, wide, group=group, keep_kv=True)[-1]
elsewhere = dataclasses.replace(kept, made_for={**kept.made_for, "ranks": "rank 9"})
fresh = rs.plan(rs.PackedLayout([0, 16]), cp_size=2, mask=rs.Mask.full())
plan.attention_backward_rank(x, x, x, x, out, lse, group=group)
def back(kept_kv=kept, x=x, plan=plan):
    return plan.attention_backward_rank(x, x, x, x, out, lse, group=group, kept_kv=kept_kv)
"""


@pytest.fixture
def pair(pool):
    pool.made.clear()
    pool.workers.make_group([[0], [1]], timeout_s=20)
    pool.workers.all(PAIR)
    return pool.workers


REFUSED = {
    "another plan": ("back(of_other)", "InvalidArgument", "kept_kv was made for plan ("),
    "other dimensions": ("back(of_wide)", "InvalidArgument", "head_dims 6/6; expected 4/4"),
    "an array": ("back(x)", "TypeError", "kept_kv is a ndarray; expected a KeptKv. Pass what"),
    "other ranks": ("back(elsewhere)", "InvalidArgument", "made for ranks rank 9; expected rank"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_was_kept_of_another_call_is_refused_and_the_group_lives(pair, name):
    snippet, kind, text = REFUSED[name]
    pair.tell_all(snippet)
    for error in pair.errors():
        assert error.kind == kind and text in error.text, error
    for _ in range(2):  # what was kept may be used again
        assert pair.all("answer = back()[2].shape") == [(8, 1, 4)] * 2


def test_the_others_hear_of_it_before_a_plan_was_agreed_on(pair):
    pair[0].tell("back(kept, plan=fresh)")
    pair[1].tell("back(None, plan=fresh)")
    mine, theirs = pair.errors()
    assert mine.kind == "InvalidArgument" and "kept_kv was made for plan (" in mine.text, mine
    assert theirs.text.startswith("rank 0: kept_kv was made for plan ("), theirs


def test_all_keep_or_none_does(pair):
    pair[0].tell("plan.attention_rank(x, x, x, group=group, keep_kv=True, softcap=3.0)")
    pair[1].tell("plan.attention_rank(x, x, x, group=group, softcap=3.0)")
    for error in pair.errors():
        assert "rank 0: keep_kv (True); rank 1: keep_kv (False); expected the same" in error.text
    pair[0].tell("back(None)")  # of which both kinds were agreed on
    pair[1].tell("back()")
    for error in pair.errors():
        assert "make different calls; expected the same calls" in error.text, error


def test_prepare_agrees_on_it(pair):
    found = pair.all(
        """
fresh = rs.plan(rs.PackedLayout([0, 32]), cp_size=2)
fresh.prepare(group, head_dim=4, dtype="float64", keep_kv=True)
rounds, y = group._rounds, np.ones((16, 1, 4))
out, lse, kept = fresh.attention_rank(y, y, y, group=group, keep_kv=True)
fresh.attention_backward_rank(y, y, y, y, out, lse, group=group, kept_kv=kept)
answer = group._rounds - rounds, repr(kept)
"""
    )
    assert found == [(0, f"KeptKv(rank {rank}, 1024 bytes)") for rank in (0, 1)]


def test_on_gpus_that_are_played_it_is_handed_on_and_refused(pair):
    pair.all("group.close()")
    pair.make_group([[0], [1]], timeout_s=20)
    pair.all(START, [{"identity": x} for x in ("a", "b")], size=2)
    found = pair.all(
        """
out, lse, logits, kept = call(keep_kv=True, return_max_logit=True)
x = rows()
def back(kept, x=x):
    lse = on_gpu(np.ones((2, 32), "float32"))
    return plan.attention_backward_rank(x, x, x, x, x, lse, group=group, kept_kv=kept)
answer = Program.made, back(kept)[0].shape, back(None)[0].shape, Program.made, repr(kept)
"""
    )
    assert found == [
        (1, (32, 2, 4), (32, 2, 4), 2, f"KeptKv(rank {r}, 3200 bytes)") for r in (0, 1)
    ]
    pair.tell_all("back(kept, rows(dtype='float16'))")
    for error in pair.errors():
        assert error.kind == "InvalidArgument"
        assert "made for dtypes float32/float32/float32; expected float16" in error.text
