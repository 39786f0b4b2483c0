"""Libraries that stand in for NCCL, and what a process with a played GPU begins with."""

import shutil
import subprocess

from ringside._ranks import nccl

START = """
import played_ranks
from played_ranks import Links, Program, on_gpu
played_ranks.play(identity=identity)
Links.made, Links.wrong, Program.made = [], set(), 0
plan = rs.plan(rs.PackedLayout([0, 40, 64]), cp_size=size, num_heads=2)
def rows(number=None, dtype="float32", heads=2, dim=4, place=0):
    own = [number or len(plan.row_indices(rank)) for rank in group.ranks]
    parts = [on_gpu(np.ones((n, heads, dim), dtype), place) for n in own]
    return parts[0] if len(parts) == 1 else parts
def call(q=None, k=None, v=None, **more):
    given = [rows() if x is None else x for x in (q, k, v)]
    return plan.attention_rank(*given, group=group, **more)
"""


def make_libraries(folder):
    """Paths of two libraries that tell a version each, and can do nothing else."""
    compiler, paths = shutil.which("cc") or shutil.which("gcc"), []
    for number in (22809, 22707):
        paths.append(str(folder / f"{number}.so"))
        source = f"int ncclGetVersion(int* v) {{ *v = {number}; return 0; }}\n"
        command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", paths[-1]]
        subprocess.run(command, input=source.encode(), check=True)
    return paths


def use(workers, paths):
    """Each process the library of its turn."""
    snippet = f"os.environ[{nccl.VARIABLE!r}] = path"
    workers.all(snippet, [{"path": path} for path in paths])


def play(workers, hosted, timeout_s=20.0, identities=("a", "b")):
    """A new group of these processes, each with a GPU that is played."""
    workers.make_group([list(ranks) for ranks in hosted], timeout_s=timeout_s)
    size = sum(map(len, hosted))
    workers.all(START, [{"identity": x} for x in identities], size=size)
    return workers


def expect_refused_in_both(workers, snippet, text):
    """What rank 0 asks for is refused in both, once agreed on in each by itself; calls go on."""
    workers[0].tell(snippet)
    workers[1].tell("call()")
    mine, theirs = workers.errors()
    assert text in mine.text, mine
    assert text in theirs.text and "rank 0" in theirs.text, theirs
    assert workers.all("answer = call()[0].shape") == [(32, 2, 4)] * 2
    workers.tell_all(snippet)
    for error in workers.errors():
        assert text in error.text and error.kind != "RankFailure", error
    assert workers.all("answer = call()[0].shape") == [(32, 2, 4)] * 2
