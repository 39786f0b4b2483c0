"""Packages that people use, as published: torch's ring and ring-flash-attn, few cases a verdict.

./dev test makes their environments. Versions are fixed: a verdict is of that version alone.
"""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from ringside import PackedLayout
from ringside.testing import stand_ins
from ringside.testing.adapters import pack_mask
from ringside.testing.cases import Case
from ringside.testing.peers import AdapterError, Supports, adapter
from ringside.testing.peers.adapter import described, known, load
from ringside.testing.peers.drawing import cases, restricted
from ringside.testing.peers.environment import Environment
from ringside.testing.peers.repeat import script_of
from ringside.testing.peers.settings import Axes, Settings, settings_from, settings_to
from ringside.testing.peers.trial import try_peer

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
    assert described(HERE / name).requirements[0].count("==") == 1
    if described(HERE / name).holds:  # it is absent: there is nothing to call
        assert [file.name for file in (HERE / name).iterdir()] == ["package.json"]
        return
    for file in ("adapter.py", "calls.py"):
        assert len((HERE / name / file).read_text().splitlines()) <= 80
    own = [file for file in (HERE / name).glob("*.py") if file.name != "adapter.py"]
    assert {file.name for file in own} <= {"calls.py", adapter.STAND_IN}
    assert not any("ringside" in file.read_text().lower() for file in own)


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


CALLS = []


def fickle(q, k, v, *, seen, scale):
    CALLS.append(len(seen))
    return (right if len(CALLS) % 3 else forgetful)(q, k, v, seen=seen, scale=scale)


def coarse(q, k, v, *, seen, scale):
    return right(q, k, v, seen=seen, scale=scale).bfloat16().float()


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


def refused_by_jax(q, k, v, *, seen, scale):
    return jax.jit(lambda x: x)("text")


def mistaken_in_jax(q, k, v, *, seen, scale):
    return jax.jit(lambda x: no_such_name)(1.0)
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


def tried(folder, *names, **settings):
    """Verdicts, of this environment's torch."""
    found = []
    try_peer(folder, list(names), Settings(**{"cases": 12, **settings}), found.append)
    return found


def test_each_verdict_is_told_with_what_it_rests_on(peer, tmp_path):
    folder = peer("right", "forgetful", "leaving", "hanging", "refusing")
    names = ("right", "forgetful", "leaving", "refusing")
    right, forgetful, leaving, refusing = tried(folder, *names, failures=str(tmp_path))
    assert right.kind == "agrees" and right.cases == 12 and 0 < right.ratio < 1
    assert "tokens" in right.covered and "ranks 1" in right.covered
    assert forgetful.kind == "silently wrong" and forgetful.fault == "out"
    assert "did not read key 0" in forgetful.told
    assert "cu_seqlens=[0, 3]" in forgetful.smallest  # as small as it can be
    assert run_script(forgetful.script, tmp_path, sys.executable)["out"] > 0.01
    assert leaving.kind == "fails" and "exit code 7" in leaving.told
    (hanging,) = tried(folder, "hanging", case_s=0.5)
    assert hanging.kind == "hangs" and "said nothing" in hanging.told
    assert refusing.kind == "refuses" and "not implemented for 'Half'" in refusing.told

    (again,) = tried(folder, "forgetful", failures=str(tmp_path), cases=1, seed=5)
    assert again.kind == "silently wrong" and again.cases <= 2  # known failures come first


def test_what_is_not_always_wrong_is_told_so(peer):
    folder = peer("fickle", "forgetful")
    found = tried(folder, "fickle", cases=20)
    wrong = [verdict.told for verdict in found if verdict.kind == "silently wrong"]
    assert any(re.search(r"\nin [1-4] of 5 runs of this case$", told) for told in wrong), found
    (always,) = tried(folder, "forgetful", cases=20)
    assert always.kind == "silently wrong" and "runs of this case" not in always.told


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_a_script_draws_many_numbers_again(peer, tmp_path, monkeypatch, dtype):
    folder = peer("forgetful")
    monkeypatch.syspath_prepend(str(folder))
    layout = PackedLayout.from_lengths([70, 0, 90], pad_to_multiple_of=8)
    case = Case(layout, dtype=dtype, cp_size=2, head_dim=64, head_dim_v=32, num_heads=2, seed=5)
    told = load(folder)
    for nan in (True, False):
        script = script_of(told, folder, told.feature("forgetful"), case, nan=nan)
        assert sum(len(x) for x in script.splitlines() if "ARGUMENTS =" not in x) < 15_000
        path = tmp_path / "script.py"
        path.write_text(script)
        made = runpy.run_path(str(path), run_name="script")
        for (numbers, shape), x in zip(made["PROBLEM"], case.arrays(), strict=True):
            np.testing.assert_array_equal(numbers, x if nan else np.nan_to_num(x))
            assert shape == x.shape
    plan = case.plan()
    assert made["ROWS"] == [plan.row_indices(rank).tolist() for rank in range(2)]
    seen = pack_mask(layout, layout, plan.mask)
    assert made["SEEN"] == [np.flatnonzero(row).tolist() for row in seen]


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
    with pytest.raises(AdapterError, match=said) as error:
        tried(peer(*names, adapter=adapter))
    assert "ours" in str(error.value)


