"""More ranks than memory holds are refused at once, in words that say what would go."""

import subprocess
import sys

import pytest

# In a process of 4 GiB: what is refused there does not depend on the machine.
CALL = """
import resource
import ringside as rs
resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))
layout = rs.PackedLayout([0, 5, 12])
try:
    {call}
except ValueError as error:
    print(error)
own = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("peak", own.split()[1])  # kB; ru_maxrss would begin with that of the tests
"""
STEPS = ("the steps of all ranks would take about ", "expected at most 4.0 GiB")
COUNTS = ("counts of all ranks and steps would take about ", "expected at most 4.0 GiB")
RANKS = ("cp_size=1000000000: one step of all ranks would take about ", "Pass fewer ranks")
GATHER = 'or comm="all_gather", which has one step'
REFUSED = {
    "rs.plan(layout, cp_size=20000)": ("cp_size=20000: ", *STEPS, "such as ", GATHER),
    "rs.plan(layout, cp_size=100000)": ("cp_size=100000: ", *STEPS, "such as ", GATHER),
    "rs.plan(layout, cp_size=20000, comm='fetch')": ("cp_size=20000: ", *STEPS, "such as "),
    "rs.plan(layout, cp_size=10**9)": RANKS,
    "rs.plan(layout, cp_size=10**9, partition=[0, 1])": RANKS,
    "rs.estimate(layout, cp_size=100000)": ("cp_size=100000: ", *COUNTS, "such as ", GATHER),
    "rs.estimate(layout, cp_size=10**9)": RANKS,
    "rs.partition('zigzag', layout, 10**9)": RANKS,
}


def printed(call):
    done = subprocess.run(
        [sys.executable, "-c", CALL.format(call=call)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    message, peak = done.stdout.rsplit("peak", 1)
    assert int(peak) < 2**20, "more than 1 GiB was taken first"
    return message


@pytest.mark.parametrize(("call", "says"), REFUSED.items(), ids=REFUSED.keys())
def test_ranks_that_memory_does_not_hold_are_refused_before_it_is_taken(call, says):
    message = printed(call)
    places = [message.find(piece) for piece in says]
    assert -1 not in places and places == sorted(places), message


@pytest.mark.parametrize("comm", ["all_gather", "a2a"])
def test_what_is_named_instead_is_taken(comm):
    assert printed(f"rs.plan(layout, cp_size=5000, comm={comm!r})") == ""
    assert printed(f"rs.estimate(layout, cp_size=5000, comm={comm!r})") == ""


LONG = "rs.PackedLayout([0, 10**9, 2 * 10**9])"


@pytest.mark.parametrize("partition", ["zigzag", "striped", "balanced"])
def test_long_documents_are_planned_and_counted_without_a_byte_a_token(partition):
    arguments = f"{LONG}, cp_size=2, partition={partition!r}"
    assert printed(f"rs.estimate({arguments})") == ""
    assert printed(f"rs.plan({arguments})") == ""


@pytest.mark.parametrize("call", ["rs.estimate({})", "rs.plan({}).cost()"])
def test_more_pairs_than_are_counted_are_refused(call):
    message = printed(call.format(f"{LONG}, cp_size=2, num_heads=32"))
    assert message.startswith("about 3.2e+19 visible pairs of 32 query heads; expected at most")
    assert "Pass fewer heads, or shorter sequences" in message
    narrow = f"{LONG}, cp_size=2, num_heads=32, mask=rs.Mask.sliding_window(4096, 0)"
    assert printed(call.format(narrow)) == ""
