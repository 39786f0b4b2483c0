"""README, data/peers.csv and the scripts say one thing of packages; what the command says."""

import ast
import dataclasses
import inspect
import json
import re
from pathlib import Path

import hypothesis
import numpy
import pytest
from ringside.cli.commands import app
from ringside.cli.peers import peers as command
from ringside.cli.peers_options import axes_from, demands_from
from ringside.cli.peers_run import _in_order
from ringside.testing import Demands
from ringside.testing.peers import Verdict, table
from ringside.testing.peers.adapter import described, known
from ringside.testing.peers.here import found_here, gpus
from ringside.testing.peers.settings import Axes
from ringside.testing.peers.verdict import CPU
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
    for device, where in (("cpu", [CPU]), ("cuda", {row["device"] for row in rows} - {CPU})):
        said = {row["package"] for row in rows if row["device"] in where}
        assert said <= {peer.package for peer in peers if device in peer.devices}
    assert {(row["package"], row["version"]) for row in rows if row["device"] == CPU} == {
        (peer.package, peer.version) for peer in peers if "cpu" in peer.devices
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
    table.write(root, [verdict(package="other")])
    table.write(root, [verdict(), verdict(**WRONG)])
    readme = (root / "README.md").read_text()
    assert readme.startswith("before\n") and readme.endswith("\nafter\n") and "old" not in readme
    assert "| ring-x 1.0 | causal (40) | window: [**silently wrong** (out)](data/peers/" in readme
    assert "| other 1.0 | causal (40) | - |" in readme
    (script,) = (root / "data" / "peers").glob("*.py")
    assert script.name in (root / "data" / "peers" / "README.md").read_text()
    assert table.in_step(root) == []

    table.write(root, [verdict()])
    assert not script.exists() and table.in_step(root) == []
    (root / "README.md").write_text(readme)
    assert table.in_step(root) == ["README.md"]


def test_a_package_that_is_absent_is_told_and_keeps_what_was_seen_of_it(root):
    gone = {"kind": "absent", "entry": "", "feature": "", "claims": "", "cases": 0, "covered": ""}
    table.write(root, [verdict(), verdict(package="held", told="PyPI's holds nothing", **gone)])
    readme = (root / "README.md").read_text()
    assert "| held 1.0 | - | absent, and not counted: PyPI's holds nothing |" in readme
    assert "held" not in (root / "data" / "peers" / "README.md").read_text()
    table.write(root, [verdict(told="no network", **gone)])
    assert (root / "README.md").read_text() == readme and table.in_step(root) == []


def test_what_was_seen_on_a_gpu_stands_beside_what_was_seen_on_a_cpu(root):
    gpu = {"device": "NVIDIA X9", "version": "0.9"}
    table.write(root, [verdict(), verdict(**WRONG)])
    table.write(root, [verdict(**gpu, **WRONG)])
    readme = (root / "README.md").read_text()
    assert "| ring-x 1.0 | causal (40) | window" in readme
    assert "| ring-x 0.9, NVIDIA X9 | - | window" in readme
    assert len(list((root / "data" / "peers").glob("*.py"))) == 2  # a script each
    table.write(root, [verdict(**gpu)])
    readme = (root / "README.md").read_text()
    assert "| ring-x 0.9, NVIDIA X9 | causal (40) | - |" in readme
    assert "| ring-x 1.0 | causal (40) | window" in readme and table.in_step(root) == []
    assert verdict(**gpu).words().startswith("ring-x 0.9 on NVIDIA X9, causal: agrees")


def test_what_the_interpreter_has_is_taken_in_the_versions_it_has(tmp_path):
    for name, package in (("held", "numpy"), ("gone", "no-such-package")):
        (tmp_path / name).mkdir()
        text = f'{{"package": "{package}", "version": "0.0.1", "requires": ["hypothesis==0.0"]}}'
        (tmp_path / name / "package.json").write_text(text)
    found = found_here(described(tmp_path / "held"))
    assert found.version == numpy.__version__
    assert found.requires == (f"hypothesis=={hypothesis.__version__}",)
    ended = run("gone", "--adapters", tmp_path, "--here")
    assert ended.exit_code == 0 and "gone: absent, and not counted: " in ended.output
    assert "has no no-such-package" in ended.output


def test_verdicts_of_several_processes_come_in_the_order_of_the_features():
    names = ["a", "b", "b", "c", "d", "e"]  # two faults of b
    told = [verdict(feature=name, fault=str(i)) for i, name in enumerate(names)]
    dealt = [[told[0], told[4]], [told[1], told[2], told[5]], [told[3]]]
    assert list(_in_order(dealt)) == told


def test_what_was_seen_elsewhere_is_read_and_written(root, monkeypatch):
    adapter = root / "property_tests" / "peers" / "made"
    adapter.mkdir(parents=True)
    (adapter / "package.json").write_text('{"package": "made", "version": "1"}')
    there = verdict(device="NVIDIA X9", date="2026-01-05")
    (root / "seen.json").write_text(json.dumps([there.to_dict()]))
    monkeypatch.chdir(root)
    ended = run("--read", root / "seen.json", "--write")
    assert ended.exit_code == 0 and there.words() in ended.output
    (row,) = table.read(root / "data" / "peers.csv")
    assert (row["device"], row["date"]) == ("NVIDIA X9", "2026-01-05")
    (root / "seen.json").write_text('[{"kind": "agrees"}]')
    said = str(run("--read", root / "seen.json", "--write").exception)
    assert "expected a file that ringside peers --json wrote" in said


def test_gpus_are_those_that_a_process_may_see(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus() == []
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho NVIDIA X9\necho NVIDIA X9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert gpus() == ["NVIDIA X9"] * 2
    for visible, count in (("1", 1), ("", 0), ("-1", 0), ("0,1", 2)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert len(gpus()) == count


def test_a_device_that_is_not_there_or_that_a_peer_has_no_call_for_is_named(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("ringside.cli.peers.gpus", list)
    assert "nvidia-smi names no GPU here" in str(run("torch_cuda", "--device", "cuda").exception)
    monkeypatch.setattr("ringside.cli.peers.gpus", lambda: ["NVIDIA X9"])
    said = str(run("xformers", "--device", "cuda").exception)
    assert said.startswith('peer "xformers" has no call for device="cuda"; expected some of ')
    assert "flash_attn3_jax" in said and "xformers," not in said
    said = str(run("flash_attn3_jax").exception)
    assert 'has no call for device="cpu"' in said


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
        (("--device", "tpu"), 'device="tpu"; expected one of cpu, cuda'),
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
