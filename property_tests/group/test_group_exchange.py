"""What of the exchange between GPUs needs none: which NCCL is found, which exchange is taken, what
is refused. All processes decide by the same values, so each refusal is one function of them.

Libraries that stand in for NCCL are compiled here: one too old, one that is none, two versions.
"""

import secrets
import shutil
import subprocess
import sys
import tempfile
import types

import pytest
import ringside as rs
from group_processes import started
from ringside._ranks import nccl
from ringside._ranks.calls import ProgramAsked, plain
from ringside._ranks.choice import check_exchange, choose

COMPILER = shutil.which("cc") or shutil.which("gcc")
VERSION = "int ncclGetVersion(int* v) {{ *v = {}; return {}; }}\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """library(source): the path of a shared library."""
    folder = tmp_path_factory.mktemp("nccl")

    def make(source):
        path = folder / f"lib{len(list(folder.iterdir()))}.so"
        command = [COMPILER, "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
        subprocess.run(command, input=source.encode(), check=True)
        return str(path)

    return make


@pytest.fixture
def named_by(monkeypatch, library):
    """named_by(source): what is found where the variable names such a library."""

    def find(source):
        path = library(source)
        monkeypatch.setenv(nccl.VARIABLE, path)
        return path, nccl.find()

    return find


def test_a_library_says_where_it_is_and_which_version(named_by):
    path, found = named_by(VERSION.format(22809, 0))
    assert (found.path, found.version, found.problem) == (path, "2.28.9", "")


def test_one_that_is_too_old_is_not_used(named_by):
    _, found = named_by(VERSION.format(21805, 0))
    assert not found.path and "is NCCL 2.18.5; expected 2.19 or newer" in found.problem


def test_one_that_is_something_else_is_not_used(named_by):
    _, found = named_by("int answer(void) { return 42; }")
    assert not found.path and "is not NCCL" in found.problem
    _, found = named_by(VERSION.format(22809, 5))
    assert not found.path and "does not tell its version" in found.problem


def test_none_is_a_problem_and_no_error(monkeypatch):
    monkeypatch.setenv(nccl.VARIABLE, "/nowhere/libnccl.so.2")
    assert "is not NCCL" in nccl.find().problem
    monkeypatch.delenv(nccl.VARIABLE)
    monkeypatch.setattr(nccl, "SONAME", "libringside_has_no_such.so.2")
    assert "there is no libringside_has_no_such.so.2" in nccl.find().problem


def test_that_of_a_wheel_is_found_before_the_system_s(monkeypatch, tmp_path, library):
    folder = tmp_path / "nvidia" / "nccl" / "lib"
    folder.mkdir(parents=True)
    shutil.copy(library(VERSION.format(22707, 0)), folder / "libwheel_nccl.so.2")
    monkeypatch.delenv(nccl.VARIABLE, raising=False)
    monkeypatch.setattr(nccl, "SONAME", "libwheel_nccl.so.2")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "nvidia"]:
        monkeypatch.delitem(sys.modules, name)
    found = nccl.find()
    assert found.version == "2.27.7" and found.path == str(folder / "libwheel_nccl.so.2")


def told(*processes, **more):
    """What processes tell: (ranks, what differs from the others)."""
    common = {"host": "a", "family": "mma", "nccl": "2.28.9", "nccl_problem": "", **more}
    return [
        (tuple(ranks), {**common, "device": f"gpu {i}", **own})
        for i, (ranks, own) in enumerate(processes)
    ]


PAIR = ([0], {}), ([1], {})


def test_one_process_exchanges_nothing():
    for exchange in ("auto", "peer", "nccl"):
        assert choose(exchange, told(([0, 1], {}))) == "none"


def test_peer_memory_on_one_host_else_nccl():
    assert choose("auto", told(*PAIR)) == "peer"
    assert choose("auto", told(*PAIR, device="gpu 0", nccl_problem="none")) == "peer"
    assert choose("auto", told(([0], {}), ([1], {"host": "b"}))) == "nccl"
    assert choose("nccl", told(*PAIR)) == "nccl"
    same_name = told(([0], {"device": "x"}), ([1], {"host": "b", "device": "x"}))
    assert choose("auto", same_name) == "nccl"


REFUSED = {
    "two processes on one GPU": (
        "nccl",
        told(([0, 2], {"device": "x"}), ([1], {"device": "x"}), ([3], {})),
        (rs.Unsupported, "ranks 0, 1, 2 in processes of one GPU", 'Nearest supported: exchange="p'),
    ),
    "another version": (
        "nccl",
        told(([0, 1], {}), ([2], {"nccl": "2.30.7"})),
        (rs.InvalidArgument, "ranks 0, 1: NCCL 2.28.9; rank 2: NCCL 2.30.7", "Install one version"),
    ),
    "no library": (
        "nccl",
        told(([0], {}), ([1], {"nccl_problem": "there is no libnccl.so.2"})),
        (rs.Unsupported, "on rank 1: there is no libnccl.so.2", 'exchange="peer"'),
    ),
    "no library between hosts": (
        "auto",
        told(([0], {"nccl_problem": "none"}), ([1], {"host": "b"})),
        (rs.Unsupported, "on rank 0: none", "Nearest supported: arrays on the host (CPU, sockets)"),
    ),
    "peer memory between hosts": (
        "peer",
        told(([0], {}), ([1], {"host": "b"}), ([2], {})),
        (rs.Unsupported, "ranks 0, 2 on one, rank 1 on another", 'supported: exchange="nccl"'),
    ),
    "other kernels": (
        "auto",
        told(([0], {}), ([1], {"family": "float32"})),
        (rs.InvalidArgument, "rank 0: kernels mma; rank 1: kernels float32", "one kind"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_ranks_and_what_is_near(name):
    exchange, everybody, (kind, *pieces) = REFUSED[name]
    with pytest.raises(kind) as raised:
        choose(exchange, everybody)
    assert all(piece in str(raised.value) for piece in pieces), raised.value


def test_an_unknown_exchange_is_refused():
    with pytest.raises(rs.InvalidArgument, match="expected one of auto, nccl, peer"):
        check_exchange("mpi")


def asked(**more):
    plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
    of = {"device": 0, "dtypes": ["float32"] * 3, "head_dims": [8, 8], "options": rs.Options()}
    return ProgramAsked(plan, None, **{**of, **more})


def test_calls_have_one_mark_on_every_device_and_others_for_what_differs():
    mark = asked().key("plan")
    assert asked(device=1).key("plan") == mark
    assert asked(options=rs.Options(dropout_seed=3)).key("plan") == mark
    others = [{"head_dims": [8, 4]}, {"dtypes": ["bfloat16"] * 3}, {"options": rs.Options(sink=0)}]
    found = {mark, asked().key("another"), *(asked(**x).key("plan") for x in others)}
    assert len(found) == 5


def test_arrays_on_a_device_are_not_read_to_be_compared():
    class OnGpu:
        __cuda_array_interface__ = None

    options = rs.Options(sink=OnGpu(), softcap=2.0)
    assert plain(options) == rs.Options(softcap=2.0)


def test_a_group_over_that_of_torch():
    """By what torch.distributed promises, over sockets that stand in for it."""
    stand_in = """
