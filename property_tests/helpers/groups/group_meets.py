"""Processes that make groups, as far as their sockets: threads of a test, which start at once."""

import threading

from ringside._group.place import place_of
from ringside._group.rendezvous import Meeting

PATIENCE = 30.0  # seconds; far more than anything takes that is right
DEFAULTS = {"ranks_per_process": 1, "address": None, "key": None, "name": "", "timeout_s": None}


def place(rank=None, size=None, variables=(), **given):
    """What ringside.init makes of arguments and variables."""
    texts = {name: str(value) for name, value in dict(variables).items()}
    return place_of(rank, size, **{**DEFAULTS, **given}, environment=texts)


class Meets(threading.Thread):
    """One of them; it meets the others from now on."""

    def __init__(self, place):
        super().__init__(daemon=True)
        self.place, self.met, self.error = place, None, None
        self.start()

    def run(self):
        try:
            self.met = Meeting(self.place).connect()
        except Exception as error:
            self.error = error

    def outcome(self):
        """What it raised, else the ranks of each process of its group."""
        self._end()
        return self.error or self.met.processes

    def met_with(self, other):
        """Whether they have a socket between them."""
        self._end(), other._end()
        return bool(self._ends() & {(theirs, ours) for ours, theirs in other._ends()})

    def _end(self):
        self.join(PATIENCE)
        assert not self.is_alive(), "it still meets"

    def _ends(self):
        """The ports of its sockets, here and there."""
        sockets = [*self.met.controls.values(), *(x[2] for x in self.met.links)]
        return {(x.getsockname()[1], x.getpeername()[1]) for x in sockets}

    def close(self):
        """Its sockets."""
        self._end()
        if self.met is not None:
            for x in [*self.met.controls.values(), *(x[2] for x in self.met.links)]:
                x.close()
