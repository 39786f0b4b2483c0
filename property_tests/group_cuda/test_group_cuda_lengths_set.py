"""Lengths that only the devices know over several processes: they change, do not fit, differ.

In calls, in graphs that are replayed, under autograd and with keys that are kept.
"""

import pytest
import ringside as rs
from cuda_cases import REASON
from device_plans import COMMS
from group_pool import Pool, case_of, devices
from group_processes import started
from numpy.testing import assert_allclose

pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no GPU test: {REASON}")


@pytest.fixture(scope="module")
def pool():
    with started(4) as workers:
        yield Pool(workers)


LAYOUTS = [
    rs.PackedLayout([0, 70, 71, 71, 160], [0, 72, 80, 80, 176]),
    rs.PackedLayout([0, 0, 150, 160], [0, 0, 160, 176]),
    rs.PackedLayout.from_lengths([1] * 30 + [64, 65], pad_to_multiple_of=1),
    rs.PackedLayout([0]),
    rs.PackedLayout([0, 192]),
]
CAPACITY = {"max_sequences": 40, "num_rows_q": 192, "num_rows_k": 192}


@pytest.mark.parametrize("name", ["one process", "two processes", "two ranks a process"])
@pytest.mark.parametrize("comm", COMMS)
def test_lengths_change_between_calls(pool, comm, name):
    cases = [case_of(comm, name, x, head_dim=64, head_dim_v=64) for x in (*LAYOUTS, LAYOUTS[0])]
    found = pool.all(
        name,
        """
room, answer = Room(cases[0], group, "bfloat16", device, capacity), []
for case in cases:
    room.write(case)
    answer += lengths_difference(room, near=case.layout_q.num_rows > 0)[0]
""",
        cases=cases,
        capacity=CAPACITY,
    )
    assert found == [[]] * len(found)


GRAPH = """
room = Room(cases[0], group, "bfloat16", device, capacity)
def both():
    room.set_lengths()
    out, lse, logits = room.forward(exchange, return_max_logit=True)
    return (out, lse, *room.backward(out, lse, exchange)), logits
with torch.cuda.device(device):
    both()  # makes programs and connects
    group.synchronize()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        both()  # torch refuses to wait for the device
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # CUDA refuses, too, and refuses to allocate
            captured, logits = both()
    finally:
        torch.cuda.set_sync_debug_mode("default")
torch.cuda.synchronize()
answer = []
for case in cases:
    room.write(case)
    for x in (*captured, logits):
        for part in listed(x, group) if isinstance(x, (list, tuple)) else [x]:
            part.fill_(float("nan"))
    torch.cuda.synchronize()
    graph.replay()
    group.synchronize()
    torch.cuda.synchronize()
    want, want_logits = room.alone_found()
    answer += room.wrong(captured, want)
    if not np.array_equal(on_host(logits), on_host(want_logits)):
        answer.append("max_logit")
room.plan.check()
"""


@pytest.mark.parametrize("exchange", ["peer", "nccl"])
@pytest.mark.parametrize("name", ["one process", "two processes", "two ranks a process"])
@pytest.mark.parametrize("comm", COMMS)
def test_a_captured_graph_replays_other_lengths(pool, comm, name, exchange):
    if exchange == "nccl" and name == "one process":
        pytest.skip("one process sends nothing over NCCL")
    if exchange == "nccl" and devices() < 2:
        pytest.skip("NCCL refuses two processes on one GPU, and there is one")
    cases = [case_of(comm, name, x, head_dim=64, head_dim_v=64) for x in (*LAYOUTS, LAYOUTS[0])]
    found = pool.all(name, GRAPH, cases=cases, capacity=CAPACITY, exchange=exchange)
    assert found == [[]] * len(found)


def test_the_host_waits_for_nothing(pool):
    """A second of work is ahead of them on the stream; all of it returns before that is done."""
    call = """
room = Room(case, group, "float32", device)
def both():
    room.set_lengths()
    room.backward(*room.forward())
with torch.cuda.device(device):
    both()
    group.synchronize()
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)
    done = torch.cuda.Event()
    begin = time.monotonic()
    both()
    took = time.monotonic() - begin
    done.record()
    was_done = done.query()
    group.synchronize()
answer = took, was_done
"""
    for took, was_done in pool.all("two processes", call, case=case_of("p2p", "two processes")):
        assert took < 0.5 and not was_done


SET = """
def set_to(*cu):
    room.plan.set_lengths(torch.tensor(cu, dtype=torch.int32, device=f"cuda:{device}"))
def raised():
    try:
        room.plan.check()
    except ValueError as error:
        return str(error)
"""
START = "room = Room(case, group, dtype, device, capacity)\n" + SET
SMALL = {"max_sequences": 4, "num_rows_q": 192, "num_rows_k": 192}
WHOLE = rs.PackedLayout([0, 192])


