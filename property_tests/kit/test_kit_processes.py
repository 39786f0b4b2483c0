"""Implementations of one process a rank: checked case after case; who fails is named."""

import doctest
import sys
import types

import pytest
import ringside as rs
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside.testing import Case, Disagreement, check_context_parallel, processes
from ringside.testing.processes import ProcessPerRank, RankError
from ringside.testing.strategies import cases

CASE = Case(rs.PackedLayout([0, 5, 9], [0, 6, 10]), cp_size=2, num_heads=2, num_kv_heads=1)
DRAWN = cases(
    cp_sizes=st.just(2),
    dtypes=st.sampled_from(["float64", "float32"]),
    options=lambda heads: st.just({}),
)


@pytest.fixture(scope="module")
def ring():
    with ProcessPerRank("rank_functions:gathered", 2) as made:
        yield made


@settings(max_examples=10)
@given(DRAWN)
def test_a_right_one_agrees_case_after_case(ring, case):
    check_context_parallel(ring, case, backward=ring.backward)
    assert ring.started == 1


def test_a_wrong_one_is_found_and_its_rank_named():
    with ProcessPerRank("rank_functions:forgetful", 2) as wrong:
        with pytest.raises(Disagreement, match=r"rank \d") as found:
            check_context_parallel(wrong, CASE, backward=wrong.backward)
        assert "read" in str(found.value)


def test_a_sink_has_a_gradient_in_processes_too():
    case = Case(rs.PackedLayout([0, 5]), mask=rs.Mask.full(), softmax_scale=0.5, sink=0.75)
    with ProcessPerRank("rank_functions:with_sink", 1) as ring:
        assert check_context_parallel(ring, case).ratios["dsink"] < 1


def test_an_input_that_a_rank_writes_to_is_noticed():
    with ProcessPerRank("rank_functions:overwriting", 2) as ring:
        with pytest.raises(
            Disagreement, match=r"rank \d raised Misuse: wrote to its input k, row 0"
        ):
            check_context_parallel(ring, CASE)


@pytest.mark.parametrize("size", [0, -1, "2", 1.0, True])
def test_no_processes_are_no_ranks(size):
    with pytest.raises(ValueError, match=f"size={size!r}; expected 1 rank or more"):
        ProcessPerRank("rank_functions:gathered", size)


def test_a_rank_without_a_gpu_says_so():
    with pytest.raises(ValueError, match="device='tpu'; expected one of cpu, cuda"):
        ProcessPerRank("rank_functions:gathered", 2, device="tpu")
    held = torch.cuda.device_count()
    with ProcessPerRank("rank_functions:gathered", held + 1, device="cuda") as ring:
        with pytest.raises(
            RankError, match=f"rank {held} has no GPU: .* sees {held} here"
        ) as error:
            ring.start()
    assert error.value.ranks == [held]


@pytest.mark.parametrize(
    ("fn", "ranks", "text"),
    [
        ("raising", [1], "raised ValueError: no such window"),
        ("leaving", [1], "ended with exit code 7"),
        ("leaving_seen_late", [1], "ended with exit code 7"),
        ("losing", [0], "raised RuntimeError: Connection closed by peer"),
        ("hanging", [0, 1], "said nothing for 4 s"),
    ],
)
def test_who_fails_is_named_and_the_next_case_starts_anew(fn, ranks, text):
    limit = 4 if fn == "hanging" else 60
    with ProcessPerRank(f"rank_functions:{fn}", 2, timeout_s=limit) as failing:
        arrays = CASE.arrays()
        given = [[CASE.plan().shard(x, r) for r in range(2)] for x in arrays[:3]]
        with pytest.raises(RankError, match=text) as error:
            failing(*given, plan=CASE.plan(), softmax_scale=None)
        assert error.value.ranks == ranks
        if fn == "raising":
            failing.fn = "rank_functions:gathered"
            check_context_parallel(failing, CASE)
            assert failing.started == 2


def test_one_that_is_alone_and_raises_goes_on():
    case = CASE.replace(cp_size=1)
    given = [[x] for x in case.arrays()[:3]]
    with ProcessPerRank("math:sqrt", 1) as alone:
        with pytest.raises(RankError, match="raised TypeError"):
            alone(*given, plan=case.plan(), softmax_scale=None)
        alone.fn = "rank_functions:gathered"
        check_context_parallel(alone, case, backward=alone.backward)
        assert alone.started == 1


def test_processes_do_not_run_the_script_that_makes_them(tmp_path, monkeypatch):
    ran, main = tmp_path / "ran", types.ModuleType("__main__")
    main.__file__ = str(tmp_path / "script.py")
    (tmp_path / "script.py").write_text(f"open({str(ran)!r}, 'w')")
    monkeypatch.setitem(sys.modules, "__main__", main)
    with ProcessPerRank("rank_functions:gathered", 1) as made:
        check_context_parallel(made, CASE.replace(cp_size=1))
    assert not ran.exists() and sys.modules["__main__"] is main
    assert ProcessPerRank("__main__:mine", 1)._needs_main()  # but for a function of it
    assert ProcessPerRank("m:f", 1, given=(CASE,))._needs_main()


def test_setup_runs_once_in_every_process():
    with ProcessPerRank("rank_functions:set_up_once", 2, setup="rank_functions:set_up") as made:
        for seed in range(2):
            check_context_parallel(made, CASE.replace(seed=seed), backward=made.backward)


def test_a_case_of_other_ranks_and_a_name_of_nothing_are_refused(ring):
    with pytest.raises(rs.Unsupported, match=r"a case of 3 ranks by 2 processes.*cp_size=2"):
        ring([], [], [], plan=CASE.replace(cp_size=3).plan())
    with pytest.raises(ValueError, match=r"'nothing' names no function; expected \"module:"):
        ProcessPerRank("nothing", 2)


def test_its_example_runs():
    ended = doctest.testmod(processes)
    assert ended.attempted and not ended.failed
