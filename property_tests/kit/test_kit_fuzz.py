"""`ringside fuzz`: exit codes, the shrunk counterexample, the JSON file, refusals."""

import json
import typing

import planted_kernels
import pytest
import ringside as rs
import typer
from hypothesis import HealthCheck, Phase, given, seed, settings
from ringside._attention.options import Unpack
from ringside.cli import fuzz as _fuzz
from ringside.cli import fuzz_cases as _fuzz_cases
from ringside.testing import Disagreement, check_attention
from ringside.testing.faults import W2
from typer.testing import CliRunner

app = typer.Typer()
app.command("fuzz")(_fuzz.fuzz)
HERE = __name__


def run(*arguments):
    return CliRunner().invoke(app, [str(x) for x in arguments])


def only_full_masks(q, k, v, *, mask, **keywords):
    if mask != rs.Mask.full():
        raise NotImplementedError("no masks")
    return rs.attention(q, k, v, mask=mask, **keywords)


def ignores_windows(q, k, v, *, mask, **keywords):
    mask = rs.Mask(window_size=(-1, -1), chunk_size=mask.chunk_size, align=mask.align)
    return rs.attention(q, k, v, mask=mask, **keywords)


def crashes_on_empty_documents(q, k, v, *, layout_q, **keywords):
    assert layout_q.lengths.all(), "an empty document"
    return rs.attention(q, k, v, layout_q, **keywords)


def test_what_agrees_exits_with_0(tmp_path):
    file = tmp_path / "result.json"
    arguments = ("--backward", "ringside:attention_backward", "--json", file)
    result = run("--implementation", "ringside:attention", "--examples", 30, *arguments)
    assert result.exit_code == 0, result.output
    assert "30 random cases agree with the definition" in result.output
    written = json.loads(file.read_text())
    assert written["passed"] and written["tried"] == 30 and written["counterexample"] is None
    assert set(written["largest_error_over_tolerance"]) >= {"out", "lse", "dq", "dk", "dv"}


def test_a_disagreement_exits_with_1_and_a_small_case(tmp_path):
    file = tmp_path / "result.json"
    result = run("--implementation", f"{HERE}:ignores_windows", "--json", file)
    assert result.exit_code == 1, result.output
    assert "this row read key" in result.output
    written = json.loads(file.read_text())
    assert not written["passed"]
    case = eval(written["counterexample"]["case"], {**vars(rs), "Case": rs.testing.Case})
    assert case.layout_q.num_tokens <= 3 and case.num_heads == 1
    compile(written["counterexample"]["script"], "script", "exec")


def test_an_exception_is_a_disagreement():
    result = run("--implementation", f"{HERE}:crashes_on_empty_documents")
    assert result.exit_code == 1
    assert "raised AssertionError: an empty document" in result.output
    assert "Case(PackedLayout(cu_seqlens=[0, 0])" in result.output


def test_refusals_are_counted_not_blamed():
    result = run("--implementation", f"{HERE}:only_full_masks", "--examples", 50)
    assert result.exit_code == 0, result.output
    assert "cases were refused: no masks" in result.output


def test_context_parallel_implementations_may_say_which_cases_they_claim():
    result = run("--kind", "context-parallel", "--implementation", "ringside.testing.faults:W2")
    assert result.exit_code == 1
    assert 'comm="all_gather"' in result.output and "W2" in result.output
    assert _fuzz.cases_for(W2, _fuzz.Kind.context_parallel, "float32") is W2.cases


def test_seeds_are_repeatable():
    arguments = ("--implementation", f"{HERE}:ignores_windows", "--seed", 3)
    assert run(*arguments).stdout == run(*arguments).stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("attention", "expected package.module:function"),
        ("ringside:no_such", 'has no "no_such"'),
        ("no_such_module:f", "No module named"),
        ("ringside:__version__", "expected a function"),
    ],
)
def test_wrong_names_exit_with_2(name, message):
    result = run("--implementation", name)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def refuses_everything(q, k, v, **keywords):
    raise NotImplementedError("not today")


def test_refusing_every_case_is_not_success(tmp_path):
    file = tmp_path / "result.json"
    arguments = ("--examples", 10, "--json", file)
    result = run("--implementation", f"{HERE}:refuses_everything", *arguments)
    assert result.exit_code == 2, result.output
    assert "Nothing was checked" in result.output and "were refused: not today" in result.output
    written = json.loads(file.read_text())
    assert not written["passed"] and written["refused"] == written["tried"] > 0


class Found(Exception):
    """A case disagrees."""


