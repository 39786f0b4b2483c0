"""Ranks in several processes compute, to the bit, what they compute on one GPU as virtual ranks.

Any plan, any transport, 1, 2 and 4 ranks a process, both passes, float32, and bfloat16 where it is
deterministic. On one GPU its processes exchange through peer memory; where there are two, each
process has one, and NCCL is tried, too.
"""

import numpy as np
import pytest
import ringside as rs
from cuda_cases import REASON
from group_cuda import virtual
from group_processes import started
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside.testing import Case, strategies

pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no GPU test: {REASON}")

HOSTED = {
    "two processes": [[0], [1]],
    "a rank a process": [[0], [1], [2], [3]],
    "two ranks a process": [[0, 1], [2, 3]],
    "one and two": [[0], [1, 2]],
    "four ranks a process": [[0, 2, 3, 6], [1, 4, 5, 7]],
}
SIZES = {name: sum(map(len, ranks)) for name, ranks in HOSTED.items()}


def devices():
    import torch

    return torch.cuda.device_count()


class Pool:
    """Processes with a group of each kind."""

    def __init__(self, workers):
        self.workers, self.made = workers, {}
        workers.all("from group_cuda import Shards, passes; import torch; torch.cuda.init()")

    def all(self, name, call, **values):
        """What each process of `group` answers."""
        hosted = HOSTED[name]
        if name not in self.made:
            self.made[name] = f"group_{len(self.made)}"
            self.workers.make_group(hosted, self.made[name], timeout_s=20)
        taking_part = self.workers[: len(hosted)]
        for i, worker in enumerate(taking_part):
            worker.tell(f"group = {self.made[name]}\n{call}", **values, device=i % devices())
        return [worker.answer() for worker in taking_part]

    def passes(self, name, case, dtype, exchange):
        """(arrays by rank, max_logit of each process)."""
        hosted = HOSTED[name]
        call = "answer = passes(case, group, dtype, exchange, device, 2)"
        answers = self.all(name, call, case=case, dtype=dtype, exchange=exchange)
        by_rank = {}
        for ranks, (arrays, _) in zip(hosted, answers, strict=True):
            for what, parts in arrays.items():
                by_rank.setdefault(what, {}).update(zip(ranks, parts, strict=True))
        arrays = {what: [x[rank] for rank in sorted(x)] for what, x in by_rank.items()}
        return arrays, [max_logit for _, max_logit in answers]


@pytest.fixture(scope="module")
def pool():
    with started(4) as workers:
        yield Pool(workers)


def check(pool, name, case, dtype, exchange="peer"):
    got, max_logits = pool.passes(name, case, dtype, exchange)
    want, max_logit = virtual(case, dtype)
    plan = case.plan()
    for what in ("out", "dq"):
        np.testing.assert_array_equal(plan.unshard(got[what]), want[what], what)
    for what in ("dk", "dv"):
        np.testing.assert_array_equal(plan.unshard(got[what], side="k"), want[what], what)
    for rank, part in enumerate(got["lse"]):
        np.testing.assert_array_equal(part, want["lse"][:, plan.row_indices(rank)], "lse")
    for found in max_logits:
        np.testing.assert_array_equal(found, max_logit)
    if case.sink is not None:  # each rank sums its own rows
        total, scale = np.sum(got["dsink"], axis=0), np.abs(want["dsink"]).max()
        np.testing.assert_allclose(total, want["dsink"], rtol=0, atol=1e-5 * max(1.0, scale))


DOCUMENTS = rs.PackedLayout([0, 90, 90, 93, 190], [0, 100, 104, 110, 210])
PLAIN = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "head_dim_v": 8}
TRANSPORTS = [
    (comm, name, dtype) for comm in rs.COMMS for name in HOSTED for dtype in ("float32", "bfloat16")
]


def case_of(comm, name, **more):
    size = SIZES[name]
    more = {**PLAIN, "num_heads": 8, "num_kv_heads": 4, **more}
    a2a = (2 if size % 2 == 0 else size) if comm == "a2a+p2p" else None
    return Case(DOCUMENTS, cp_size=size, comm=comm, a2a_size=a2a, **more)


@pytest.mark.parametrize(("comm", "name", "dtype"), TRANSPORTS)
def test_every_transport_over_every_way_to_host(pool, comm, name, dtype):
    check(pool, name, case_of(comm, name), dtype)


@pytest.mark.parametrize("comm", rs.COMMS)
def test_nccl_gives_the_same(pool, comm):
    if devices() < 2:
        pytest.skip("NCCL refuses two processes on one GPU, and there is one")
    for name in ("two processes", "two ranks a process"):
        if len(HOSTED[name]) <= devices():
            check(pool, name, case_of(comm, name), "bfloat16", "nccl")


OPTIONS = {
    "sink": {"sink": tuple(range(-4, 4))},
    "softcap and dropout": {"softcap": 20.0, "dropout_p": 0.25, "dropout_seed": 7},
    "odd head dimensions": {"head_dim": 20, "head_dim_v": 12},
    "window": {"mask": rs.Mask.sliding_window(30, 5)},
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("options", OPTIONS)
def test_options_and_converted_rows(pool, options, dtype):
    check(pool, "two processes", case_of("p2p", "two processes", **OPTIONS[options]), dtype)
    check(pool, "one and two", case_of("fetch", "one and two", **OPTIONS[options]), dtype)


@st.composite
def groups_and_cases(draw):
    name = draw(st.sampled_from(list(HOSTED)))
    sizes = st.just(SIZES[name])
    case = draw(strategies.cases(cp_sizes=sizes, options=strategies.options))
    return name, case, draw(st.sampled_from(["float32", "bfloat16"]))


@settings(max_examples=min(60, settings().max_examples))
@given(groups_and_cases())
def test_any_plan(pool, drawn):
    check(pool, *drawn)


def test_who_is_ahead_waits_for_those_who_still_read(pool):
    """Rank 1 sees three times as many pairs; rank 0 has its next keys ready meanwhile."""
    case = Case(
        rs.PackedLayout([0, 16_384]), cp_size=2, partition="contiguous", num_heads=8,
        num_kv_heads=8, head_dim=64,
    )  # fmt: skip
    call = """
torch.cuda.set_device(device)
shards = Shards(case, group, "bfloat16", device)
keys, found, answer = [shards.k * factor for factor in (1, -0.5, 0.25, -2)], [], []
torch.cuda.synchronize()
for shards.k in keys:
    found.append(shards.forward("peer")[0])
group.synchronize()
for shards.k, out in zip(keys, found):
    answer.append(torch.equal(shards.forward("peer")[0], out))
    group.synchronize()
"""
    assert pool.all("two processes", call, case=case) == [[True] * 4] * 2


def test_ranks_without_rows_and_calls_in_turn(pool):
    for dtype in ("float32", "bfloat16"):
        check(pool, "a rank a process", Case(rs.PackedLayout([0, 2]), cp_size=4, head_dim=8), dtype)
        check(pool, "two processes", Case(rs.PackedLayout([0, 700]), cp_size=2), dtype)


def test_nccl_is_refused_for_two_processes_of_one_gpu(pool):
    if devices() > 1:
        pytest.skip("every process has a GPU of its own")
    workers = pool.workers[:2]
    pool.workers.make_group([[0], [1]], "refused", timeout_s=20)
    for worker in workers:
        worker.tell(
            "passes(case, refused, 'float32', 'nccl', 0)", case=case_of("p2p", "two processes")
        )
    for worker in workers:
        error = worker.error()
        assert error.kind == "Unsupported" and "ranks 0, 1" in error.text, error
