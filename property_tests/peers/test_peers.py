"""Packages that people use, as published: torch's ring and ring-flash-attn, few cases a verdict.

./dev test makes their environments. Versions are fixed: a verdict is of that version alone.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ringside.testing.peers.adapter import described, known
from ringside.testing.peers.drawing import Axes
from ringside.testing.peers.environment import Environment
from ringside.testing.peers.trial import Settings
from ringside.testing.peers.worker import settings_to

HERE = Path(__file__).parent
PLACE = Path(os.environ.get("RINGSIDE_PEERS", HERE.parents[1] / ".venv" / "peers"))
WRONG = {"zigzag varlen, window_size": "out", "ring varlen, window_size": "out"}
RINGS = ["ring, gathered", "ring, rotated", "ring, load balanced"]


def verdicts(name, features):
    environment = Environment(PLACE, HERE / name, described(HERE / name))
    assert environment.python.exists(), f"ringside peers {name} --install makes {environment.root}"
    return list(environment.run(features, Settings(cases=5, axes=Axes(cp=(2,))), 150.0))


def test_torchs_ring_agrees():
    found = verdicts("torch", RINGS)
    assert [(verdict.feature, verdict.kind) for verdict in found] == [(x, "agrees") for x in RINGS]
    assert all(verdict.cases == 5 and verdict.covered for verdict in found)


def test_ring_flash_attn_agrees_and_its_window_size_does_not(tmp_path):
    found = verdicts("ring_flash_attn", [])
    told = {(verdict.feature, verdict.kind, verdict.fault) for verdict in found}
    features = {verdict.feature for verdict in found}
    assert told == {
        (name, "silently wrong" if name in WRONG else "agrees", WRONG.get(name, ""))
        for name in features
    }
    assert set(WRONG) < features and len(features) == 9
    wrong = next(verdict for verdict in found if verdict.feature in WRONG)
    assert "read" in wrong.told and "PackedLayout(cu_seqlens=[0, 4])" in wrong.smallest
    said = run_script(wrong.script, tmp_path, PLACE / "ring_flash_attn-0.1.8/bin/python")
    assert said["out"] > 0.1


def run_script(script, folder, python):
    """The largest error of each result, as a script without Ringside prints it."""
    assert "ringside" not in script.lower()
    file = folder / "script.py"
    file.write_text(script)
    ended = subprocess.run([python, file], cwd=folder, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    lines = [x for x in ended.stdout.splitlines() if ": largest error" in x]
    return {x.split(":")[0]: float(x.split("error ")[1].split(",")[0]) for x in lines}


@pytest.mark.parametrize("name", known(HERE))
def test_an_adapter_is_short_and_its_call_knows_nothing_of_ringside(name):
    for file in ("adapter.py", "calls.py"):
        assert len((HERE / name / file).read_text().splitlines()) <= 80
    assert "ringside" not in (HERE / name / "calls.py").read_text().lower()
    assert described(HERE / name).requirements[0].count("==") == 1


RIGHT = '''
import torch
import torch.distributed as dist


def right(q, k, v, *, seen, scale):
    heads = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    k, v = (torch.nan_to_num(x) for x in heads)
    scores = torch.einsum("qhd,khd->hqk", torch.nan_to_num(q), k)
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores.masked_fill(~torch.tensor(seen, dtype=torch.bool), -torch.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


def forgetful(q, k, v, *, seen, scale):
    """Every row that sees three keys or more misses its first one."""
    seen = [[x and not (sum(row) > 2 and j == row.index(1)) for j, x in enumerate(row)]
            for row in seen]
    return right(q, k, v, seen=seen, scale=scale)


def refusing(q, k, v, *, seen, scale):
    return torch.linalg.eigh(torch.zeros(2, 2, dtype=torch.float16))


def hanging(q, k, v, *, seen, scale):
    import time
    time.sleep(60)


def leaving(q, k, v, *, seen, scale):
    import os
    os._exit(7)


def mistaken(q, k, v, *, seen, scale):
    return q.no_such_thing
'''
ADAPTER = """
import calls
from ringside.testing.adapters import pack_mask
from ringside.testing.peers import Feature, Supports

NAMES = {names!r}


def arguments(plan, softmax_scale):
    seen = pack_mask(plan.layout_q, plan.layout_k, plan.mask).astype(int).tolist()
    return {{"seen": seen, "scale": softmax_scale}}


FEATURES = [
    Feature(name, "none", "ours", getattr(calls, name), arguments, Supports(cp=(1,), longest=6))
    for name in NAMES
]
"""


@pytest.fixture
def peer(tmp_path):
    """Makes a folder of a peer out of functions of RIGHT."""

    def make(*names, adapter=ADAPTER):
        folder = tmp_path / "made"
        folder.mkdir()
        (folder / "package.json").write_text('{"package": "made", "version": "1.0"}')
        (folder / "calls.py").write_text(RIGHT)
        (folder / "adapter.py").write_text(adapter.format(names=names))
        return folder

    return make


def tried(folder, **settings):
    """Exit code and lines of the worker, in this environment."""
    command = [sys.executable, "-m", "ringside.testing.peers.worker", str(folder)]
    text = settings_to(Settings(**{"cases": 10, "case_s": 1.5, **settings}))
    ended = subprocess.run([*command, text], capture_output=True, text=True, timeout=150)
    return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()]


def test_each_verdict_is_told_with_what_it_rests_on(peer, tmp_path):
    code, found = tried(peer("right", "forgetful", "leaving", "hanging"), failures=str(tmp_path))
    right, forgetful, leaving, hanging = found
    assert code == 0 and right["kind"] == "agrees" and right["cases"] == 10
    assert "tokens" in right["covered"] and "ranks 1" in right["covered"]
    assert forgetful["kind"] == "silently wrong" and forgetful["fault"] == "out"
    assert "did not read key 0" in forgetful["told"]
    assert "cu_seqlens=[0, 3]" in forgetful["smallest"]  # as small as it can be
    assert run_script(forgetful["script"], tmp_path, sys.executable)["out"] > 0.01
    assert leaving["kind"] == "fails" and "exit code 7" in leaving["told"]
    assert hanging["kind"] == "hangs" and "said nothing" in hanging["told"]


def test_a_failure_of_an_earlier_run_is_tried_first(peer, tmp_path):
    folder = peer("forgetful")
    tried(folder, failures=str(tmp_path / "failures"), cases=30)
    again = tried(folder, failures=str(tmp_path / "failures"), cases=1, seed=5)[1]
    assert again[0]["kind"] == "silently wrong"


@pytest.mark.parametrize(
    ("adapter", "names", "said"),
    [
        ("import nothing_such", ["right"], "ModuleNotFoundError: No module named 'nothing_such'"),
        ("FEATURES = ()", ["right"], "has no FEATURES"),
        (ADAPTER, ["mistaken"], "calls.py: AttributeError"),
        (ADAPTER.replace("plan.mask)", "plan.maks)"), ["right"], "AttributeError"),
    ],
)
def test_a_broken_adapter_is_ours(peer, adapter, names, said):
    code, found = tried(peer(*names, adapter=adapter))
    assert code == 3 and said in found[0]["broken"] and "ours" in found[0]["broken"]


def test_what_a_package_refuses_is_its_message(peer):
    code, found = tried(peer("refusing"))
    assert code == 0 and found[0]["kind"] == "refuses"
    assert "not implemented for 'Half'" in found[0]["told"]
