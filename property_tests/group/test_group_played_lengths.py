"""DevicePlans over groups on GPUs that are played: lengths, numbers, refusals, results."""

import pytest
from played_libraries import expect_refused_in_both, play

# 64 rows in documents of multiples of 4: each of two ranks has room for 32.
LENGTHS = """
def device_plan(**more):
    sizes = {"max_sequences": 4, "num_rows_q": 64, "num_heads": 2, "pad_to_multiple_of": 4}
    return rs.DevicePlan(**{**sizes, "cp_size": size, **more})
def cu(*offsets, place=0, dtype=np.int32):
    return on_gpu(np.array(offsets, dtype), place)
def programs():
    return [p for device in group._devices.values() for p in device._programs.values()]
plan = device_plan()
plan.set_lengths(cu(0, 40, 60))
def rows(number=None, dtype="float32", heads=2, dim=4, place=0):
    number = plan.rank_rows() if number is None else number
    parts = [on_gpu(np.ones((number, heads, dim), dtype), place) for _ in group.ranks]
    return parts[0] if len(parts) == 1 else parts
"""


@pytest.fixture
def pair(workers):
    """Two processes in a new group, each with a GPU and a DevicePlan that has its lengths."""

    def make(hosted=((0,), (1,))):
        play(workers, hosted)
        workers.all(LENGTHS)
        return workers

    yield make
    workers.all("group.close() if 'group' in globals() else None")


ALONE = """
rng, options = np.random.default_rng(0), {"softcap": 20.0}
def compared(plan, layout, made):
    x = [rng.normal(size=(layout.num_rows, 2, 4)) for _ in "qkv"]
    known = rs.plan(layout, cp_size=2, num_heads=2)
    want = known.attention(*x, return_max_logit=True, **options)
    mine = []
    for whole in x:
        parts = [known.shard(whole, rank) for rank in group.ranks]
        room = [np.full((plan.rank_rows() - len(part), 2, 4), np.nan) for part in parts]
        mine.append([on_gpu(np.concatenate(pair)) for pair in zip(parts, room)])
    out, lse, logits = plan.attention_rank(*mine, group=group, return_max_logit=True, **options)
    owned = [known.row_indices(rank) for rank in group.ranks]
    near = all(
        np.allclose(part[: len(own)], want[0][own]) and np.all(part[len(own) :] == 0)
        and np.allclose(row[:, : len(own)], want[1][:, own], atol=1e-5)
        and np.all(np.isneginf(row[:, len(own) :]))
        for part, row, own in zip(out, lse, owned)
    )
    return near and np.allclose(logits, want[2], rtol=1e-5)
"""


def test_one_process_with_all_ranks_computes_them_for_lengths_set_in_turn(pair):
    workers = pair()
    workers[0].do("group = rs.init(ranks_per_process=2)")
    workers[0].do(ALONE)
    found = workers[0].do(
        """
answer = []
for lengths in ([40, 20], [4, 0, 12, 48], [64], [], [0, 8]):
    layout = rs.PackedLayout.from_lengths(lengths)
    plan.set_lengths(cu(*layout.cu_seqlens))
    answer.append(compared(plan, layout, None))
answer.append(Program.made)
"""
    )
    assert found == [True] * 5 + [1]


def test_lengths_reach_programs_that_were_made_before_and_after(pair):
    found = pair().all(
        """
fresh = device_plan()
fresh.prepare(group, head_dim=4, device=0)
(prepared,) = programs()
before = list(prepared.lengths)
fresh.set_lengths(cu(0, 8)), fresh.set_lengths(cu(0, 12, 16))
plan.attention_rank(*[rows()] * 3, group=group)
fresh.attention_rank(*[rows()] * 3, group=group)
answer = before, [p.lengths for p in programs()], Program.made
"""
    )
    assert found == [([], [[[0, 8], [0, 12, 16]], [[0, 40, 60]]], 2)] * 2


