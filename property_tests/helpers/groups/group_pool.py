"""Processes on GPUs with a group of each way to host ranks, and cases for them."""

import ringside as rs
from numpy.testing import assert_allclose
from ringside.testing import Case

HOSTED = {
    "one process": [[0, 1, 2, 3]],
    "two processes": [[0], [1]],
    "a rank a process": [[0], [1], [2], [3]],
    "two ranks a process": [[0, 1], [2, 3]],
    "one and two": [[0], [1, 2]],
}
SIZES = {name: sum(map(len, ranks)) for name, ranks in HOSTED.items()}
DOCUMENTS = rs.PackedLayout([0, 90, 90, 93, 190], [0, 100, 104, 110, 210])
PLAIN = {"num_heads": 8, "num_kv_heads": 4, "head_dim": 16, "head_dim_v": 8}


def devices():
    import torch

    return torch.cuda.device_count()


class Pool:
    """Processes with a group of each kind."""

    def __init__(self, workers):
        self.workers, self.made = workers, {}
        workers.all("from group_lengths import *; import torch; torch.cuda.init()")

    def parts(self, name):
        """The processes of a group, which is made where it is new, and its name there."""
        if name not in self.made:
            self.made[name] = f"group_{len(self.made)}"
            self.workers.make_group(HOSTED[name], self.made[name], timeout_s=20)
        return self.workers[: len(HOSTED[name])], self.made[name]

    def all(self, name, call, **values):
        """What each process of a group answers; `group` and `device` are its own."""
        taking_part, group = self.parts(name)
        for i, worker in enumerate(taking_part):
            call_of = f"group, device = {group}, {i % devices()}\n{call}"
            worker.tell(call_of, **values)
        return [worker.answer() for worker in taking_part]

    def check(self, name, case, dtype, exchange="peer", capacity=None, near=True):
        call = "room = Room(case, group, dtype, device, capacity)\n"
        call += "answer = lengths_difference(room, exchange, near)"
        values = {"case": case, "dtype": dtype, "exchange": exchange, "capacity": capacity}
        answers = self.all(name, call, near=near, **values)
        assert [text for text, *_ in answers] == [[]] * len(answers), (case, dtype)
        if case.sink is not None:  # each rank sums its own rows
            want, scale = answers[0][2], abs(answers[0][2]).max()
            total = sum(own for _, own, _ in answers)
            assert_allclose(total, want, rtol=0, atol=1e-5 * max(1.0, scale))


def case_of(comm, name, layout=DOCUMENTS, **more):
    size = SIZES[name]
    a2a = (2 if size % 2 == 0 else size) if comm == "a2a+p2p" else None
    return Case(layout, cp_size=size, comm=comm, a2a_size=a2a, **{**PLAIN, **more})
