"""Timelines of GPU runs, from a profile that is played."""

import itertools

import ringside as rs
from ringside._bench.gpu import timelines
from ringside._bench.gpu.timelines import Activity, events_of
from ringside._plan.timing import Owners

FORWARD = "void ringside::hopper::forward_kernel<128>(Params)"
BACKWARD = "void ringside::mma::key_gradient_kernel<128>(Params)"
QUERIES = "void ringside::mma::query_gradient_kernel<128>(Params)"
DROPPED = "void ringside::dropped_forward_kernel<bf16>(ForwardArguments, int const*)"
FILL = "void ringside::fill_kernel(float*)"
COPY, NCCL = "Memcpy PtoP (Device -> Device)", "ncclDevKernel_SendRecv(...)"
PLAN = rs.plan(rs.PackedLayout([0, 64]), cp_size=2)
# Forward of two steps, backward of two, copies under the tiles, two of them side by side.
PROFILE = [
    *(Activity(FILL, 0, 2), Activity(FORWARD, 2, 9), Activity(COPY, 3, 6), Activity(NCCL, 5, 9)),
    *(
        Activity(DROPPED, 9, 10),
        Activity(FORWARD, 10, 18),
        Activity(FILL, 18, 19),
        Activity(BACKWARD, 20, 30),
        Activity(QUERIES, 30, 34),
    ),
    *(Activity(COPY, 22, 40), Activity(BACKWARD, 34, 44), Activity(QUERIES, 44, 48)),
]


def test_kernels_become_steps_and_copies_a_track_of_their_own():
    events = events_of(PROFILE[::-1], 1, [0, 1], Owners(PLAN))
    work = [(e.step, e.begin_us, e.end_us) for e in events if e.kind == "work"]
    assert work == [
        *((0, 0, 2), (0, 2, 9), (0, 9, 10), (1, 10, 18), (1, 18, 19)),
        *((1, 20, 30), (1, 30, 34), (0, 34, 44), (0, 44, 48)),
    ]
    assert [e[2:5] for e in events if e.kind == "exchange"] == [
        ("exchange", 3, 9),
        ("exchange", 22, 40),
    ]
    assert {(e.step, e.owners) for e in events} == {(0, (1,)), (1, (0,))}
    for track in ("work", "exchange"):
        own = [e for e in events if e.kind == track]
        assert all(a.end_us <= b.begin_us for a, b in itertools.pairwise(own))


class PlayedGroup:
    """Two ranks; the other one's GPU did the same, later."""

    def _tell_all(self, told):
        return [((0,), told), ((1,), [(name, begin + 100, end + 101) for name, begin, end in told])]


def test_ranks_come_together_in_one_form(monkeypatch, tmp_path):
    monkeypatch.setattr(timelines, "profiled", lambda run: run())
    late = [Activity(s.name, s.begin + 7, s.end + 7) for s in PROFILE]
    timeline = timelines.measured(PLAN, PlayedGroup(), lambda: late)
    assert (timeline.source, timeline.num_ranks) == ("measured on GPUs", 2)
    assert min(e.begin_us for e in timeline.events) == 0 and timeline.total_us == 149
    assert timeline.exposed_us.tolist() == [0, 0]
    assert timeline.work_us[0] == 2 + 8 + 8 + 1 + 14 + 14
    timeline.save(tmp_path / "trace.json")
    assert "measured on GPUs" in (tmp_path / "trace.json").read_text()