def test_plans_of_one_capacity_have_programs_of_their_own_and_calls_marks(pair):
    found = pair().all(
        """
other = device_plan()
other.set_lengths(cu(0, 4))
marks = [x.attention_rank(*[rows()] * 3, group=group)[0].max() for x in (plan, other, plan)]
answer = marks, Program.made, [p.lengths for p in programs()]
"""
    )
    (marks, made, lengths), (others, *_) = found
    assert marks == others and marks[0] == marks[2] != marks[1] and made == 2
    assert lengths == [[[0, 40, 60]], [[0, 4]]]


def test_plans_that_are_called_in_another_order_are_told_apart(pair):
    workers = pair()
    workers.all("other = device_plan()\nother.set_lengths(cu(0, 4))")
    workers.all("plan.attention_rank(*[rows()] * 3, group=group)")
    workers[0].tell("plan.attention_rank(*[rows(dim=8)] * 3, group=group)")
    workers[1].tell("other.attention_rank(*[rows(dim=8)] * 3, group=group)")
    for error in workers.errors():
        assert "number 1); rank 1: plan (zigzag over p2p, 2 ranks, lengths on" in error.text, error
        assert "number 2); expected the same on every rank" in error.text, error
    again = workers.all("answer = other.attention_rank(*[rows()] * 3, group=group)[0].max()")
    assert again[0] == again[1]


def test_a_call_that_is_refused_takes_no_number(pair):
    workers = pair()
    workers.all("other, wider = device_plan(), device_plan(num_rows_q=128)")
    workers.all("for x in (other, wider): x.set_lengths(cu(0, 4))")
    workers[0].tell("other.attention_rank(*[rows()] * 3, group=group)")
    workers[1].tell("wider.attention_rank(*[rows(64)] * 3, group=group)")
    for error in workers.errors():
        assert "rank 0: plan (zigzag over p2p" in error.text, error
    found = workers.all(
        """
first = other.attention_rank(*[rows()] * 3, group=group)[0].max()
answer = first, wider.attention_rank(*[rows(64)] * 3, group=group)[0].max(), group._plans_numbered
"""
    )
    assert found[0] == found[1] and found[0][2] == 2