def test_what_jax_hides_of_an_error_does_not_hide_whose_it_is(peer):
    folder = peer("refused_by_jax", "mistaken_in_jax")
    calls = folder / "calls.py"
    calls.write_text("import jax\n" + calls.read_text())
    (verdict,) = tried(folder, "refused_by_jax", cases=1)
    assert verdict.kind in ("refuses", "fails") and "TypeError" in verdict.told
    with pytest.raises(AdapterError, match=r"calls.py: NameError.*ours"):
        tried(folder, "mistaken_in_jax", cases=1)


def test_axes_restrict_what_is_claimed_and_say_what_is_not(peer):
    (verdict,) = tried(peer("right"), axes=Axes(masks=("full",)))
    assert verdict.kind == "not drawn" and verdict.told == "claims masks causal, not full"
    asked = Settings(cases=3, axes=Axes(cp=(2,), heads=((4, 2),), no_nan=True))
    assert settings_from(settings_to(asked)) == asked
    supports = Supports(cp=(2, 3), unit="cp", padding=True, documents=3)
    for case in drawn(cases(supports)):
        assert case.cp_size in (2, 3) and not any(case.layout_q.padded_lengths % case.cp_size)


def test_a_share_of_the_features_is_tried(peer):
    folder = peer("right", "coarse", "mistaken")
    (verdict,) = tried(folder, share=(1, 3), cases=3)
    assert verdict.feature == "coarse"


def test_ranks_that_gpus_here_cannot_hold_are_not_drawn(peer, monkeypatch):
    monkeypatch.setattr("ringside.testing.peers.trial.gpus", lambda: ["NVIDIA X9"])
    ring = ADAPTER.replace("cp=(1,)", "cp=(2, 3)")
    (verdict,) = tried(peer("right", adapter=ring), device="cuda")
    assert verdict.kind == "not drawn" and verdict.told == "needs 2 GPUs, and 1 is here"
    assert verdict.device == "NVIDIA X9"


def test_what_a_run_asks_takes_the_place_of_what_an_adapter_asks(peer):
    folder = peer("right", "coarse")
    (alone,) = tried(folder, "coarse", cases=3)
    assert alone.kind == "silently wrong" and alone.fault == "out"
    (told,) = tried(folder, "coarse", cases=3, demands={"accumulate": "bfloat16"})
    assert told.kind == "agrees" and 0 < told.ratio < 1
    asked = Settings(axes=Axes(scales=(None, 0.25)), demands={"runs": 2, "merge": "bfloat16"})
    assert settings_from(settings_to(asked)) == asked


def test_axes_are_what_is_drawn():
    axes = Axes(equal=True, documents=2, head_dim=5, scales=(0.25,), longest=3)
    supports = restricted(Supports(documents=4), axes)
    for case in drawn(cases(supports)):
        assert len(set(case.layout_q.lengths)) == 1 and case.layout_q.num_sequences <= 2
        assert case.head_dim == 5 and case.softmax_scale == 0.25 and case.layout_q.lengths[0] <= 3
    assert restricted(Supports(), Axes(scales=(3.0,))) == "claims scales default, 0.25, not 3.0"


def drawn(strategy):
    """Twenty of them."""
    found = []

    @settings(max_examples=20, database=None)
    @given(strategy)
    def draw(case):
        found.append(case)

    draw()
    return found


