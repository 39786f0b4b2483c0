"""README, data/peers.csv and the scripts say one thing of packages; what the command says."""

import ast
import dataclasses
import inspect
import re
from pathlib import Path

import pytest
from ringside.cli.commands import app
from ringside.cli.peers import peers as command
from ringside.cli.peers_options import axes_from, demands_from
from ringside.testing import Demands
from ringside.testing.peers import Verdict, table
from ringside.testing.peers.adapter import described, known
from ringside.testing.peers.settings import Axes
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "property_tests" / "peers"


def verdict(**changes):
    about = {"package": "ring-x", "version": "1.0", "entry": "ring_x.f", "claims": "README"}
    about |= {
        "feature": "causal",
        "kind": "agrees",
        "cases": 40,
        "ratio": 0.25,
        "covered": "9 tokens",
    }
    return Verdict(**about | changes)


WRONG = {
    **{"feature": "window", "kind": "silently wrong", "fault": "out", "smallest": "Case(...)"},
    **{"told": "out is wrong at row 1:\n  this row read key 0", "script": "print(1)\n"},
}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "README.md").write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    return tmp_path


def test_the_tables_here_are_in_step_and_of_the_versions_that_the_adapters_name():
    assert table.in_step(ROOT) == []
    rows = table.read(ROOT / "data" / "peers.csv")
    peers = {described(PEERS / name) for name in known(PEERS)}
    assert {(row["package"], row["version"]) for row in rows} == {
        (peer.package, peer.version) for peer in peers
    }
    assert len(peers) >= 10
    for row in rows:
        assert (row["verdict"] == "agrees") == bool(row["covered"])
        assert (row["verdict"] == "absent") == (int(row["cases"]) == 0)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row["date"])


def test_scripts_are_python_that_knows_nothing_of_ringside():
    for path in (ROOT / "data" / "peers").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        ast.parse(text)
        assert "ringside" not in text.lower()


def test_what_is_written_replaces_what_was_said_of_a_package_and_nothing_else(root):
    table.write(root, [verdict(package="other")], "2026-01-01")
    table.write(root, [verdict(), verdict(**WRONG)], "2026-01-02")
    readme = (root / "README.md").read_text()
    assert readme.startswith("before\n") and readme.endswith("\nafter\n") and "old" not in readme
    assert "| ring-x 1.0 | causal (40) | window: [**silently wrong** (out)](data/peers/" in readme
    assert "| other 1.0 | causal (40) | - |" in readme
    (script,) = (root / "data" / "peers").glob("*.py")
    assert script.name in (root / "data" / "peers" / "README.md").read_text()
    assert table.in_step(root) == []

    table.write(root, [verdict()], "2026-01-03")
    assert not script.exists() and table.in_step(root) == []
    (root / "README.md").write_text(readme)
    assert table.in_step(root) == ["README.md"]


def test_a_package_that_is_absent_is_told_and_keeps_what_was_seen_of_it(root):
    gone = {"kind": "absent", "entry": "", "feature": "", "claims": "", "cases": 0, "covered": ""}
    table.write(
        root, [verdict(), verdict(package="held", told="PyPI's holds nothing", **gone)], "d"
    )
    readme = (root / "README.md").read_text()
    assert "| held 1.0 | - | absent, and not counted: PyPI's holds nothing |" in readme
    assert "held" not in (root / "data" / "peers" / "README.md").read_text()
    table.write(root, [verdict(told="no network", **gone)], "e")
    assert (root / "README.md").read_text() == readme and table.in_step(root) == []


def run(*arguments):
    return CliRunner().invoke(app, ["peers", *map(str, arguments)])


def test_an_unknown_peer_lists_the_known_ones(monkeypatch):
    monkeypatch.chdir(ROOT)
    said = str(run("megatron").exception)
    assert said.startswith('peer "megatron" is unknown; expected some of ')
    assert all(name in said for name in known(PEERS))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--masks", "round"), 'masks="round" has "round"; expected some of full, causal'),
        (("--heads", "4"), 'heads="4"; expected pairs such as 4:2,4:1'),
        (("--lengths", "3"), 'lengths="3"; expected one of 1, pack, cp, 2cp'),
        (("--scales", "much"), 'scales="much"; expected numbers or default'),
        (("--dtype", "int8"), 'dtype="int8"; expected one of float64, float32'),
        (("--merge", "half"), 'merge="half"; expected one of float64, float32'),
        (("--padding", "none"), 'padding="none"; expected one of zero, any'),
        (("--write", "--runs", "2"), "--write says all of a package; drop"),
        (("--write", "--cp", "2"), "--write says all of a package; drop"),
    ],
)
def test_bad_axes_are_named(monkeypatch, arguments, said):
    monkeypatch.chdir(ROOT)
    assert said in str(run("torch", *arguments).exception)


def test_without_a_checkout_it_says_what_it_needs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    said = str(run("torch").exception)
    assert "expected a checkout of Ringside" in said and "--adapters FOLDER" in said
    assert "holds no peer" in str(run("--adapters", tmp_path).exception)


def test_a_package_that_cannot_be_had_is_absent_and_not_counted(monkeypatch, tmp_path):
    monkeypatch.setenv("UV_OFFLINE", "1")
    folder = tmp_path / "a" / "peers" / "nothing"
    folder.mkdir(parents=True)
    (folder / "adapter.py").write_text("FEATURES = ()\n")
    (folder / "package.json").write_text('{"package": "numpy", "version": "0.0.0"}')
    found = run("nothing", "--adapters", folder.parent)
    assert found.exit_code == 0 and "nothing: absent, and not counted" in found.stdout


def test_every_axis_and_every_demand_has_a_flag_that_reaches_it():
    taken = set(inspect.signature(command).parameters)
    demands = {field.name for field in dataclasses.fields(Demands)}
    axes = {field.name for field in dataclasses.fields(Axes)}
    assert demands <= taken and axes - {"unit"} <= taken and "lengths" in taken
    said = {"cp": "2", "masks": "full", "heads": "4:2", "unit": "cp", "longest": 3, "documents": 2}
    said |= {"equal": True, "head_dim": 16, "scales": "default,0.5", "dtype": "float16"}
    said |= {"no_nan": True, "no_padding": True}
    given = axes_from(**said)
    assert all(getattr(given, name) != getattr(Axes(), name) for name in axes)
    assert given.scales == (None, 0.5) and given.heads == ((4, 2),)
    said = {"runs": 2, "merges": 3, "padding": "any", "merge": "bfloat16"}
    assert demands_from(**said, partial=None) == said