import sys, types, json
dist = types.ModuleType("torch.distributed")
dist.get_rank = lambda group: rank
dist.get_world_size = lambda group: 2
dist.get_global_rank = lambda group, i: [7, 5][i]
def all_gather_object(found, value, group):
    found[:] = [value, value]
def broadcast_object_list(told, src, group):
    assert (src, group) == (7, "a group")
    if rank == 0:
        open(path + ".part", "w").write(json.dumps(told))
        os.rename(path + ".part", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    told[:] = json.load(open(path))
dist.all_gather_object, dist.broadcast_object_list = all_gather_object, broadcast_object_list
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch.distributed"] = dist
with rs.init_from("a group", ranks_per_process=2, timeout_s=20) as group:
    answer = group.ranks, group.size
"""
    with started(2) as workers:
        path = f"{tempfile.gettempdir()}/ringside-test-{secrets.token_hex(4)}"
        each = [{"rank": 0, "path": path}, {"rank": 1, "path": path}]
        found = workers.all(stand_in, each)
    assert found == [((0, 1), 4), ((2, 3), 4)]


def over_torch(monkeypatch, **functions):
    dist = types.ModuleType("torch.distributed")
    vars(dist).update({"get_rank": lambda _: 0, "get_world_size": lambda _: 2, **functions})
    monkeypatch.setitem(sys.modules, "torch.distributed", dist)
    return rs.init_from("a group")


def test_who_is_not_in_torch_s_group_is_told_so(monkeypatch):
    with pytest.raises(rs.InvalidArgument, match="this process is not in torch_group; expected on"):
        over_torch(monkeypatch, get_rank=lambda _: -1)


def test_a_group_of_torch_s_that_fails_is_a_failure_of_ranks(monkeypatch):
    def fails(found, value, group):
        raise RuntimeError("[gloo/pair.cc:561] Connection closed by peer\nand much more")

    with pytest.raises(rs.RankFailure, match="group ended, or did not come to ringside") as failure:
        over_torch(monkeypatch, all_gather_object=fails)
    assert "closed by peer)" in str(failure.value) and failure.value.ranks == ()


def test_autograd_hands_on_what_is_kept(monkeypatch):
    torch = pytest.importorskip("torch")
    from ringside.torch import varlen_attention

    backward, kept = rs.Plan.attention_backward_rank, []

    def spy(*args, kept_kv, **more):
        kept.append(kept_kv)
        return backward(*args, kept_kv=kept_kv, **more)

    monkeypatch.setattr(rs.Plan, "attention_backward_rank", spy)
    plan, gradients = rs.plan(rs.PackedLayout([0, 4]), cp_size=1), []
    with rs.init() as group:
        for keep in (False, True):
            x = torch.linspace(0, 1, 32).reshape(4, 1, 8).requires_grad_()
            varlen_attention(x, x, x, plan, group=group, keep_kv=keep).square().sum().backward()
            gradients.append(x.grad)
    assert kept[0] is None and repr(kept[1]) == "KeptKv(rank 0, 0 bytes)"
    assert torch.equal(*gradients)
    with pytest.raises(rs.InvalidArgument, match="keep_kv=True without a group"):
        varlen_attention(x, x, x, plan, keep_kv=True)


def test_autograd_over_ranks_is_for_plans():
    torch = pytest.importorskip("torch")
    from ringside.torch import varlen_attention

    x = torch.ones(4, 1, 8)
    with rs.init() as group:
        with pytest.raises(TypeError, match="plan is a str; expected a Plan or a DevicePlan"):
            varlen_attention(x, x, x, "plan", group=group)
