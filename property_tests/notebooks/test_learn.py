"""ringside.learn around the exercises: what it refuses, what it copies, what it reveals."""

import json
import re

import pytest
from notebook_format import faults
from notebook_runs import PATHS
from ringside import learn
from ringside.cli.commands import app
from ringside.learn import _shipped
from typer.testing import CliRunner


def never(*arguments):
    raise AssertionError("this must not be called")


@pytest.mark.parametrize("number", [0, -1, 99, 2**40])
def test_an_unknown_exercise_is_refused_before_the_answer_is_called(number):
    with pytest.raises(ValueError, match=rf"got exercise {number}; expected one of 1\b.* Pass "):
        learn.check(number, never)


@pytest.mark.parametrize("number", [1.0, "1", None, True])
def test_the_number_of_an_exercise_is_an_integer(number):
    with pytest.raises(TypeError, match="n"):
        learn.check(number, never)


@pytest.mark.parametrize("answer", [3, "positions", [1, 2]])
def test_what_is_no_function_is_no_answer(answer):
    with pytest.raises(TypeError, match=r"got an answer of type \w+; expected a function\. Pass"):
        learn.check(1, answer)


@pytest.mark.parametrize("seed", [-1, 1.5, "0"])
def test_a_seed_is_a_number_from_0(seed):
    with pytest.raises((ValueError, TypeError), match="seed"):
        learn.check(1, never, seed=seed)


@pytest.mark.parametrize("answer", [None, ...])
def test_nothing_is_no_answer_yet(answer):
    assert learn.check(1, answer).word == "not yet"


def test_a_function_that_is_not_implemented_is_no_answer_yet():
    def later(*arguments):
        raise NotImplementedError

    assert learn.check(1, later).word == "not yet"


def test_an_answer_that_changes_its_mind_is_refuted():
    calls = []

    def moody(cu_seqlens, cu_seqlens_padded):
        calls.append(1)
        return [0] * (int(cu_seqlens_padded[-1]) + (len(calls) == 30))

    assert learn.check(1, moody).word == "refuted"


def test_another_seed_draws_other_cases():
    def cases_of(seed):
        seen = []

        def watching(cu_seqlens, cu_seqlens_padded):
            seen.append(tuple(cu_seqlens_padded.tolist()))
            return _shipped_positions(cu_seqlens, cu_seqlens_padded)

        assert learn.check(1, watching, seed=seed).word == "holds"
        return seen

    assert cases_of(0) == cases_of(0) != cases_of(1)
    assert len(set(cases_of(0))) > 100


def _shipped_positions(cu_seqlens, cu_seqlens_padded):
    import ringside as rs
    from ringside.learn.figures.packs import positions_of

    return positions_of(rs.PackedLayout(cu_seqlens, cu_seqlens_padded))


# --- reveal


@pytest.mark.parametrize(
    ("prediction", "computed", "said"),
    [
        (None, 12.3456, "computed: 12.35 %; you made no prediction"),
        (24.7, 12.35, "you predicted 24.7 %, off by a factor of 2"),
        (12.4, 12.35, "which is it"),
        (0, 12.0, "computed: 12 %; you predicted 0 %"),
        ("p2p", "fetch", "computed: fetch %; you predicted p2p %"),
        (["a", "b"], ["a", "b"], "you predicted a, b %, which is it"),
        (1, 123456.7, "computed: 123,457 %"),
    ],
)
def test_a_prediction_is_shown_beside_what_was_computed(prediction, computed, said):
    assert said in str(learn.reveal(prediction, computed, "%"))


# --- ringside learn


def run(*words):
    ended = CliRunner().invoke(app, ["learn", *map(str, words)])
    return ended.exit_code, ended.stdout, ended.exception


def test_all_notebooks_are_copied_as_they_are(tmp_path):
    code, said, _ = run(tmp_path / "new" / "folder")
    assert code == 0
    copied = sorted((tmp_path / "new" / "folder").iterdir())
    assert [path.read_bytes() for path in copied] == [p.read_bytes() for p in sorted(PATHS)]
    assert all(path.name in said for path in copied) and "jupyter lab" in said