REFUSALS = {
    "rows": ("call(rows(31))", 'q_r has 31 rows; expected rank_rows(side="q")=32'),
    "keys": ("call(k=rows(33))", 'k_r has 33 rows; expected rank_rows(side="k")=32'),
    "heads": ("call(k=rows(heads=1))", "k_r has heads and dimension (1, 4); expected (2, 4)"),
    "dtype": ("call(v=rows(dtype='float16'))", "v_r has dtype float16; expected float32"),
    "device": ("call(v=rows(place=1))", "v_r is not on the device of q_r"),
    "device of lengths": (
        "plan._require_ready(Links, 1) if plan._numbers else call(*[rows(place=1)] * 3)",
        "cu_seqlens lies on device 0 and the other arrays on 1",
    ),
    "host": ("call(v=np.ones((32, 2, 4), 'float32'))", "v_r is not on the device of q_r"),
    "shape": ("call(on_gpu(np.ones((32, 4), 'float32')))", "expected [rows, heads, dim]"),
    "exchange": ("call(exchange='mpi')", "expected one of auto, nccl, peer"),
    "sink": ("call(sink=[0.0] * 3)", "sink has shape (3,); expected [num_heads] = [2]"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_does_not_fit_is_refused_in_both_and_the_group_lives(pair, name):
    expect_refused_in_both(pair(), *REFUSALS[name])


DIFFERENCES = {
    "dtypes": ("call(*[rows(dtype='float16')] * 3)", "dtypes (float16/float16/float16)"),
    "options": ("call(softcap=2.0)", "options (softcap=2.0)"),
    "exchange": ("call(exchange='peer')", "exchange (peer)"),
    "keep_kv": ("call(keep_kv=True)", "keep_kv (True)"),
    "plan": (
        "rs.plan(rs.PackedLayout([0, 64]), cp_size=2, num_heads=2)"
        ".attention_rank(*[rows()] * 3, group=group)",
        "plan (zigzag over p2p, 2 ranks, ",
    ),
    "capacity": (
        "plan = device_plan(max_sequences=5)\nplan.set_lengths(cu(0, 4))\ncall()",
        "plan (zigzag over p2p, 2 ranks, lengths on devices, ",
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_ranks_that_mean_other_calls_are_named(pair, name):
    snippet, text = DIFFERENCES[name]
    workers = pair()
    workers[0].tell(snippet)
    workers[1].tell("call()")
    for error in workers.errors():
        assert f"rank 0: {text}" in error.text and "; rank 1: " in error.text, error


def test_no_lengths_and_groups_of_another_size_are_told_to_all(pair):
    workers = pair()
    workers.tell_all("device_plan().attention_rank(*[rows()] * 3, group=group)")
    for error in workers.errors():
        assert "no lengths yet" in error.text and "set_lengths" in error.text, error
    workers.tell_all("device_plan(cp_size=4).prepare(group, head_dim=4, device=0)")
    for error in workers.errors():
        assert "the plan has 4 ranks and the group 2" in error.text, error
    workers.tell_all("plan.prepare(group, head_dim=4, device=1)")
    for error in workers.errors():
        assert "cu_seqlens lies on device 0; expected device 1" in error.text, error
    workers.all("call()")
    workers.tell_all("plan.set_lengths(cu(0, 4, place=1))")
    for error in workers.errors():
        assert "cu_seqlens lies on device 1; expected device 0" in error.text, error
    workers.all("group.close()")
    workers.tell_all("call()")
    for error in workers.errors():
        assert "the group is closed" in error.text, error


def test_a_group_that_is_none_and_sides_that_are_none_are_refused(pair):
    workers = pair()
    workers.tell_all("plan.attention_rank(*[rows()] * 3, group=None)")
    for error in workers.errors():
        assert error.kind == "TypeError" and "expected a group" in error.text, error
    workers.tell_all("plan.rank_rows(side='v')")
    for error in workers.errors():
        assert 'side="v" is unknown; expected one of "q", "k"' in error.text, error
    assert workers.all("answer = plan.rank_rows(), plan.rank_rows(side='k')") == [(32, 32)] * 2


def test_keys_have_room_of_their_own(pair):
    found = pair().all(
        """
plan = device_plan(num_rows_k=128)
plan.set_lengths(cu(0, 40, 60), None, cu(0, 80, 120))
k = rows(plan.rank_rows(side="k"))
out, lse, kept = plan.attention_rank(rows(), k, k, group=group, keep_kv=True)
answer = plan.rank_rows(), plan.rank_rows(side="k"), out.shape, k.shape
"""
    )
    assert found == [(32, 64, (32, 2, 4), (64, 2, 4))] * 2


def test_check_asks_the_programs_of_ranks(pair):
    workers = pair()
    workers.all("call()\nplan.check()")
    workers[1].do("programs()[0].fits = False")
    workers[0].do("plan.check()")
    workers[1].tell("plan.check()")
    error = workers[1].error()
    assert error.kind == "ValueError" and "the same in every process" in error.text, error


def test_kept_keys_are_of_the_lengths_they_were_kept_for(pair):
    workers = pair()
    workers.all(
        """
out, lse, kept = call(keep_kv=True)
def back():
    x = rows()
    return plan.attention_backward_rank(x, x, x, x, out, lse, group=group, kept_kv=kept)
"""
    )
    (one, other) = workers.all("answer = [x.shape for x in back()]")
    assert one == other == [(32, 2, 4)] * 3
    workers.all("plan.set_lengths(cu(0, 4))")
    workers.tell_all("back()")
    for error in workers.errors():
        assert "kept_kv was made for lengths number 1; expected number 2" in error.text, error


def test_a_plan_does_not_keep_what_a_group_has_dropped(pair):
    found = pair().all(
        """
import gc
call()
mine = len(plan._rank_programs)
group.close()
gc.collect()
plan.set_lengths(cu(0, 4))
answer = mine, len(plan._rank_programs), len(plan._all_programs())
"""
    )
    assert found == [(1, 0, 0)] * 2