def played_kernels(monkeypatch):
    """torch's operations of a GPU, by the stand-in; what they are called with is as on a GPU."""
    kit = stand_ins.flash_attn

    def forward(q, k, v, *rest, scale, window_size_left, window_size_right):
        *lengths, dropout_p, causal, debug = rest
        assert not debug
        window = (window_size_left, window_size_right)
        found = kit._flash_attn_varlen_forward(q, k, v, *lengths, dropout_p, scale, causal, *window)
        return *found[:2], None, None, None

    def backward(*given, scale, window_size_left, window_size_right):
        *tensors, lse, cu_q, cu_k, max_q, max_k, dropout_p, causal, _, _ = given
        assert lse.is_contiguous() and lse.dtype == torch.float32
        gradients = [torch.empty_like(x) for x in tensors[1:4]]
        rest = (cu_q, cu_k, max_q, max_k, dropout_p, scale, causal)
        rest = (*rest, window_size_left, window_size_right, 0.0, None, False)
        kit._flash_attn_varlen_backward(*tensors, lse, *gradients, *rest)
        return gradients

    aten = torch.ops.aten
    monkeypatch.setattr(aten, "_flash_attention_forward", forward, raising=False)
    monkeypatch.setattr(aten, "_flash_attention_backward", backward, raising=False)


def test_torchs_kernels_are_called_as_flash_attn_is(monkeypatch):
    played_kernels(monkeypatch)
    part = Path(adapter.__file__).with_name("part_torchs_kernels.py").read_text()
    with stand_ins.flash_attn_installed() as ours:
        calls = {}
        exec(part, calls)
    generator = torch.Generator().manual_seed(0)
    q, dout = (torch.randn(2, 5, 4, 8, generator=generator) for _ in range(2))
    k, v = (torch.randn(2, 6, 2, 8, generator=generator) for _ in range(2))
    for causal, left, right in ((True, -1, -1), (False, 2, 1), (True, 1, 0), (False, -1, -1)):
        rest = (0.0, 0.3, causal, left, right, 0.0, None)
        out, lse, *_ = ours._flash_attn_forward(q, k, v, *rest, False)
        got = calls["_flash_attn_forward"](q, k, v, *rest, False)
        torch.testing.assert_close(got[:2], (out, lse))
        found = []
        for function in (ours._flash_attn_backward, calls["_flash_attn_backward"]):
            found.append([torch.empty_like(x) for x in (q, k, v)])
            function(dout, q, k, v, out, lse, *found[-1], *rest, False)
        torch.testing.assert_close(found[1], found[0])
    for refused in ((0.1, 0.3, True, -1, -1, 0.0, None), (0.0, 0.3, True, -1, -1, 30.0, None)):
        with pytest.raises(NotImplementedError, match="no dropout, softcap"):
            calls["_flash_attn_forward"](q, k, v, *refused, False)


def test_the_plain_flash_attn_of_scripts_is_the_stand_in():
    """Two people's words for one function: the scripts' own, and the kit's by the definition."""
    part = Path(adapter.__file__).with_name("part_flash_attn.py").read_text()
    with stand_ins.flash_attn_installed() as ours:
        plain = {}
        exec(part, plain)  # it takes the place in sys.modules, which comes back in the end
    generator = torch.Generator().manual_seed(0)
    q, dout = (torch.randn(7, 4, 8, generator=generator) for _ in range(2))
    k, v = (torch.randn(9, 2, 8, generator=generator) for _ in range(2))
    lengths = [torch.tensor(x, dtype=torch.int32) for x in ([0, 2, 7], [0, 3, 9])]
    for causal, left, right in ((True, -1, -1), (False, 2, 1), (True, 1, 0), (False, -1, -1)):
        rest = (*lengths, 5, 6, 0.0, 0.3, causal, left, right, 0.0, None)
        found = []
        for name in ("_flash_attn_varlen_forward", "_flash_attn_varlen_backward"):
            for function in (getattr(ours, name), plain[name]):
                if name.endswith("forward"):
                    out, lse, *_ = function(q, k, v, *rest, False)
                    found.append((out, lse))
                else:
                    gradients = [torch.empty_like(x) for x in (q, k, v)]
                    function(dout, q, k, v, *found[0], *gradients, *rest, False)
                    found.append(gradients)
        for one, other in (found[:2], found[2:]):
            for x, y in zip(one, other, strict=True):
                torch.testing.assert_close(x, y)
