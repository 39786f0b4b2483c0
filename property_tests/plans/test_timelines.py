"""Timelines by a model: beside a plain simulation, between estimate and cost, and in themselves."""

import itertools
import json

import numpy as np
import pytest
import ringside as rs
from assertions import noted
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_timeline import PlainTimeline
from ringside._plan.timing import group_of
from ringside.testing import strategies

KINDS = ("hop", "all_gather", "all_to_all", "fetch")
AMOUNTS = st.floats(0.01, 50.0)
PERHAPS = st.just(0.0) | st.floats(1e-6, 20.0)  # not so little that a time stays what it was


@st.composite
def tables(draw):
    steps = draw(st.lists(st.tuples(st.floats(1, 400), AMOUNTS), min_size=1, max_size=4))
    sizes, us = (np.cumsum(column).tolist() for column in zip(*steps, strict=True))
    return [list(point) for point in zip(sizes, us, strict=True)]


@st.composite
def models(draw, dims):
    """A machine that no one has: small blocks, uneven tables, hosts of few ranks."""

    def rates():
        names = ("us_per_block", "us_per_partial_block", "us_per_visit", "us_per_launch")
        return {name: draw(PERHAPS) for name in names}

    def links(ranks):
        return {
            "ranks": ranks,
            "us_of_bytes": {kind: draw(tables()) for kind in KINDS},
            "source": "",
        }

    kernel = {"dtype": "bfloat16", "head_dim": dims[0], "head_dim_v": dims[1]}
    kernel |= {"block_size": [draw(st.integers(1, 9)), draw(st.integers(1, 9))]}
    return {
        **{"ringside_time_model": 1, "name": "made up", "source": "", "multiprocessors": 8},
        "kernels": [{**kernel, "forward": rates(), "backward": rates(), "source": ""}],
        "links": [links(draw(st.integers(1, 4))), links(None)],
        "exchange_multiprocessors": draw(st.sampled_from([0, 0, 1, 5])),
        "overlap": draw(st.booleans()),
        "memory": {
            "gb_per_s": draw(st.floats(0.01, 1.0)),
            "per_byte_received": draw(st.dictionaries(st.sampled_from(KINDS), PERHAPS)),
            "per_byte_added": draw(st.sampled_from([0.0, 1.5])),
            "per_merged_element": draw(st.sampled_from([0.0, 2.5])),
            "source": "",
        },
        "host_us_per_step": draw(st.sampled_from([0.0, 3.0])),
    }


def arguments_of(case):
    return {
        "mask": case.mask,
        "cp_size": case.cp_size if isinstance(case.partition, str) else None,
        "partition": case.partition,
        "partition_k": case.partition_k,
        "comm": case.comm,
        "a2a_size": case.a2a_size,
        "num_heads": case.num_heads,
        "num_kv_heads": case.num_kv_heads,
    }


DIMS = (6, 5)
SIZES = {"head_dim": DIMS[0], "head_dim_v": DIMS[1]}


def assert_same_events(got, wanted):
    got = sorted(tuple(event[:5]) for event in got)
    assert [e[:3] for e in sorted(got)] == [e[:3] for e in wanted]
    np.testing.assert_allclose([e[3:] for e in got], [e[3:] for e in wanted], rtol=1e-9, atol=1e-6)


@settings(max_examples=150)
@given(noted(strategies.cases()), models(DIMS), st.sampled_from(["forward", "backward"]))
def test_a_timeline_is_that_of_a_plain_simulation(case, model, direction):
    plan = case.plan()
    timeline = plan.timeline(model, direction=direction, **SIZES)
    plain = PlainTimeline(plan, model, DIMS, direction == "backward", group_of(plan)).events()
    assert_same_events(timeline.events, plain)
    assert timeline.total_us == pytest.approx(max((e[4] for e in plain), default=0.0))


