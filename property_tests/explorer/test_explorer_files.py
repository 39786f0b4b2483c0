"""The file that is written: offline, small, with what it needs; and the command that writes it."""

import inspect
import re
from importlib.resources import files

import numpy as np
import pytest
import ringside as rs
from pages import plan_over
from ringside._page.data import KINDS, data_of
from ringside._plan.show import _of_plan
from ringside.cli import commands

PLAN = plan_over("p2p")


def test_the_page_is_small_beside_its_data():
    script = (files("ringside._page") / "explorer.js").read_text("utf-8")
    assert len(script.splitlines()) < 500
    empty = rs.plan(rs.PackedLayout([0]), cp_size=1).show().html
    assert len(empty.encode()) < 100_000
    few = rs.plan(rs.PackedLayout.from_lengths([700, 900, 448]), cp_size=4)
    assert len(few.show().html) - len(empty) < 40_000
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.lognormal(7.3, 1.0, 56).astype(int) + 16, 16_000).tolist()
    many = rs.plan(rs.PackedLayout.from_lengths(lengths, pad_to_multiple_of=16), cp_size=8)
    assert many.verify().tiles > 6000
    assert len(many.show().html) - len(empty) < 350_000


def test_a_policy_forbids_everything_but_its_own_script_and_style():
    html = PLAN.show().html
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    linked = r"\b(?:src|href|action|import|url)\s*[=(]|https?://(?!www\.w3\.org/2000/svg)"
    assert not re.findall(linked, html)


def test_kinds_of_exchanges_have_their_names():
    for comm in rs.COMMS:
        plan = plan_over(comm)
        kinds = plan.tables()["steps"][1][:, 2].reshape(plan.cp_size, -1)
        for rank in range(plan.cp_size):
            named = [step.exchange for step in plan.steps(rank)]
            assert named == [KINDS[kind] for kind in kinds[rank]]


def test_of_large_plans_the_longest_document_is_kept():
    layout = rs.PackedLayout.from_lengths([64] * 40 + [65] + [64] * 40)
    data = data_of(_of_plan(rs.plan(layout, cp_size=8)), max_tiles=1000)
    assert data["only"] == 40 and data["num_tiles"] > 1000
    assert set(data["tables"]["tiles"][1::10]) == {40}


def test_show_takes_plans_and_pages_paths(tmp_path):
    with pytest.raises(TypeError, match="compare is a str; expected a Plan, or None"):
        PLAN.show(compare="plan")
    with pytest.raises(TypeError, match="path is a int; expected a path"):
        PLAN.show().save(3)
    with pytest.raises(rs.InvalidArgument, match=r"No such file.*expected a file that can be"):
        PLAN.show().save(tmp_path / "nowhere" / "plan.html")
    assert "kB; save(path) writes it" in repr(PLAN.show())


# --- ringside show


@pytest.fixture
def command(capsys, monkeypatch):
    """command(*arguments): exit code, standard output, standard error."""

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["ringside", "show", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            commands.main()
        printed = capsys.readouterr()
        return end.value.code, printed.out, printed.err

    return call


@pytest.fixture
def written(tmp_path):
    """A plan as a file."""
    path = tmp_path / "plan.json"
    path.write_text(PLAN.to_json(), "utf-8")
    return path


def test_a_plan_of_a_file_becomes_the_page_that_the_plan_shows(command, written, tmp_path):
    page = tmp_path / "new" / "plan.html"
    code, out, err = command(written, "--html", page)
    assert (code, out, err) == (0, f"written: {page}\n", "")
    assert page.read_text("utf-8") == PLAN.show().html
    other = tmp_path / "other.json"
    other.write_text(plan_over("fetch").to_json(), "utf-8")
    assert command(written, "--html", page, "--compare", other)[0] == 0
    assert page.read_text("utf-8") == PLAN.show(compare=plan_over("fetch")).html


def test_a_plan_stands_beside_itself(command, written, tmp_path):
    page = tmp_path / "plan.html"
    assert command(written, "--html", page, "--compare", written)[0] == 0
    assert page.read_text("utf-8") == PLAN.show(compare=PLAN).html


def test_a_refused_plan_is_written_and_told(command, tmp_path):
    path, page = tmp_path / "plan.json", tmp_path / "plan.html"
    path.write_text(PLAN.first_steps(1).to_json(), "utf-8")
    code, out, err = command(path, "--html", page)
    assert (code, out) == (1, f"written: {page}\n") and err.startswith("refused: query ")
    assert '"proof":""' in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (None, ("No such file", "expected a file that ringside plan --json", "Pass")),
        ("{}", ("text is not a plan; expected",)),
        ("no json", ("text is not JSON", "Pass what Plan.to_json() returned")),
        (b"\xff\xfe", ("not text; expected a file that", "Pass")),
    ],
)
@pytest.mark.parametrize("as_other", [False, True])
def test_what_is_no_plan_is_refused_and_nothing_is_written(
    command, written, tmp_path, text, pieces, as_other
):
    bad, page = tmp_path / "bad.json", tmp_path / "made" / "plan.html"
    if text is not None:
        bad.write_bytes(text if isinstance(text, bytes) else text.encode())
    arguments = (written, "--compare", bad) if as_other else (bad,)
    code, out, err = command(*arguments, "--html", page)
    assert (code, out) == (2, "") and err.startswith("Error: ") and err.count("\n") == 1
    for piece in (str(bad), *pieces):
        assert piece in err
    assert not page.parent.exists()


def test_a_file_that_cannot_be_written_is_named(command, written, tmp_path):
    for page in (tmp_path, written / "plan.html"):
        code, out, err = command(written, "--html", page)
        assert (code, out) == (2, "") and err.count("\n") == 1
        assert str(page) in err and "expected a file that can be written. Pass another" in err


def test_a_page_is_not_written_over_a_plan(command, written, tmp_path):
    link, other = tmp_path / "link.json", tmp_path / "other.json"
    link.symlink_to(written)
    other.write_text(plan_over("fetch").to_json(), "utf-8")
    for page, name in ((written, "the plan"), (link, "the plan"), (other, "--compare")):
        code, out, err = command(written, "--compare", other, "--html", page)
        assert (code, out) == (2, "") and err.count("\n") == 1
        assert f"--html {page}: {name} is the same file; expected one that" in err
    assert written.read_text("utf-8") == PLAN.to_json()


def test_help_shows_an_example(command):
    code, out, _ = command("--help")
    assert code == 0
    example = re.search(r"Example: (ringside show .*)", inspect.getdoc(commands.show))
    assert example and " ".join(example[1].split()[:3]) in " ".join(out.split())
