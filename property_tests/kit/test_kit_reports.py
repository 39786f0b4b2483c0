"""Reports on long documents come soon, and their scripts run."""

import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import ringside as rs
from ringside.testing import Case, Demands, Disagreement, adapters, check_attention, trace

HERE = Path(__file__).parent
PLAYED = str(HERE.parent / "helpers" / "played")
IMPORTABLE = [PLAYED, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
CASE = Case(rs.PackedLayout([0, 3, 5], [0, 4, 7]), dtype="float32")


def wrong(q, k, v, *, mask, **keywords):
    return rs.attention(q, k, v, mask=rs.Mask.full(), **keywords)


def wrong_in_part(q, k, v, *, window, mask, **keywords):
    return rs.attention(q, k, v, mask=rs.Mask.sliding_window(*window), **keywords)


class Wrong:
    def method(self, q, k, v, **keywords):
        return wrong(q, k, v, **keywords)

    def __call__(self, q, k, v, **keywords):
        return wrong(q, k, v, **keywords)

    def __repr__(self):
        return "Wrong()"


class Unwritable(Wrong):
    def __repr__(self):
        return "<nothing to\npaste>"


LAMBDA = lambda q, k, v, **keywords: wrong(q, k, v, **keywords)  # noqa: E731
OBJECT = Unwritable()


def of_jax(q, k, v, *, layout_q, layout_k, mask, softmax_scale):
    import jax

    return jax.numpy.asarray(q) * 0 + 1


def wrong_backward(*arguments, **keywords):
    return [x + 1 for x in rs.attention_backward(*arguments, **keywords)]


def zero_gradients(dout, q, k, v, *rest, **keywords):
    return [0 * x for x in (q, k, v)]


def failure_of(fn, case=CASE, **how):
    with pytest.raises(Disagreement) as failure:
        check_attention(fn, case, **how)
    return failure.value


RUN_ALL = """
import json, sys, traceback
answer, sys.stdout = sys.stdout, sys.stderr
def outcome_of(script):
    try:
        exec(compile(script, "<string>", "exec"), {"__name__": "__main__"})
    except Exception:
        return traceback.format_exc()
print(json.dumps([outcome_of(script) for script in json.load(sys.stdin)]), file=answer)
"""


def outcomes_of(*scripts):
    """What each raises in an interpreter that is not this one; to start one takes the longest."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(IMPORTABLE)}
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL],
        input=json.dumps(scripts), cwd=HERE, env=environment, text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = json.loads(done.stdout)
    assert all(outcomes), "a script raised nothing"
    return outcomes


WRITABLE = [
    wrong,
    LAMBDA,
    OBJECT,
    Wrong(),
    Wrong().method,
    OBJECT.method,
    functools.partial(wrong_in_part, window=(-1, -1)),
    functools.partial(Wrong(), softmax_scale=0.5),
    adapters.JaxFunction(of_jax),
    adapters.JaxFunction(of_jax, "my name for it"),
]


@pytest.fixture(scope="module")
def failures_and_outcomes():
    """Of each WRITABLE function that can run here, by its number."""
    has_jax = importlib.util.find_spec("jax") is not None
    failures = {
        number: failure_of(fn)
        for number, fn in enumerate(WRITABLE)
        if has_jax or not isinstance(fn, adapters.JaxFunction)
    }
    outcomes = outcomes_of(*(failure.script for failure in failures.values()))
    return dict(zip(failures, zip(failures.values(), outcomes, strict=True), strict=True))


@pytest.mark.parametrize("number", range(len(WRITABLE)))
def test_the_script_runs_and_disagrees_again(number, failures_and_outcomes):
    if number not in failures_and_outcomes:
        pytest.skip("jax is not installed")
    failure, said = failures_and_outcomes[number]
    assert "put your function here" not in failure.script
    assert str(failure.finding) in said
    assert "Disagreement" in said


def test_the_script_has_the_gradients_and_the_demands():
    failure = failure_of(rs.attention, backward=wrong_backward, demands=Demands(runs=2))
    assert "backward=wrong_backward, demands=Demands(" in failure.script
    assert "dq is wrong" in outcomes_of(failure.script)[0]


def test_functions_of_one_name_are_told_apart():
    text = "attention = __import__('test_kit_reports').wrong_backward\n"
    module = type(sys)("twin")
    exec(text, vars(module))
    module.attention.__module__, sys.modules["twin"] = "twin", module
    try:
        script = failure_of(rs.attention, backward=module.attention).script
    finally:
        module.attention.__module__ = __name__
        del sys.modules["twin"]
    assert "from ringside._attention.definition import attention\n" in script
    assert "from twin import attention as attention_of_twin\n" in script
    assert "(attention, case, backward=attention_of_twin)" in script


def unwritable():
    def inner(q, k, v, **keywords):
        return wrong(q, k, v, **keywords)

    yield inner
    yield lambda q, k, v, **keywords: wrong(q, k, v, **keywords)
    yield functools.partial(inner)
    yield Unwritable()
    yield Unwritable().method
    yield adapters.JaxFunction(lambda *a, **kw: of_jax(*a, **kw))


@pytest.mark.parametrize("fn", list(unwritable()))
def test_what_cannot_be_written_down_leaves_its_place_free(fn):
    if isinstance(fn, adapters.JaxFunction):
        pytest.importorskip("jax")
    script = failure_of(fn).script
    (line,) = [x for x in script.splitlines() if x.startswith("fn = ...  # put your function here")]
    given = "from test_kit_reports import wrong; fn = wrong"
    as_it_is, filled_in = outcomes_of(script, script.replace(line, given))
    assert "fn=Ellipsis; expected a function" in as_it_is
    assert "Disagreement" in filled_in


def of_kv_heads(choose):
    """Query head h reads the values of kv head choose(h, num_heads, num_kv_heads)."""

    def fn(q, k, v, **keywords):
        heads, kv_heads = q.shape[1], k.shape[1]
        right = [h * kv_heads // heads for h in range(heads)]
        wrong = [choose(h, heads, kv_heads) for h in range(heads)]
        return rs.attention(q, k[:, right], v[:, wrong], **keywords)

    return fn


@pytest.mark.parametrize("length", [1, 6])
def test_a_wrong_kv_head_is_named(length):
    case = Case(rs.PackedLayout([0, length]), num_heads=4, num_kv_heads=2, dtype="float32")
    check_attention(of_kv_heads(lambda h, heads, kv_heads: h * kv_heads // heads), case)
    finding = failure_of(of_kv_heads(lambda h, heads, kv_heads: h % kv_heads), case).finding
    assert finding.head == 1
    assert finding.reads == ["reads kv head 1, should be 0"]


@pytest.mark.parametrize(
    ("layout", "said"), [([0, 3], "where no padding lies"), ([0, 4], "0 times the NaN of padding")]
)
def test_nan_is_not_blamed_on_padding_where_there_is_none(layout, said):
    def nan_once(q, k, v, **keywords):
        out, _ = rs.attention(q, k, v, **keywords)
        out[1] = np.nan if np.isclose(v[0, 0, 0], first_value) else out[1]
        return out

    case = Case(rs.PackedLayout([0, 3], layout))
    first_value = case.arrays().v[0, 0, 0]
    assert said in failure_of(nan_once, case).finding.reads[0]


def test_what_is_left_in_padding_is_no_reading():
    def leaves_3(q, k, v, **keywords):
        out, _ = rs.attention(q, k, v, **keywords)
        out[3] = 3.0
        return out

    reads = failure_of(leaves_3, CASE).finding.reads
    assert reads == ["holds 3 even where all values are 0; no token lies there"]


def test_numbers_that_look_alike_get_more_digits():
    def off(q, k, v, **keywords):
        out, _ = rs.attention(q, k, v, **keywords)
        return out * (1 + 1e-12)

    headline = failure_of(off, Case(rs.PackedLayout([0, 3]))).headline
    got, expected = re.search("got (.*), expected (.*), tolerance", headline).groups()
    assert got != expected


@pytest.mark.parametrize("given", [False, True], ids=["forward alone", "with a backward"])
def test_a_long_document_is_reported_soon(monkeypatch, given):
    """The number at once; then few runs of the function, and no run of the definition."""
    calls = []

    def fn(q, k, v, **keywords):
        calls.append(1)
        return wrong(q, k, v, **keywords)

    def slow(*arguments, **keywords):
        pytest.fail("the definition of the gradients ran before out was found wrong")

    case = Case(rs.PackedLayout([0, 2048]), dtype="float32", head_dim_v=16, num_heads=2)
    with monkeypatch.context() as patch:
        patch.setattr(rs, "attention_backward", slow)
        failure = failure_of(fn, case, backward=zero_gradients if given else None)
    monkeypatch.setattr(trace, "MAX_SECONDS", 0.0)
    monkeypatch.setattr(Case, "by_definition", lambda *_: pytest.fail("the definition ran"))
    calls.clear()
    assert "out is wrong at row 0 of document 0, head 0:\n  got " in failure.headline
    assert not calls
    assert "this row read key 1 (weight " in str(failure)
    assert len(calls) == 3 < trace.MIN_RUNS  # 2048 keys, 128, 8, 1
    assert "this row was traced no further" in str(failure)