def is_found(fault, number):
    """Whether `ringside fuzz --seed number`, all else by default, finds it."""

    @seed(number)
    @settings(
        max_examples=200,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_fuzz.cases_for(fault, _fuzz.Kind.attention, "float32"))
    def search(case):
        try:
            check_attention(fault, case)
        except Disagreement:
            raise Found from None  # Hypothesis would have all of it in words

    try:
        search()
    except Found:
        return True
    return False


SEEDS = range(50 if settings().max_examples > 1000 else 10)


@pytest.mark.parametrize("fault", planted_kernels.FAULTS, ids=lambda fault: fault.__name__)
def test_faults_of_kernels_are_found_by_nine_seeds_of_ten(fault):
    found = [number for number in SEEDS if is_found(fault, number)]
    assert len(found) >= 0.9 * len(SEEDS), found


def test_a_fault_behind_a_border_shrinks_to_it():
    campaign = _fuzz.Campaign("it", _fuzz.Kind.attention, 200, 2)
    fault = planted_kernels.keys_from_65
    strategy = _fuzz.cases_for(fault, _fuzz.Kind.attention, "float32")
    _fuzz.run(campaign, _fuzz.Subject(fault, None, strategy), lambda _: None)
    case = campaign.failure.case
    assert case.layout_q.num_tokens <= 70 and case.layout_q.num_sequences == 1, case
    assert case.num_heads == case.head_dim == case.head_dim_v == 1 and not case.options.get("sink")


def drawn(fn=rs.attention, kind=_fuzz.Kind.attention, **flags):
    seen = []

    @seed(0)
    @settings(
        max_examples=100, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(_fuzz.cases_for(fn, kind, "float32", _fuzz_cases.Space(**flags)))
    def look(case):
        seen.append(case)

    look()
    return seen


def test_flags_bound_what_is_drawn():
    cases = drawn(
        kind=_fuzz.Kind.context_parallel,
        max_documents=2,
        max_tokens=70,
        head_dims=(64, 128),
        masks=("causal", "chunked"),
        cp_sizes=(2, 4),
        options=("sink",),
    )
    assert max(case.layout_q.num_sequences for case in cases) == 2
    assert 60 < max(case.layout_q.num_tokens for case in cases) <= 70
    assert {case.head_dim for case in cases} == {64, 128}
    assert {case.cp_size for case in cases} == {2, 4}
    kinds = {(case.mask.window_size, case.mask.chunk_size > 0) for case in cases}
    assert kinds == {((-1, 0), False), (rs.Mask.chunked(3).window_size, True)}
    options = {name for case in cases for name in case.options}
    assert options == {"softmax_scale", "sink"}


def test_options_are_those_of_the_signature():
    def one(q, k, v, *, layout_q, layout_k, mask, softmax_scale, sink=None):
        pass

    def no_seed(q, k, v, *, mask, dropout_p=0.0):
        pass

    assert _fuzz_cases.options_of(one) == ("sink",)
    assert _fuzz_cases.options_of(no_seed) == ()

    class Some(typing.TypedDict, total=False):
        sink: float
        dropout_p: float

    def typed(q, k, v, *, softcap=0.0, **kw: Unpack[Some]):
        pass

    def any_kind(q, k, v, **kw: float):
        pass

    assert _fuzz_cases.options_of(typed) == ("softcap", "sink")
    assert _fuzz_cases.options_of(any_kind) == _fuzz_cases.OPTIONS
    assert _fuzz_cases.options_of(rs.Plan.attention) == _fuzz_cases.OPTIONS
    assert _fuzz_cases.options_of(rs.attention, one) == ("sink",)
    everything = {"softmax_scale", "softcap", "sink", "alibi_slopes", "dropout_p", "dropout_seed"}
    assert {name for case in drawn() for name in case.options} == everything
    assert {name for case in drawn(one) for name in case.options} == {"softmax_scale", "sink"}
    plain = drawn(options=())
    assert {name for case in plain for name in case.options} == {"softmax_scale"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--head-dims", "64,x"), "expected positive integers"),
        (("--masks", "causal,odd"), 'has "odd"; expected some of full, causal'),
        (("--options", "bias"), "expected some of softcap, sink"),
        (("--cp", "0"), "expected positive integers"),
    ],
)
def test_wrong_flags_exit_with_2(flags, message):
    result = run("--implementation", "ringside:attention", *flags)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_flags_are_refused_where_the_implementation_has_its_own_cases():
    named = ("--kind", "context-parallel", "--implementation", "ringside.testing.faults:W2")
    result = run(*named, "--max-tokens", 64)
    assert result.exit_code == 2
    assert "drop the flags" in " ".join(result.output.split())


def test_no_options_is_a_flag():
    result = run(
        "--implementation", "planted_kernels:swallowed_sink", "--no-options", "--max-tokens", 40
    )
    assert result.exit_code == 0, result.output
