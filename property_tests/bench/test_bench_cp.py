"""What `ringside bench cp` counts beside its times: bytes, memory and multiprocessors."""

import json
from pathlib import Path

import pytest
import ringside as rs
from ringside._bench.gpu import ranks
from ringside._bench.gpu.busy import multiprocessors_in
from ringside._bench.gpu.traffic import traffic_of
from ringside.cli.bench_cp import packs_of


class PlayedProfile:
    """Of torch, as far as its trace is read."""

    def __init__(self, *events):
        self.events = list(events)

    def export_chrome_trace(self, path):
        Path(path).write_text(json.dumps({"traceEvents": self.events}), encoding="utf-8")


def test_the_largest_grid_of_nccl_is_what_it_takes_of_the_multiprocessors():
    send = {"name": "ncclDevKernel_SendRecv", "args": {"grid": [24, 1, 1]}}
    gather = {"name": "ncclDevKernel_AllGather", "args": {"grid": [8, 2, 1]}}
    tiles = {"name": "attention_forward", "args": {"grid": [132, 1, 1]}}
    assert multiprocessors_in(PlayedProfile(gather, send, tiles, {"ph": "M"})) == 24
    assert multiprocessors_in(PlayedProfile(tiles)) == 0


@pytest.mark.parametrize("comm", ["p2p", "all_gather", "a2a", "fetch"])
def test_what_no_tile_sees_counts_as_received_beyond_need(comm):
    layout = rs.PackedLayout.from_lengths([1_024])
    plan = rs.plan(layout, cp_size=2, comm=comm, num_heads=4, num_kv_heads=2)
    counted = traffic_of(plan)
    # Of the keys of the other rank the first one's two chunks see all, the second one's half.
    assert counted.over_needed == (1.33 if comm in {"p2p", "all_gather"} else 1.0)


def test_keys_that_are_kept_do_not_come_again():
    plan = rs.plan(rs.PackedLayout.from_lengths([1_024]), cp_size=2, num_heads=4)
    again, kept = traffic_of(plan), traffic_of(plan, keep_kv=True)
    keys_and_values = 512 * 4 * 128 * 2 * 2 / 2**20
    assert again.received_mib - kept.received_mib == pytest.approx(keys_and_values, abs=0.1)


def test_packs_go_by_name_and_an_unknown_one_lists_them():
    assert packs_of(None) == list(ranks.PACKS)
    assert packs_of(["64k"]) == ["64k"]
    with pytest.raises(ValueError, match='"8k"; expected one of: 16k, 64k, 16 x 4k, long tail'):
        packs_of(["16k", "8k"])


def test_more_is_measured_on_more_gpus_and_where_heads_are_equal():
    two, four = (ranks.plans_of((16, 16), gpus, quick=False) for gpus in (2, 4))
    of_four = {ranks.Way("zigzag", "a2a+p2p"), ranks.Way("balanced", "fetch", 1)}
    assert set(four) - set(two) == of_four and len(four) == 10
    assert ranks.plans_of((32, 8), 4, quick=False) == list(ranks.PLANS)
    assert ranks.plans_of((16, 16), 4, quick=True) == list(ranks.PLANS)
