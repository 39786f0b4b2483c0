"""Each notebook runs as it is shipped, and says "holds" once its exercise is answered."""

import pytest
from notebook_runs import NUMBERS, PATHS, Answers, run, shows_a_picture, text_of


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_runs_as_shipped_and_with_its_answer(path):
    notebook, shipped, answered = run(path, Answers(NUMBERS[PATHS.index(path)]).source)
    assert shipped.startswith("not yet: "), shipped
    assert answered.startswith("holds: "), answered
    assert any(map(shows_a_picture, notebook.cells[:4])), "no picture in the first four cells"
    told = "\n".join(text_of(cell) for cell in notebook.cells if cell.cell_type == "code")
    assert "you made no prediction" in told and "Warning" not in told, told
