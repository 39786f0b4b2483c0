"""What frees memory of a GPU waits for all that is under way there, and other threads go on."""

import threading
import time

import interpreted
import numpy as np
import ringside as rs
from cuda_cases import NEEDS_KERNELS, to_device

pytestmark = NEEDS_KERNELS
LAYOUT = rs.PackedLayout([0, 70, 160])


class Ticks:
    """Of another thread, while the context is entered: the longest time between two."""

    def __enter__(self):
        self.longest, self._is_over = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._tick)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._is_over.set()
        self._thread.join()

    def _tick(self):
        last = time.monotonic()
        while not self._is_over.wait(0.005):
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last), now


def test_a_plan_is_freed_while_other_threads_run(monkeypatch):
    plan = rs.plan(LAYOUT, cp_size=1, num_heads=2)
    x = to_device(np.ones((LAYOUT.num_rows, 2, 64)))
    plan.attention(x, x, x, backend="cuda")
    with monkeypatch.context() as patch, Ticks() as ticks:
        if interpreted.PATH:
            patch.setenv("RINGSIDE_PTX_FREE_MS", "700")
        else:
            import torch

            torch.cuda._sleep(3_000_000_000)
        begin = time.monotonic()
        del plan
        took = time.monotonic() - begin
        time.sleep(0.05)  # for a tick behind it
    assert took > 0.6, "nothing was waited for"
    assert ticks.longest < took / 2