@settings(max_examples=80)
@given(noted(strategies.cases()), models(DIMS))
def test_an_estimate_has_the_times_of_the_cost_of_the_plan(case, model):
    arguments = arguments_of(case)
    plan = rs.plan(case.layout_q, case.layout_k, **arguments)
    block = tuple(model["kernels"][0]["block_size"])
    wanted = plan.cost(**SIZES, block_size=block, model=model)
    got = rs.estimate(
        case.layout_q, case.layout_k, **arguments, **SIZES, block_size=block, model=model
    )
    assert isinstance(got, rs.TimedCost) and isinstance(got, rs.PlanCost)
    assert (got.blocks == wanted.blocks).all()
    for direction in ("forward", "backward"):
        a, b = getattr(got, direction), getattr(wanted, direction)
        assert a.total_us == b.total_us
        for kind in ("work", "exchange"):
            for x, y in zip(getattr(a, kind), getattr(b, kind), strict=True):
                np.testing.assert_array_equal(x, y)
        for name in ("exposed_us", "idle_us", "peak_bytes"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert (wanted.forward.peak_bytes == wanted.workspace_bytes).all()
    assert (wanted.backward.peak_bytes == wanted.backward_workspace_bytes).all()


@settings(max_examples=80)
@given(noted(strategies.cases()), models(DIMS), st.sampled_from(["forward", "backward"]))
def test_tracks_nest_times_add_up_and_nothing_is_used_before_it_came(case, model, direction):
    plan = case.plan()
    timeline = plan.timeline(model, direction=direction, **SIZES)
    assert timeline.total_us == max((e.end_us for e in timeline.events), default=0.0)
    for rank in range(plan.cp_size):
        own = [e for e in timeline.events if e.rank == rank]
        for kind in ("work", "exchange"):
            track = [e for e in own if e.kind == kind]
            for first, second in itertools.pairwise(track):
                assert first.end_us <= second.begin_us * (1 + 1e-12)
        work = sum(e.end_us - e.begin_us for e in own if e.kind == "work")
        assert timeline.work_us[rank] == pytest.approx(work)
        parts = work + timeline.exposed_us[rank] + timeline.idle_us[rank]
        assert parts == pytest.approx(timeline.total_us)
        exposed = sum(e.end_us - e.begin_us for e in own if e.kind == "exchange") - hidden(own)
        assert timeline.exposed_us[rank] == pytest.approx(exposed, abs=1e-6)
        if direction == "forward":
            began = {e.step: e.begin_us for e in reversed(own) if e.kind == "work"}
            for step, here in enumerate(plan.steps(rank)):
                if step in began and any(m.peer != rank for m in here.receives):
                    came = [e.end_us for e in own if (e.kind, e.step) == ("exchange", step)]
                    assert min(came) <= began[step] * (1 + 1e-12)


def hidden(own):
    """Of the exchanges of a rank, what its tiles cover."""
    total = 0.0
    for a, b in itertools.product(own, own):
        if (a.kind, b.kind) == ("work", "exchange"):
            total += max(0.0, min(a.end_us, b.end_us) - max(a.begin_us, b.begin_us))
    return total


@settings(max_examples=50)
@given(noted(strategies.cases(cp_sizes=st.integers(1, 4))))
def test_owners_are_the_homes_of_the_keys_of_a_step(case):
    plan = case.plan()
    homes = {}
    for rank in range(plan.cp_size):
        for row in plan.row_indices(rank, side="k").tolist():
            homes[row] = rank
    first = plan.layout_k.cu_seqlens_padded
    model = rs.TimeModel.preset("h200-mma")
    for event in plan.timeline(model, head_dim=64).events:
        held = plan.steps(event.rank)[event.step].kv
        rows = {int(first[s.seq]) + p for s in held for p in s.positions.tolist()}
        assert event.owners == tuple(sorted({homes[row] for row in rows}))


def test_a_ring_bound_by_its_slowest_hop_goes_at_its_pace():
    """Two hosts of four: each of the seven steps takes as long as the hop between the hosts."""
    data = json.loads(json.dumps(SIMPLE))
    data["links"][0]["ranks"] = 4
    data["links"].append({"ranks": None, "us_of_bytes": {"hop": [[1, 500.0], [1e9, 501.0]]}})
    data["links"][1]["source"] = ""
    plan = rs.plan(rs.PackedLayout([0, 4096]), cp_size=8, mask=rs.Mask.full())
    timeline = plan.timeline(data)
    assert timeline.total_us == pytest.approx(7 * 500, rel=0.01)
    near = plan.timeline(SIMPLE).total_us
    assert near < 300


SIMPLE = {
    **{"ringside_time_model": 1, "name": "simple", "source": "", "multiprocessors": 100},
    "kernels": [
        {
            **{"dtype": "bfloat16", "head_dim": 128, "head_dim_v": 128, "block_size": [128, 128]},
            **{"source": ""},
            **{
                way: {
                    **{"us_per_block": 10.0, "us_per_partial_block": 0.0},
                    **{"us_per_visit": 0.0, "us_per_launch": 0.0},
                }
                for way in ("forward", "backward")
            },
        }
    ],
    "links": [{"ranks": None, "us_of_bytes": {"hop": [[1, 5.0], [1e9, 6.0]]}, "source": ""}],
    **{"exchange_multiprocessors": 0, "overlap": True, "host_us_per_step": 0.0},
    "memory": {
        **{"gb_per_s": 1000.0, "per_byte_received": {}, "per_byte_added": 0.0},
        **{"per_merged_element": 0.0, "source": ""},
    },
}


def test_a_ring_by_hand():
    """Full mask, 2 ranks of 8 x 8 blocks a step: 64 blocks of 10 us on 100 multiprocessors."""
    plan = rs.plan(rs.PackedLayout([0, 2048]), cp_size=2, mask=rs.Mask.full())
    data = json.loads(json.dumps(SIMPLE))
    assert plan.timeline(data).total_us == pytest.approx(2 * 6.4)  # 5 us travel under 6.4
    data["overlap"] = False
    assert plan.timeline(data).total_us == pytest.approx(2 * 6.4 + 5, rel=1e-3)
    data["overlap"], data["exchange_multiprocessors"] = True, 50
    # Half of the device for 5 us: 2.5 us of work are late.
    assert plan.timeline(data).total_us == pytest.approx(2 * 6.4 + 2.5, rel=1e-3)


def test_who_only_sends_computes_beside_it():
    """Backward, rank 1 sends keys for 5 us and has tiles of its own: half of the device, 3 of 6."""
    layout_q, layout_k = rs.PackedLayout([0, 4]), rs.PackedLayout([0, 3])
    plan = rs.plan(layout_q, layout_k, mask=rs.Mask.chunked(1), cp_size=2, partition="contiguous")
    data = json.loads(json.dumps(SIMPLE))
    data["exchange_multiprocessors"] = 50
    data["kernels"][0]["backward"]["us_per_launch"] = 2.0
    timeline = plan.timeline(data, direction="backward")
    alone = [e for e in timeline.events if (e.rank, e.kind) == (1, "work")]
    assert [(e.step, e.begin_us) for e in alone] == [(0, 0.0)]
    wanted = 2.0 + timeline_us_of_blocks(plan)
    assert alone[0].end_us == pytest.approx(2 * wanted, rel=1e-3)


def timeline_us_of_blocks(plan):
    """Of rank 1, by SIMPLE."""
    return plan.cost().blocks[1].sum() * 10.0 / 100


def test_nothing_to_do_takes_no_time():
    for lengths in ([], [0, 0]):
        plan = rs.plan(rs.PackedLayout.from_lengths(lengths), cp_size=3)
        for direction in ("forward", "backward"):
            timeline = plan.timeline(direction=direction)
            assert timeline.total_us == 0 and timeline.events == ()
            assert timeline.exposed_us.tolist() == timeline.idle_us.tolist() == [0, 0, 0]


def test_a_saved_trace_shows_each_event_on_a_track_of_its_kind(tmp_path):
    layout = rs.PackedLayout.from_lengths([3000, 70, 900])
    timeline = rs.plan(layout, cp_size=4, num_heads=2).timeline("h200", direction="backward")
    timeline.save(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    shown = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert len(shown) == len(timeline.events) > 8
    tracks = {"work": 0, "exchange": 1}
    for event, wanted in zip(shown, timeline.events, strict=True):
        assert (event["pid"], event["tid"], event["cat"]) == (
            wanted.rank, tracks[wanted.kind], wanted.kind,
        )  # fmt: skip
        assert (event["ts"], event["ts"] + event["dur"]) == pytest.approx(wanted[3:5])
        assert event["args"] == {"step": wanted.step, "owners": list(wanted.owners)}
    named = {(e["pid"], e["args"].get("name")) for e in trace["traceEvents"] if e["ph"] == "M"}
    assert {(rank, f"rank {rank}") for rank in range(4)} <= named
    assert {(3, "work"), (3, "exchange")} <= named
    assert trace["otherData"] == {"direction": "backward", "source": "h200"}


def test_thousands_of_ranks_have_times_and_no_events():
    layout = rs.PackedLayout.from_lengths([8192] * 128)
    cost = rs.estimate(
        layout, cp_size=4096, comm="a2a+p2p", a2a_size=64, num_heads=64, model="h200"
    )
    assert len(cost.forward.work.begin) == 4096 and cost.forward.work.begin.shape[1] >= 64
    assert 0 < cost.forward.total_us < cost.backward.total_us
    assert "events" not in vars(cost.forward)


@settings(max_examples=50)
@given(st.integers(1, 12), st.data())
def test_the_group_of_a_plan_is_what_it_was_asked_for(cp_size, data):
    group = data.draw(st.sampled_from([n for n in range(1, cp_size + 1) if cp_size % n == 0]))
    plan = rs.plan(
        rs.PackedLayout([0, 40]), mask=rs.Mask.full(), cp_size=cp_size, comm="a2a+p2p",
        a2a_size=group, num_heads=cp_size,
    )  # fmt: skip
    assert group_of(plan) == group


@settings(max_examples=40)
@given(noted(strategies.cases(cp_sizes=st.integers(1, 4))), st.booleans())
def test_a_measured_timeline_has_the_operations_of_the_schedules(case, backward):
    plan = case.plan()
    direction = "backward" if backward else "forward"
    timeline = plan.timeline("measured", direction=direction, head_dim=4, head_dim_v=3)
    assert (timeline.source, timeline.direction) == ("measured", direction)
    for rank in range(plan.cp_size):
        wanted, got = {}, {}
        for operation in plan.schedule(rank, backward=backward):
            kind = "exchange" if operation.kind == "exchange" else "work"
            wanted.setdefault(kind, []).append(operation.step)
        own = [e for e in timeline.events if e.rank == rank]
        for first, second in itertools.pairwise(own):
            assert first.end_us <= second.begin_us  # a thread does one thing after the other
        for event in own:
            assert 0 <= event.begin_us < event.end_us <= timeline.total_us
            got.setdefault(event.kind, []).append(event.step)
        for kind, steps in got.items():  # an operation may be too short for the clock
            left = iter(wanted[kind])
            assert all(step in left for step in steps)
        assert len(got.get("work", [])) >= len(wanted.get("work", [])) // 3


def test_a_measured_timeline_is_longer_where_more_is_computed(tmp_path):
    def busy(tokens):
        plan = rs.plan(rs.PackedLayout([0, tokens]), cp_size=2)
        timeline = plan.timeline("measured", head_dim=64)
        timeline.save(tmp_path / "trace.json")
        assert (
            json.loads((tmp_path / "trace.json").read_text())["otherData"]["source"] == "measured"
        )
        return timeline.work_us.sum()

    assert busy(2048) > 4 * busy(128)
