"""The exercises: right answers hold, plausible wrong ones are refuted by small cases."""

import io

import pytest
from notebook_runs import NUMBERS, PATHS, Answers, exercise_of, read
from ringside import learn
from ringside.learn._exercise import exercise, numbers

ANSWERS = {number: Answers(number) for number in NUMBERS}
WRONG = [(number, name) for number in NUMBERS for name in ANSWERS[number].wrong]


def test_every_notebook_has_an_exercise_and_answers():
    assert numbers() == NUMBERS == sorted(learn.notebooks())
    assert all(len(answers.wrong) >= 3 for answers in ANSWERS.values())


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_answer_holds(number, seed):
    verdict = learn.check(number, ANSWERS[number].right, seed=seed)
    assert verdict.word == "holds", verdict
    assert verdict.cases >= exercise(number).examples and f"seed {seed};" in verdict.text
    assert verdict.case is None and verdict.figure is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("number", "name"), WRONG)
def test_a_wrong_answer_is_refuted_by_a_small_case_with_a_picture(number, name):
    answers = ANSWERS[number]
    verdict = learn.check(number, answers.wrong[name])
    assert verdict.word == "refuted", verdict
    assert answers.is_small(verdict.case), verdict
    assert f"{name} is wrong about {exercise(number).told(verdict.case)}\n" in verdict.text
    said = verdict.text.partition("\n")[2]
    assert said.startswith("raised ") or ("got " in said and "expected " in said), said
    assert verdict.figure.axes and '<img width="' in verdict._repr_html_()


@pytest.mark.parametrize(("number", "name"), WRONG)
def test_a_wrong_answer_does_not_depend_on_the_seed(number, name):
    assert learn.check(number, ANSWERS[number].wrong[name], seed=7).word == "refuted"


@pytest.mark.parametrize("number", NUMBERS)
def test_the_notebook_holds_the_stub_which_is_no_answer_yet(number):
    asked, notebook = exercise(number), read(PATHS[NUMBERS.index(number)])
    assert notebook.cells[exercise_of(notebook)].source == asked.stub.strip()
    names = {}
    exec(asked.stub, names)
    stub = names[ANSWERS[number].right.__name__]
    assert learn.check(number, stub).word == "not yet"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", NUMBERS)
def test_an_answer_that_raises_or_forgets_some_cases_is_refuted_and_drawn(number):
    def raises(*arguments):
        raise KeyError("no such row")

    calls = []

    def forgets(*arguments):
        calls.append(arguments)
        return ANSWERS[number].right(*arguments) if len(calls) == 1 else None

    for answer, fault in ((raises, "raised KeyError: 'no such row'"), (forgets, "got None")):
        verdict = learn.check(number, answer)
        assert verdict.word == "refuted" and fault in verdict.text, verdict
        verdict.figure.savefig(io.BytesIO())


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("junk", ["word", 3.5, [[1, 2], [3]], object(), float("nan"), (), {}, True])
def test_an_answer_of_another_kind_is_refuted_not_an_error(number, junk):
    verdict = learn.check(number, lambda *arguments: junk)
    assert verdict.word == "refuted", verdict
    assert "expected" in verdict.text, verdict
