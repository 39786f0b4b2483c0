"""A timeline of a call that ran on GPUs, from what the profiler saw on each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ringside._bench.gpu.busy import is_exchange
from ringside._bench.gpu.clock import function_name, is_our_attention
from ringside._plan.timing import Owners
from ringside._time.timeline import Event, Kind, Timeline, of_events

if TYPE_CHECKING:
    import ringside as rs

SOURCE = "measured on GPUs"
BOTH = "forward and backward"


class Activity(NamedTuple):
    """A kernel or a copy, microseconds."""

    name: str
    begin: float
    end: float


def events_of(
    activities: Iterable[Activity], rank: int, steps: Sequence[int], owners: Owners
) -> list[Event]:
    """What a rank did in one call of both passes.

    What does not compute attention belongs to the step whose tiles come next, or came last.
    Exchanges that run beside each other are one event: a track has to nest.

    Args:
        activities: of the rank's GPU, in any order.
        rank: whose.
        steps: of the plan, in which the rank has tiles, rising.
        owners: of Plan.timeline.
    """
    ordered = sorted(activities, key=lambda activity: activity.begin)
    left = [*steps, *reversed(steps)]
    now, found = (left[0] if left else 0), []
    for activity in ordered:
        if _begins_a_step(activity.name) and left:
            now = left.pop(0)
        kind: Kind = "exchange" if is_exchange(activity.name) else "work"
        found.append(Event(rank, now, kind, activity.begin, activity.end, owners(rank, now)))
    return [*_joined(found, "work"), *_joined(found, "exchange")]


def _begins_a_step(kernel: str) -> bool:
    """Some launches go on: gradients of queries, and sums that NaN was kept from."""
    goes_on = ("query_gradient", "backward_queries", "dropped")
    return is_our_attention(kernel) and not any(x in function_name(kernel) for x in goes_on)


def _joined(events: Iterable[Event], kind: Kind) -> list[Event]:
    """Of one kind, none beginning before the one before has ended."""
    joined: list[Event] = []
    for event in events:
        if event.kind != kind:
            continue
        if joined and event.begin_us < joined[-1].end_us:
            longer = max(joined[-1].end_us, event.end_us)
            joined[-1] = joined[-1]._replace(end_us=longer)
        else:
            joined.append(event)
    return joined


def measured(plan: rs.Plan, group: rs.Group, run: Callable[[], Any]) -> Timeline:
    """Of a call of both passes by every rank; each GPU's clock begins with its first kernel."""
    activities = profiled(run)
    start = min((activity.begin for activity in activities), default=0.0)
    own = [Activity(name, begin - start, end - start) for name, begin, end in activities]
    owners, events = Owners(plan), []
    for (rank,), told in group._tell_all(
        [tuple(activity) for activity in own]
    ):  # one rank a process
        steps = [i for i, step in enumerate(plan.steps(rank)) if step.tiles]
        events += events_of([Activity(*activity) for activity in told], rank, steps, owners)
    return of_events(events, plan.cp_size, BOTH, SOURCE, owners)


def profiled(run: Callable[[], Any]) -> list[Activity]:
    """Everything on the device, of the second of two calls."""
    import torch

    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    on_device = torch.autograd.DeviceType.CUDA
    events = [e for e in profile.events() if e.device_type == on_device]
    return [Activity(e.name, e.time_range.start, e.time_range.end) for e in events]
