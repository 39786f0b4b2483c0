"""Several processes give what one gives: any plan, any transport, any ranks a process, both passes.

The processes live as long as the module; they host 1, 2 and 4 ranks. Forward is the all-rank
executor's to the bit, backward but for the order in which gradients of one key are summed; and both
are to the bit what one process with all ranks gets by the same schedules.
"""

import numpy as np
import pytest
import ringside as rs
from group_processes import Raised, started
from group_worker import both_passes
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside.testing import Case, strategies

HOSTED = {  # which ranks the processes of a group host
    "a rank a process": [[0], [1], [2], [3]],
    "two ranks a process": [[0, 1], [2, 3]],
    "one and two": [[0], [1, 2]],
    "four and one": [[0, 2, 3, 4], [1]],
    "two processes": [[0], [1]],
}
EPS = 2.0**-52


class Pool:
    """Processes with a group of each kind; a group that failed is made anew."""

    def __init__(self, workers):
        self.workers, self.made = workers, {}

    def both_passes(self, name, case):
        """(arrays by rank, max_logit of every process); arrays are lists as of both_passes."""
        hosted = HOSTED[name]
        if name not in self.made:
            self.made[name] = f"group_{len(self.made)}_{id(case)}"
            self.workers.make_group(hosted, self.made[name], timeout_s=20)
        taking_part = self.workers[: len(hosted)]
        for worker in taking_part:
            worker.tell(f"answer = both_passes(case, {self.made[name]})", case=case)
        answers, raised = [], None
        for worker in taking_part:
            try:
                answers.append(worker.answer())
            except Raised as error:
                raised = raised or error
        if raised is not None:
            del self.made[name]
            raise raised
        arrays = [{} for _ in answers[0][0]]
        for ranks, (found, _) in zip(hosted, answers, strict=True):
            for by_rank, parts in zip(arrays, found, strict=True):
                by_rank.update(zip(ranks, parts, strict=True))
        by_rank = [[x[rank] for rank in sorted(x)] for x in arrays]
        return by_rank, [max_logit for _, max_logit in answers]


@pytest.fixture(scope="module")
def pool():
    with started(4) as workers:
        yield Pool(workers)


def same_bits(a, b):
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=True)


def check(pool, name, case):
    got, max_logits = pool.both_passes(name, case)
    with rs.init(ranks_per_process=case.cp_size) as alone:
        one_process, max_logit = both_passes(case, alone)
    for many, one in zip(got, one_process, strict=True):
        assert all(map(same_bits, many, one))
    plan, (q, k, v, dout) = case.plan(), case.arrays()
    out, lse, logits = plan.attention(q, k, v, return_max_logit=True, **case.options)
    assert same_bits(plan.unshard(got[0]), out)
    for rank, part in enumerate(got[1]):
        assert same_bits(part, lse[:, plan.row_indices(rank)])
    assert all(same_bits(x, logits) for x in [*max_logits, max_logit])
    wanted = plan.attention_backward(dout, q, k, v, out, lse, **case.options)
    for parts, whole, side in zip(got[2:5], wanted[:3], "qkk", strict=True):
        require_near(plan.unshard(parts, side=side), whole)
    if case.sink is not None:
        require_near(np.sum(got[5], axis=0), wanted[3])


def require_near(got, wanted):
    """Sums of at most 64 terms in another order."""
    scale = max(1.0, np.nanmax(np.abs(wanted), initial=0.0))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=64 * 64 * EPS * scale, equal_nan=True)


SIZES = {name: sum(map(len, ranks)) for name, ranks in HOSTED.items()}


@st.composite
def groups_and_cases(draw):
    name = draw(st.sampled_from(list(HOSTED)))
    sizes = st.just(SIZES[name])
    return name, draw(strategies.cases(cp_sizes=sizes, options=strategies.options))


@settings(max_examples=min(120, settings().max_examples))  # of a tenth of a second each
@given(groups_and_cases())
def test_processes_agree_with_one_process(pool, drawn):
    check(pool, *drawn)


TRANSPORTS = [(comm, name) for comm in rs.COMMS for name in HOSTED]


@pytest.mark.parametrize(("comm", "name"), TRANSPORTS)
def test_every_transport_over_every_way_to_host(pool, comm, name):
    size = SIZES[name]
    a2a = {4: 2, 2: 2}.get(size, size) if comm == "a2a+p2p" else None
    layout = rs.PackedLayout([0, 90, 90, 93, 190], [0, 100, 104, 110, 210])
    case = Case(
        layout,
        cp_size=size,
        comm=comm,
        a2a_size=a2a,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        head_dim_v=6,
        sink=(0.5, -1.0, 0.0, 2.0),
        softcap=20.0,
        dropout_p=0.25,
        dropout_seed=7,
    )
    check(pool, name, case)


def test_ranks_without_rows(pool):
    check(pool, "four and one", Case(rs.PackedLayout([0, 2]), cp_size=5))


def test_messages_larger_than_any_buffer(pool):
    layout, mask = rs.PackedLayout([0, 8000]), rs.Mask.sliding_window(0, 0)
    wide = {"head_dim": 256, "head_dim_v": 256}  # 8 MB of keys and values to each peer
    check(pool, "a rank a process", Case(layout, cp_size=4, comm="all_gather", mask=mask, **wide))
