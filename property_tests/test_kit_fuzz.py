"""`ringside fuzz`: exit codes, the shrunk counterexample, the JSON file, refusals."""

import json

import pytest
import ringside as rs
import typer
from ringside import _fuzz
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
