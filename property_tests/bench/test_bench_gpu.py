"""`ringside bench gpu` on paper: cases, visible pairs, rates, goals, which kernels are counted."""

import re
from pathlib import Path

import pytest
import ringside as rs
from hypothesis import given
from hypothesis import strategies as st
from independent import visible_pairs
from ringside._bench.gpu import cases
from ringside._bench.gpu import clock as _bench_gpu_clock
from ringside._bench.gpu.cases import Goal, Times, Workload
from ringside._bench.gpu.clock import Call, counted_sums

CAUSAL = Workload("16k x2", "causal", 16, 16, (128, 128))
WINDOW = Workload("16k x2", "window 1,024", 16, 16, (128, 128))


@pytest.fixture
def small_packs(monkeypatch):
    """Packs and masks small enough for brute force, under names of their own."""
    packs = {"short": [7, 1, 12], "one": [33]}
    masks = {"causal": rs.Mask.causal(), "w": rs.Mask.sliding_window(3, 0), "c": rs.Mask.chunked(5)}
    monkeypatch.setattr(cases, "PACKS", packs)
    monkeypatch.setattr(cases, "MASKS", masks)
    return [(pack, mask) for pack in packs for mask in masks]


def test_every_pack_is_full_and_the_long_tail_has_one():
    totals = {name: sum(lengths) for name, lengths in cases.PACKS.items()}
    small = {"1k x4": 2**12, "128 x256": 2**15, "64k in 4,096": 2**16, "64k in 65,536": 2**16}
    large = {"long tail 32k": 2**15, "2k x16": 2**15, "16k x2": 2**15, "4k x16": 2**16}
    large |= {"log-normal x108": 133_566, "man pages 128k": 2**17}
    names = ("32k x1", "1k x32", "256 x128", "ragged, mean 1k", "ragged, mean 256")
    assert totals == small | large | dict.fromkeys(names, 2**15)
    tail = sorted(cases.PACKS["long tail 32k"])
    assert tail[0] >= 1 and tail[-1] >= 8 * tail[len(tail) // 2] and len(tail) == 21


def test_the_cases_are_those_to_be_measured():
    every = {str(case) for case in cases.attention_cases(quick=False)}
    for shape in ("d128 h16", "d64 h32"):
        for pack in ("long tail 32k", "2k x16", "16k x2"):
            assert {f"{shape} {pack} causal", f"{shape} {pack} full"} <= every
        assert {f"{shape} 16k x2 window 1,024", f"{shape} 16k x2 chunk 8,192"} <= every
    for shape in ("d192/128 h16", "d256 h8", "d128 h64/8"):
        assert f"{shape} long tail 32k causal" in every
    assert {"d128 h4 1k x4 causal", "d128 h16 128 x256 causal"} <= every
    on_device = list(cases.length_cases())
    assert {len(case.lengths) for case, _ in on_device} == {16, 4_096, 65_536}
    assert {room for case, room in on_device if len(case.lengths) == 16} == {4_096, 65_536}
    assert set(map(str, cases.attention_cases(quick=True))) <= every
    assert len(cases.plan_groups(quick=False)) == 3 * len(rs.PARTITIONS)


@pytest.mark.parametrize("quick", [True, False])
def test_a_mask_comes_after_the_causal_one_that_it_is_measured_against(quick):
    seen = set()
    for case in cases.attention_cases(quick):
        seen.add((case.pack, case.dims, case.mask_name))
        assert (case.pack, case.dims, "causal") in seen or case.mask_name == "full"


def test_visible_pairs_are_those_of_brute_force(small_packs):
    for pack, mask in small_packs:
        case = Workload(pack, mask, 4, 2, (8, 8))
        layout = rs.PackedLayout.from_lengths(case.lengths)
        assert cases.pairs(case) == 4 * visible_pairs(case.mask, layout, layout)
        for length in case.lengths:
            seen = case.mask.to_dense(length, length)
            for q, (begin, end) in enumerate(zip(*case.visible(length), strict=True)):
                assert seen[q].nonzero()[0].tolist() == list(range(begin, end))


def test_large_cases_have_the_pairs_of_closed_forms():
    n, window, chunk = 2**14, 1_024, 8_192
    of_window = (window + 1) * (n - window) + window * (window + 1) // 2
    assert cases.pairs(CAUSAL) == 2 * 16 * n * (n + 1) // 2
    assert cases.pairs(WINDOW) == 2 * 16 * of_window
    chunks = Workload("16k x2", "chunk 8,192", 16, 16, (128, 128))
    assert cases.pairs(chunks) == 4 * 16 * chunk * (chunk + 1) // 2
    assert CAUSAL.flops(backward=False) == cases.pairs(CAUSAL) * 512
    assert CAUSAL.flops(backward=True) == cases.pairs(CAUSAL) * 1280


def test_rates_and_ratios_of_a_line():
    seconds = CAUSAL.flops(backward=True) / 500e12
    ours, peer = Times(call=2e3 * seconds, kernels=1e3 * seconds), Times(call=3.0, kernels=4.0)
    line = cases.attention_line(CAUSAL, "backward", "f", ours, peer=peer)
    assert line.numbers["kernels_tflops"] == pytest.approx(500)
    assert line.numbers["call_tflops"] == pytest.approx(250)
    assert line.numbers["kernels_over_peer"] == pytest.approx(4.0 / ours.kernels)
    assert line.numbers["call_over_peer"] == pytest.approx(3.0 / ours.call)
    assert [goal.at_least for goal in line.goals] == [0.8, 0.8]
    fixed = cases.attention_line(CAUSAL, "backward, deterministic", "f", ours, peer=peer)
    assert fixed.numbers == line.numbers and not fixed.goals


def test_whole_calls_come_first_and_small_ones_are_held_to_the_peers_rate():
    ours, peer = Times(call=1.0, kernels=1.0), Times(call=0.95, kernels=0.95)
    for case in (CAUSAL, *cases.small_cases()):
        for work in ("forward", "backward"):
            line = cases.attention_line(case, work, "f", ours, peer=peer)
            assert [goal.name for goal in line.goals] == ["call / FA2", "kernels / FA2"]
            assert [goal.met for goal in line.goals] == [case is CAUSAL, True]
            assert list(line.numbers)[:2] == ["call_ms", "call_tflops"]


def test_a_window_is_measured_by_the_pair():
    share = cases.pairs(WINDOW) / cases.pairs(CAUSAL)
    for slowdown, met in ((1.3, True), (1.5, False)):
        ours = Times(call=9, kernels=10 * share * slowdown)
        line = cases.attention_line(WINDOW, "forward", "f", ours, causal=Times(9, 10))
        assert line.numbers["kernels_rate_over_causal"] == pytest.approx(1 / slowdown)
        assert not line.missed == met


def test_only_zigzag_over_four_ranks_has_a_goal():
    slow, one = Times(call=9, kernels=1.2), Times(call=3, kernels=1)
    line = cases.plan_line("cp 4 zigzag p2p", "forward", "f", slow, one)
    assert line.numbers["kernels_over_one_rank"] == pytest.approx(1.2)
    assert line.numbers["call_over_one_rank"] == pytest.approx(3)
    assert [str(goal) for goal in line.missed] == ["kernels / cp 1 1.20, goal <= 1.15"]
    assert not cases.plan_line("cp 8 zigzag p2p", "forward", "f", slow, one).goals
    assert not cases.plan_line("cp 4 striped p2p", "forward", "f", slow, one).goals


@given(st.floats(0, 10), st.floats(0, 10))
def test_goals_are_bounds(value, bound):
    assert Goal("x", value, at_least=bound).met == (value >= bound)
    assert Goal("x", value, at_most=bound).met == (value <= bound)
    assert not Goal("x", float("nan"), at_least=bound).met


# Names as the profiler prints them, ours shortened.
KERNELS = {
    "void ringside::(anonymous namespace)::attention_forward<ringside::(anonymous namespace)::"
    "Config<128> >(ringside::ForwardArguments)": "ours",
    "void ringside::attention_backward_keys<ringside::C<64> >(ringside::BackwardArguments)": "ours",
    "void ringside::(anonymous namespace)::query_gradient_kernel<64>(ringside::X)": "ours",
    "ringside::(anonymous namespace)::delta_kernel(ringside::BackwardArguments const*)": "",
    "void ringside::move::(anonymous namespace)::unshard_kernel<float>(forward*)": "",
    "ringside::move::sink_gradients_kernel(Span<RowBlock>)": "",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Traits<128> >(Params)": "flash",
    "void pytorch_flash::flash_bwd_convert_dq_kernel<Traits>(Params)": "flash",
    "void at::native::vectorized_elementwise_kernel<4, forward>(int)": "",
    "Memset (Device)": "",
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_attention_kernels_are_known_by_name(kernel):
    assert _bench_gpu_clock.is_our_attention(kernel) == (KERNELS[kernel] == "ours")
    assert _bench_gpu_clock.is_flash_attention(kernel) == (KERNELS[kernel] == "flash")


def test_every_kernel_in_an_attention_file_is_counted_and_no_other():
    """A family whose kernels are called otherwise would silently be measured in part."""
    declared = re.compile(
        r"__global__\s+void\s+(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s*)?(\w+)\("
    )
    found = {True: [], False: []}
    for path in sorted((Path(__file__).parents[2] / "optimized").rglob("*.cu*")):
        if "_test" in path.stem:
            continue
        for name in declared.findall(path.read_text(encoding="utf-8")):
            is_attention = "attention" in path.parts
            found[is_attention].append(name)
            kernel = f"void ringside::{name}<float>(int)"
            assert _bench_gpu_clock.is_our_attention(kernel) == is_attention, f"{path}: {name}"
    assert len(found[True]) >= 6 and len(found[False]) >= 9


@given(
    st.integers(1, 4),
    st.lists(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=4), min_size=1),
)
def test_sums_are_of_counted_kernels_between_markers(num_calls, runs):
    runs = [[(True, 1), *run] for run in runs[: len(runs) // num_calls * num_calls]]
    calls = [Call(print, lambda kernel: kernel == "counted") for _ in range(num_calls)]
    events = [("mark", 1.0)]
    for run in runs:
        events += [("mark", 1.0), *(("counted" if c else "other", float(t)) for c, t in run)]
    if not runs:
        with pytest.raises(RuntimeError, match="saw 0 calls"):
            counted_sums(events, calls)
        return
    sums = counted_sums(events, calls)
    for i, run in enumerate(runs):
        assert sums[i % num_calls][i // num_calls] == sum(t for counted, t in run if counted)


def test_a_profile_that_does_not_fit_is_an_error():
    call = Call(print, lambda kernel: kernel == "counted")
    with pytest.raises(RuntimeError, match="saw 1 calls; expected a multiple of 2"):
        counted_sums([("m", 1), ("m", 1), ("counted", 1)], [call, call])
    with pytest.raises(RuntimeError, match="no attention kernel among fill_kernel"):
        counted_sums([("m", 1), ("m", 1), ("void a::fill_kernel<int>(int*)", 1)], [call])
    with pytest.raises(RuntimeError, match="before the first call"):
        counted_sums([("m", 1), ("counted", 1)], [call])
    with pytest.raises(RuntimeError, match="saw 0 calls"):
        counted_sums([], [call])


def test_rows_are_held_to_the_devices_own_copy_and_metadata_to_ten_microseconds():
    def missed(**numbers):
        line = cases.row_line({"case": "reorder", "gigabytes_per_second": None} | numbers)
        assert None not in line.numbers.values() and len(line.goals) <= 1
        return bool(line.missed)

    assert missed(sequences=16, heads=16, ratio_to_copy=0.89)
    assert not missed(sequences=16, heads=16, ratio_to_copy=0.91)
    assert not missed(sequences=4_096, heads=1, ratio_to_copy=0.81)
    assert missed(sequences=4_096, heads=1, ratio_to_copy=0.79)
    assert not missed(case="add rows", sequences=16, heads=16, ratio_to_copy=0.81)
    assert not missed(case="delta", sequences=65_536, heads=16, ratio_to_copy=0.81)
    assert missed(case="delta", sequences=65_536, heads=16, ratio_to_copy=0.79)
    assert missed(sequences=4_096, heads=0, milliseconds=0.0101)
    assert not missed(sequences=4_096, heads=0, milliseconds=0.0099)
    assert not missed(sequences=65_536, heads=0, milliseconds=0.5)
