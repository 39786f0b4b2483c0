"""A timeline told one rank and step at a time, from messages, by recursion: what waits for what.

It shares nothing with the library's walk: no arrays, no names of transports where peers can tell,
and what an exchange takes from tiles is followed interval by interval.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from itertools import pairwise

ITEM = 2  # bytes of bfloat16
COLLECTIVE = {"all_gather", "all_to_all"}


def interpolated(points, size):
    """Microseconds of a table, by hand."""
    if size <= 0:
        return 0.0
    if size <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if size <= x1:
            return y0 + (y1 - y0) * (size - x0) / (x1 - x0)
    if len(points) == 1:
        return points[0][1] * size / points[0][0]
    (x0, y0), (x1, y1) = points[-2:]
    return y1 + (y1 - y0) * (size - x1) / (x1 - x0)


class Exchange:
    """Bytes by (receiver, sender)."""

    def __init__(self):
        self.bytes = defaultdict(int)

    def received(self, rank):
        return sum(n for (to, _), n in self.bytes.items() if to == rank)

    def sent(self, rank):
        return sum(n for (_, sender), n in self.bytes.items() if sender == rank)

    def sender(self, rank):
        return next((sender for (to, sender), n in self.bytes.items() if to == rank and n), None)

    def receiver(self, rank):
        return next((to for (to, sender), n in self.bytes.items() if sender == rank and n), None)

    def has(self, rank):
        return self.received(rank) + self.sent(rank) > 0

    def friends(self, rank):
        """All that messages join to a rank, over others too."""
        found, left = {rank}, [rank]
        while left:
            one = left.pop()
            for pair, n in self.bytes.items():
                if n and one in pair:
                    new = set(pair) - found
                    found |= new
                    left += new
        return found


def payload_bytes(payload, dims, backward):
    qk, v = dims
    return {
        "queries": (qk + v) * ITEM + 8 if backward else qk * ITEM,
        "keys": (qk + v) * ITEM,
        "results": v * ITEM + 4,
        "query_gradients": 4 * qk,
        "key_gradients": 4 * (qk + v),
    }[payload]


def exchanges(plan, dims, backward):
    """Before and after the tiles of each step of the plan, as schedules have them."""
    steps = plan.num_steps
    before, after = ([Exchange() for _ in range(steps)] for _ in range(2))
    for rank in range(plan.cp_size):
        for operation in plan.schedule(rank, backward=backward):
            for message in operation.receives:
                heads = message["heads"][1] - message["heads"][0]
                payload, step = message["payload"], operation.step
                size = message["rows"] * heads * payload_bytes(payload, dims, backward)
                where = before
                if payload == "results":
                    where, step = after, steps - 1
                elif "gradients" in payload:
                    where = after
                elif payload == "queries" and backward:
                    step = steps - 1  # they come before anything is computed
                where[step].bytes[rank, message["peer"]] += size
    return before, after


def kind_of(plan, step, which, backward, group):
    """What an exchange is, by its place in a transport."""
    rings = {"p2p": (1, 0), "a2a+p2p": (group, 1)}
    if plan.comm in rings:
        first = rings[plan.comm][1]
        is_hop = step >= first and not (which == "after" and not backward and first)
        if which == "before" and backward and step > 0 and group > 1:
            return "fetch"
        return "hop" if is_hop else "all_to_all"
    if plan.comm == "all_gather":
        first = "all_gather" if which == "before" else "all_to_all"
        return first if step == 0 else ("all_gather" if which == "before" else "all_to_all")
    return "all_to_all" if plan.comm == "a2a" else "fetch"


class PlainTimeline:
    """Of a plan by the dict of a model; dims are the head sizes."""

    def __init__(self, plan, model, dims, backward, group):
        self.plan, self.model, self.dims = plan, model, dims
        self.backward, self.group, self.steps = backward, group, plan.num_steps
        before, after = exchanges(plan, dims, backward)
        order = list(range(self.steps))
        self.order = order[::-1] if backward else order
        self.of = {"before": before, "after": after}
        kernel = model["kernels"][0]
        self.rates = kernel["backward" if backward else "forward"]
        sizes = {"head_dim": dims[0], "head_dim_v": dims[1]}
        self.cost = plan.cost(**sizes, block_size=tuple(kernel["block_size"]))
        self.posts = self._posts()
        self.tiles, self.device = cache(self._tiles), cache(self._device)
        self.exchange = cache(self._exchange)

    def _posts(self):
        found = [("before", 0)] if self.steps else []
        for i in range(self.steps):
            last = i + 1 == self.steps
            ahead = [] if last else [("before", i + 1)]
            here = [("after", i)]
            found += ahead + here if self.model["overlap"] else here + ahead
        return found

    def exchange_at(self, post):
        which, i = self.posts[post]
        return self.of[which][self.order[i]]

    def us(self, rank, post):
        """Of what a rank receives, or sends, where that is more and not one hop."""
        which, i = self.posts[post]
        step, found = self.order[i], self.exchange_at(post)
        kind = kind_of(self.plan, step, which, self.backward, self.group)
        levels, ranks = self.model["links"], self.plan.cp_size
        if kind == "hop":
            for level in levels:
                near = level["ranks"] or ranks
                if near >= ranks or rank // near == (found.sender(rank) or 0) // near:
                    return interpolated(level["us_of_bytes"]["hop"], found.received(rank))
        size = max(found.received(rank), found.sent(rank))
        whole = kind == "fetch" or self.group == 1
        others, so_far, longest = max((ranks if whole else self.group) - 1, 1), 0.0, 0.0
        for level in levels:
            near = level["ranks"] or ranks
            share = 1.0 if near >= ranks else min(1.0, (near - 1) / others)
            part = size * max(share - so_far, 0)
            longest = max(longest, interpolated(level["us_of_bytes"][kind], part))
            so_far = max(so_far, share)
        return longest

    def link_free(self, rank, post):
        for earlier in reversed(range(post)):
            if self.exchange_at(earlier).has(rank):
                return self.exchange(rank, earlier)[1]
        return 0.0

    def ready(self, rank, post):
        which, i = self.posts[post]
        if which == "after":
            room = self._computed(rank, i)
        elif self.model["overlap"]:
            room = self.tiles(rank, i - 2)[1] if i >= 2 else 0.0
        else:
            room = self.device(rank, i - 1)
        return max(self.link_free(rank, post), room)

    def _exchange(self, rank, post):
        which, i = self.posts[post]
        found, kind = (
            self.exchange_at(post),
            kind_of(self.plan, self.order[i], which, self.backward, self.group),
        )
        if kind == "hop":
            spans = []
            for to in {rank, found.receiver(rank)} - {None}:
                sender = found.sender(to)
                if sender is not None:
                    begin = max(self.ready(to, post), self.ready(sender, post))
                    spans.append((begin, begin + self.us(to, post)))
            return min(b for b, _ in spans), max(e for _, e in spans)
        if kind in COLLECTIVE and self.plan.comm in ("all_gather", "a2a", "a2a+p2p"):
            friends = found.friends(rank)
            begin = max(self.ready(friend, post) for friend in friends)
            return begin, begin + max(self.us(friend, post) for friend in friends)
        begin = self.ready(rank, post)
        return begin, begin + self.us(rank, post)

    def end_of(self, rank, which, i):
        if i < 0 or not self.of[which][self.order[i]].has(rank):
            return None
        return self.exchange(rank, self.posts.index((which, i)))[1]

    def work_us(self, rank, i):
        step, cost, memory = self.order[i], self.cost, self.model["memory"]
        counts = [int(getattr(cost, x)[rank, step]) for x in ("blocks", "partial_blocks", "visits")]
        names = ("us_per_block", "us_per_partial_block", "us_per_visit")
        us = sum(n * self.rates[x] for n, x in zip(counts, names, strict=True))
        us /= self.model["multiprocessors"]
        us += self.rates["us_per_launch"] if counts[0] else 0.0
        rate = memory["gb_per_s"] * 1e3
        if not self.backward and step > 0:
            rows = counts[2] * cost.block_size[0]
            us += rows * self.dims[1] * memory["per_merged_element"] / rate
        kind = kind_of(self.plan, min(step, 1), "before", False, self.group)
        moved = memory["per_byte_received"].get(kind, 0.0)
        return us + self.of["before"][step].received(rank) * moved / rate

    def _tiles(self, rank, i):
        free = self.device(rank, i - 1)
        work = self.work_us(rank, i)
        if work == 0:
            return free, free
        arrived = self.end_of(rank, "before", i)
        begin = max(free, arrived or 0.0) + self.model["host_us_per_step"]
        posted = self.posts.index(("after", i))
        under = [
            self.exchange(rank, post) for post in range(posted) if self.exchange_at(post).has(rank)
        ]
        return begin, self._worked_off(begin, work, under)

    def _worked_off(self, begin, work, under):
        """From edge to edge of the exchanges under way."""
        taken = self.model["exchange_multiprocessors"] / self.model["multiprocessors"]
        edges = sorted({x for span in under for x in span if x > begin})
        now = begin
        for edge in [*edges, float("inf")]:
            busy = any(b <= now < e for b, e in under)
            speed = 1 - taken if busy else 1.0
            if work <= (edge - now) * speed:
                return now + work / speed
            work -= (edge - now) * speed
            now = edge
        raise AssertionError

    def add_us(self, rank, i):
        memory = self.model["memory"]
        size = self.of["after"][self.order[i]].received(rank) if i >= 0 else 0
        return size * memory["per_byte_added"] / (memory["gb_per_s"] * 1e3)

    def add_span(self, rank, i, now):
        """Of what came after tiles i; None where nothing did."""
        us = self.add_us(rank, i)
        if us == 0:
            return None
        begin = max(now, self.end_of(rank, "after", i))
        return begin, begin + us

    def _computed(self, rank, i):
        now = self.tiles(rank, i)[1]
        added = self.add_span(rank, i - 1, now)
        return added[1] if added else now

    def _device(self, rank, i):
        if i < 0:
            return 0.0
        now = self._computed(rank, i)
        if not self.model["overlap"]:
            now = max(now, self.link_free(rank, self.posts.index(("after", i)) + 1))
        return now

    def events(self):
        """(rank, step, kind, begin, end) of all that takes time."""
        found = []
        for rank in range(self.plan.cp_size):
            for i, step in enumerate(self.order):
                found.append((rank, step, "work", *self.tiles(rank, i)))
                added = self.add_span(rank, i - 1, self.tiles(rank, i)[1])
                if added:
                    found.append((rank, self.order[i - 1], "work", *added))
            if self.steps:
                added = self.add_span(rank, self.steps - 1, self.device(rank, self.steps - 1))
                if added:
                    found.append((rank, self.order[-1], "work", *added))
            for post, (_, i) in enumerate(self.posts):
                if self.exchange_at(post).has(rank):
                    span = self.exchange(rank, post)
                    found.append((rank, self.order[i], "exchange", *span))
        return sorted(x for x in found if x[4] > x[3])
