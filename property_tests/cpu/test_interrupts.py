"""Ctrl-C ends a long call soon, what a handler raises comes out, and the next call is right."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import ringside as rs

SOON = 5.0  # seconds; it is heard every 50 ms, the rest is for a machine with other work to do
BEGUN = 1.0  # seconds, after which a call computes: its arguments are there before it says so

# Each ends in `call`, which takes more than a minute.
ARRAYS = """
layout = rs.PackedLayout([0, 20_000])
x = np.ones((20_000, 16, 8))
saved = x, np.zeros((16, 20_000))
"""
SEGMENTS = """
def dealt(tokens, run):  # runs of one document, dealt to two ranks
    starts = range(0, tokens, run)
    return [[rs.Segment(0, pos, run) for pos in starts[rank::2]] for rank in range(2)]
"""
CALLS = {
    "attention": f"{ARRAYS}call = lambda: rs.attention(x, x, x, layout)",
    "attention_backward": f"{ARRAYS}call = lambda: "
    "rs.attention_backward(x, x, x, x, *saved, layout)",
    "plan.attention": f"{ARRAYS}plan = rs.plan(layout, mask=rs.Mask.full(), cp_size=2, "
    "num_heads=16)\ncall = lambda: [plan.attention(x, x, x) for _ in range(20)]",
    "plan.attention_backward": f"{ARRAYS}plan = rs.plan(layout, mask=rs.Mask.full(), cp_size=2, "
    "num_heads=16)\ncall = lambda: "
    "[plan.attention_backward(x, x, x, x, *saved) for _ in range(20)]",
    "plan": f"{SEGMENTS}shards = dealt(200_000, 1)\ncall = lambda: rs.plan("
    "rs.PackedLayout([0, 200_000]), mask=rs.Mask.sliding_window(0, 0), partition=shards)",
    "verify": f"{SEGMENTS}plan = rs.plan(rs.PackedLayout([0, 4_000_000]), mask=rs.Mask.full(), "
    "partition=dealt(4_000_000, 2000))\ncall = plan.verify",
}
CHILD = """
import sys
import numpy as np, ringside as rs
{prepare}
print("ready", flush=True)
try:
    call()
    print("done", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
small = rs.PackedLayout([0, 3, 8])
plan = rs.plan(small, cp_size=2)
q = np.arange(16.0).reshape(8, 1, 2) / 7
error = np.abs(plan.attention(q, q, q)[0] - rs.attention(q, q, q, small)[0]).max()
print(plan.verify().pairs, error < 1e-12, flush=True)
"""


def hear_ctrl_c():
    """A job that a shell put into the background is deaf to it, and so are its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def started():
    """Starts a command whose first line is awaited; ends it, whatever comes of the test."""
    running = []

    def start(*command):
        child = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            preexec_fn=hear_ctrl_c,
        )
        running.append(child)
        return child

    yield start
    for child in running:
        child.kill()
        child.communicate()


def first_output(child):
    """Sends SIGINT; what the child prints next, and after how many seconds."""
    time.sleep(BEGUN)
    begin = time.monotonic()
    child.send_signal(signal.SIGINT)
    timer = threading.Timer(4 * SOON, child.kill)
    timer.start()
    line = child.stdout.readline().strip()
    timer.cancel()
    return line, time.monotonic() - begin


@pytest.mark.parametrize("prepare", CALLS.values(), ids=CALLS.keys())
def test_ctrl_c_ends_a_call_soon_and_the_next_one_is_right(started, prepare):
    child = started("-c", CHILD.format(prepare=prepare))
    assert child.stdout.readline().strip() == "ready"
    line, seconds = first_output(child)
    assert line == "interrupted"
    assert seconds < SOON
    assert child.wait(timeout=60) == 0
    # communicate() would lose what the line before this one has taken along from the pipe.
    out, err = child.stdout.read(), child.stderr.read()
    assert out.strip() == "21 True", err  # 3 * 4 / 2 + 5 * 6 / 2 pairs


def test_ctrl_c_ends_the_command_with_130_and_without_a_traceback(started):
    child = started("-m", "ringside", "verify", "--lengths", "man_pages", "--tokens", "60000")
    line = child.stdout.readline()  # what was taken
    assert "60,000 tokens" in line
    _, seconds = first_output(child)
    _, err = child.communicate(timeout=60)
    assert seconds < SOON
    assert child.returncode == 130
    assert "Traceback" not in err


class Alarm(Exception):
    """What the handler below raises."""


def attention_of_a_minute():
    x = np.ones((20_000, 16, 8))
    rs.attention(x, x, x, rs.PackedLayout([0, 20_000]))


@pytest.fixture
def on_alarm():
    """Installs a handler of SIGALRM for the test."""
    before = signal.getsignal(signal.SIGALRM)
    yield lambda handler: signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_what_any_handler_raises_comes_out_of_the_call(on_alarm):
    def handler(number, frame):
        raise Alarm("time is up")

    on_alarm(handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    begin = time.monotonic()
    with pytest.raises(Alarm, match="time is up"):
        attention_of_a_minute()
    assert time.monotonic() - begin < SOON


def test_a_handler_may_call_the_library_and_the_call_goes_on(on_alarm):
    x = np.random.default_rng(0).normal(size=(3000, 4, 8))
    layout = rs.PackedLayout([0, 3000])
    want = rs.attention(x, x, x, layout)
    within = []

    def handler(number, frame):
        within.append(rs.attention(x[:50], x[:50], x[:50], rs.PackedLayout([0, 50]))[0])

    on_alarm(handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    while not within:
        got = rs.attention(x, x, x, layout)
    signal.setitimer(signal.ITIMER_REAL, 0)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_calls_from_other_threads_are_not_disturbed(on_alarm):
    x = np.random.default_rng(0).normal(size=(3000, 4, 8))
    layout = rs.PackedLayout([0, 3000])
    want, got = rs.attention(x, x, x, layout), []

    def handler(number, frame):
        raise Alarm

    on_alarm(handler)
    thread = threading.Thread(target=lambda: got.extend(rs.attention(x, x, x, layout)))
    thread.start()
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(Alarm):
        time.sleep(60)
    thread.join()
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