@pytest.mark.parametrize("name", ["one process", "two processes", "two ranks a process"])
@pytest.mark.parametrize("comm", ["p2p", "all_gather"])
@pytest.mark.parametrize(
    "cu", [[0, 5, 3], [1, 2, 3], [0, 5, 193], [0, -(2**31), 4], [0, 2**31 - 1, 3]],
    ids=["falls", "does not start at 0", "more rows than room", "negative", "wraps"],
)  # fmt: skip
def test_lengths_that_do_not_fit_give_an_empty_batch_and_check_says_so(pool, cu, comm, name):
    call = """
answer = [*lengths_difference(room)[0]]
set_to(*cu)
found = is_empty(room, *room.passes())
answer += [found, "did not fit" in raised(), raised(), *lengths_difference(room)[0]]
"""
    values = {"case": case_of(comm, name, WHOLE, sink=0.5), "capacity": SMALL, "cu": cu}
    found = pool.all(name, START + call, dtype="bfloat16", **values)
    assert found == [[[], True, None]] * len(found)


@pytest.mark.parametrize("name", ["two processes", "a rank a process", "two ranks a process"])
@pytest.mark.parametrize("comm", COMMS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_lengths_that_differ_between_processes_give_an_empty_batch_in_all(pool, dtype, comm, name):
    call = """
other = room.group.ranks[-1] == case.cp_size - 1  # the last process
answer = [*lengths_difference(room)[0]]
for mine, theirs in (((0, 190, 192), (0, 192, 192)), ((0, 192), (0, 0)), ((0, 100), (0, 99))):
    set_to(*(theirs if other else mine))
    answer += [is_empty(room, *room.passes()), "in every process" in raised(), raised()]
answer += lengths_difference(room)[0]
"""
    values = {"case": case_of(comm, name, WHOLE, sink=0.5), "capacity": SMALL, "dtype": dtype}
    found = pool.all(name, START + call, **values)
    assert found == [[[], True, None] * 3] * len(found)


def test_lengths_of_keys_and_padding_that_differ_are_noticed(pool):
    call = """
def of(*cu):
    return torch.tensor(cu, dtype=torch.int32, device=f"cuda:{device}")
other, answer = group.ranks == (1,), []
for place in range(1, 4):
    arrays = [of(0, 8, 16) for _ in range(4)]
    if other:
        arrays[place] = of(0, 8, 18) if place % 2 else of(0, 7, 16)
    room.plan.set_lengths(*arrays)
    answer.append((is_empty(room, *room.passes()), "in every process" in raised()))
"""
    case = case_of("p2p", "two processes", WHOLE)
    found = pool.all("two processes", START + call, case=case, capacity=SMALL, dtype="float32")
    assert found == [[([], True)] * 3] * 2


def test_two_batches_in_flight_have_lengths_of_their_own(pool):
    cases = [case_of("all_gather", "two processes", x) for x in LAYOUTS[:2]]
    call = """
rooms = [Room(case, group, "bfloat16", device, capacity) for case in cases]
for room in rooms:
    room.set_lengths()
saved = [room.forward() for room in rooms]
found = [(*saved[i], *rooms[i].backward(*saved[i])) for i in (1, 0)]
group.synchronize()
answer = []
for room, mine in zip(rooms, reversed(found)):
    room.plan.check()
    out, lse = room.forward()  # each by itself
    alone = (out, lse, *room.backward(out, lse))
    group.synchronize()
    answer += [torch.equal(a, b) for a, b in zip(mine, alone)]
answer += lengths_difference(rooms[0])[0] + lengths_difference(rooms[1])[0]
"""
    found = pool.all("two processes", call, cases=cases, capacity=CAPACITY)
    assert found == [[True] * 10] * 2


@pytest.mark.parametrize("name", ["two processes", "two ranks a process"])
@pytest.mark.parametrize("comm", COMMS)
def test_kept_keys_give_the_same_bits(pool, comm, name):
    call = """
room, answer = Room(cases[0], group, "bfloat16", device, capacity), []
for case in cases:
    room.write(case)
    room.set_lengths()
    out, lse = room.forward()
    want = room.backward(out, lse)
    out, lse, kept = room.forward(keep_kv=True)
    got = room.backward(out, lse, kept_kv=kept)
    group.synchronize()
    for x, y in zip(got, want):
        answer += [torch.equal(a, b) for a, b in zip(listed(x, group), listed(y, group))]
room.plan.check()
"""
    cases = [case_of(comm, name, x) for x in LAYOUTS]
    for answer in pool.all(name, call, cases=cases, capacity=CAPACITY):
        assert answer == [True] * len(answer) and answer


def test_autograd_gives_the_gradients_of_the_rows(pool):
    call = """
from ringside.torch import varlen_attention
room = Room(case, group, "float32", device)
room.set_lengths()
leaves = [x.clone().requires_grad_() for x in (room.q, room.k, room.v)]
sink = torch.zeros(case.num_heads, device=room.q.device, requires_grad=True)
keywords = {"group": group, "deterministic": True, "sink": sink}
answer = []
for keep in (False, True):
    for x in (*leaves, sink):
        x.grad = None
    out = varlen_attention(*leaves, room.plan, keep_kv=keep, **keywords)
    out.backward(room.dout)
    group.synchronize()
    (want,) = room.alone_found(logits=False)
    lse = varlen_attention(*leaves, room.plan, return_lse=True, **keywords)[1]
    answer += room.wrong((out.detach(), lse, *(x.grad for x in leaves)), want)
sums = on_host(sink.grad), on_host(want["dsink"])
out = varlen_attention(*leaves, room.plan, **keywords)
room.set_lengths()
try:
    out.backward(room.dout)
except RuntimeError as error:
    answer.append("in flight" in str(error))
group.synchronize()
answer = answer, sums
"""
    case = case_of("p2p", "two processes", sink=0.0)
    (found, (one, want)), (again, (other, _)) = pool.all("two processes", call, case=case)
    assert found == again == [True]
    assert_allclose(one + other, want, rtol=0, atol=1e-5 * max(1.0, abs(want).max()))


def test_prepare_leaves_nothing_to_agree_on_with_and_without_lengths(pool):
    call = """
from ringside._ranks import calls
answer = []
for lengths_first in (False, True):
    room = Room(case, group, "float32", device)
    calls.POISON.on = False  # which prepare knows nothing of
    if lengths_first:
        room.set_lengths()
    dims = {"head_dim": 16, "head_dim_v": 8}
    room.plan.prepare(group, dtype=torch.float32, device=device, exchange="peer", **dims)
    rounds = group._rounds
    if not lengths_first:
        room.set_lengths()
    out, lse = room.forward()
    found = (out, lse, *room.backward(out, lse))
    group.synchronize()
    answer += [group._rounds - rounds, room.wrong(found, room.alone_found(logits=False)[0])]
"""
    case = case_of("all_gather", "two processes")
    assert pool.all("two processes", call, case=case) == [[0, [], 0, []]] * 2


def test_what_does_not_fit_is_refused_in_all_and_the_group_lives(pool):
    wrong = {
        "room.q[1:]": 'rows; expected rank_rows(side="q")',
        "room.q.cpu()": "on the CPU",
        "room.q.double()": "float64",
        "room.q[:, 1:].contiguous()": "q_r has heads and dimension",
        "[room.q]": "expected device arrays",
    }
    case, parts = case_of("p2p", "two processes"), pool.parts("two processes")
    pool.all("two processes", "room = Room(case, group, 'float32', device)", case=case)
    pool.all("two processes", "room.set_lengths()")
    for q, text in wrong.items():
        call = f"room.plan.attention_rank({q}, room.k, room.v, group=group, softmax_scale=0.25)"
        for worker in parts[0]:
            worker.tell(call)
        for worker in parts[0]:
            error = worker.error()
            assert text in error.text and error.kind != "RankFailure", error
    assert pool.all("two processes", "answer = lengths_difference(room)[0]") == [[], []]


def test_arrays_of_cupy(pool):
    pytest.importorskip("cupy")
    call = """
import cupy
room = Room(case, group, "float32", device)
room.set_lengths()
want = (lambda out, lse: (out, lse, *room.backward(out, lse)))(*room.forward())
plan = device_plan(case, room.capacity)
with cupy.cuda.Device(device):
    q, k, v, dout, *cu = (
        cupy.from_dlpack(x) for x in (room.q, room.k, room.v, room.dout, *room.cu)
    )
    plan.set_lengths(*cu)
    more = {"group": group, "exchange": "peer"}
    out, lse = plan.attention_rank(q, k, v, **more)
    arrays = (dout, q, k, v, out, lse)
    got = (out, lse, *plan.attention_backward_rank(*arrays, deterministic=True, **more))
    group.synchronize()
    plan.check()
    answer = [np.array_equal(cupy.asnumpy(x), y.cpu().numpy()) for x, y in zip(got, want)]
"""
    case = case_of("p2p", "two processes")
    assert pool.all("two processes", call, case=case) == [[True] * 5] * 2