def test_one_notebook_is_copied(tmp_path):
    assert run(tmp_path, "--notebook", 1)[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == [learn.notebooks()[1]]


def test_an_unknown_notebook_is_refused_and_nothing_is_written(tmp_path):
    folder = tmp_path / "folder"
    _, said, error = run(folder, "--notebook", 1, "--notebook", 77)
    assert isinstance(error, ValueError) and said == "" and not folder.exists()
    assert re.fullmatch(r"got notebook 77; expected one of 1\b.*\. Pass such a number", str(error))


def test_no_notebook_is_written_over_and_none_is_written_beside(tmp_path):
    there = tmp_path / PATHS[-1].name
    there.write_text("mine")
    _, said, error = run(tmp_path)
    assert isinstance(error, ValueError) and said == ""
    assert str(there) in str(error) and "nothing was written" in str(error)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    assert isinstance(run(tmp_path / "file")[2], OSError)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("folder", [3, None, b"folder"])
def test_a_folder_is_a_path(folder):
    with pytest.raises(TypeError, match="got a folder of type"):
        learn.copy_notebooks(folder)


def test_the_command_ends_with_2(tmp_path, monkeypatch, capsys):
    from ringside.cli import commands

    monkeypatch.setattr("sys.argv", ["ringside", "learn", str(tmp_path), "--notebook", "0"])
    with pytest.raises(SystemExit) as ended:
        commands.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("Error: got notebook 0; expected one of 1")


def test_an_installation_without_notebooks_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(_shipped, "_files", dict)
    with pytest.raises(ValueError, match=r"got an installation without notebooks; expected .*anew"):
        learn.copy_notebooks(tmp_path / "new")
    assert not (tmp_path / "new").exists()


# --- their form (.dev/notebook_format.py)

GOOD = json.loads(PATHS[0].read_text(encoding="utf-8"))


def written(notebook):
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def changed(change):
    notebook = json.loads(json.dumps(GOOD))
    change(notebook["cells"])
    return list(faults(written(notebook), 1))


def with_line(line):
    """Into the cell of the prediction, which is in every notebook."""

    def change(cells):
        (cell,) = [c for c in cells if any("prediction = None" in x for x in c["source"])]
        cell["source"] = [*(x.rstrip("\n") + "\n" for x in cell["source"]), line]

    return change


def test_a_good_notebook_has_no_fault():
    assert changed(lambda cells: None) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("f = lambda x: x", "logic (Lambda)"),
        ("x = [y for y in range(3)]", "logic (ListComp)"),
        ("x = 1 if prediction else 2", "logic (IfExp)"),
        ("while prediction: pass", "logic (While)"),
        ("def helper(): pass", "logic (FunctionDef)"),
        ("import torch", "imports torch"),
        ("from os import path", "imports os"),
        ("x = (", "no Python"),
        ("x = '" + "a" * 100 + "'", "a line of 106 columns"),
        ("x = 1\n" * 16, "lines of code"),
        ("x = 1\n", "blank lines around it"),
    ],
)
def test_logic_in_a_cell_is_a_fault(line, said):
    found = changed(with_line(line))
    assert any(said in fault for fault in found), found


def drop(tag):
    def change(cells):
        cells[:] = [c for c in cells if tag not in "".join(c["source"])]

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda cells: cells.extend(cells[:1] * 15), "cells; expected at most 15"),
        (lambda cells: cells[1].update(execution_count=3), "outputs; strip them"),
        (lambda cells: cells[1].update(outputs=[{"text": "3"}]), "outputs; strip them"),
        (lambda cells: cells[0].update(source=["A pack"]), "begins otherwise"),
        (drop("prediction = None"), "no prediction"),
        (drop("learn.check("), "ends otherwise"),
        (drop("def positions"), 'cells with the tag "exercise"'),
        (lambda cells: cells[0].update(source=["a" * 121]), "a line of 121 columns"),
    ],
)
def test_other_offences_are_faults(change, said):
    found = changed(change)
    assert any(said in fault for fault in found), found


def test_how_a_notebook_is_written_down_matters():
    assert "other spaces" in next(faults(json.dumps(GOOD), 1))
    assert "no JSON" in next(faults("{", 1))
    assert any("metadata" in f for f in faults(written({**GOOD, "metadata": {"x": 1}}), 1))
    assert any('"# 2. ...?"' in fault for fault in faults(written(GOOD), 2))
