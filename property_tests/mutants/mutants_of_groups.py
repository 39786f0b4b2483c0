"""Faults in several processes: messages, waits, aborts, agreement, names, admission."""

from mutants_list import Mutant
from mutants_of_hosts import MUTANTS_OF_HOSTS

STREAM = "reference/sockets/socket_stream.cpp"
RANKS = "reference/sockets/socket_ranks.cpp"
GROUP = "bindings/ringside/_group/"
RUNS = "bindings/ringside/_ranks/runs.py"
OF_LENGTHS = "bindings/ringside/_plan/device/rank_calls.py"
DEVICE_PLAN = "bindings/ringside/_plan/device/plan.py"
MUTANTS_OF_GROUPS = [
    Mutant(
        "nobody hears of a call that one rank refuses",
        GROUP + "refused.py",
        "        if group._has_come_to() == before:",
        "        if False:",
    ),
    Mutant(
        "a backward pass does not say of which forward call it is",
        "bindings/ringside/torch.py",
        ", ctx.group._as_half_of(ctx.call):",
        ":",
    ),
    Mutant(
        "messages to one rank leave in the wrong order",
        STREAM,
        "outgoing_.push_back({{place, data.size()}, data});",
        "outgoing_.push_front({{place, data.size()}, data});",
    ),
    Mutant(
        "a message is taken for another one",
        STREAM,
        'if (got == expected) return "";',
        'if (got.bytes == expected.bytes) return "";',
    ),
    Mutant(
        "an exchange does not wait until its messages have gone",
        RANKS,
        "if (!stream.sends() && !stream.receives()) continue;",
        "if (!stream.receives()) continue;",
    ),
    Mutant(
        "a rank that waits for another of its process does not see an abort",
        RANKS,
        "lock, kListenEvery, [&] { return !queue.empty() || ranks_.aborted_.has_value(); });\n"
        "      ranks_.throw_if_aborted();",
        "lock, kListenEvery, [&] { return !queue.empty(); });",
    ),
    Mutant(
        "an abort leaves the sockets open",
        RANKS,
        "for (const auto& endpoint : endpoints_) endpoint->shut_down();",
        "",
    ),
    Mutant(
        "all ranks of a process use the keys of the first",
        "bindings/core/plan_ranks.cpp",
        "view(arrays_[i].k)",
        "view(arrays_[0].k)",
    ),
    Mutant(
        "the largest score is that of the own ranks",
        RUNS,
        "told = [x for _, x in gather([x.tolist() for x in logits])]",
        "told = [gather([x.tolist() for x in logits]) and [x.tolist() for x in logits]]",
    ),
    Mutant(
        "messages do not say of which kind their call is",
        GROUP + "calls.py",
        "self._links.start(number, int(kind, 16))",
        "self._links.start(number, 0); self._now = (number, '', True)",
    ),
    Mutant(
        "a call that another process gave up returns its results",
        GROUP + "calls.py",
        "self._control.raise_failure()  # nothing of a call that another process gave up",
        "pass",
    ),
    Mutant(
        "an exception that leaves the context is not told",
        GROUP + "group.py",
        "if error is not None and not ends_well and not self._closed:",
        "if False:",
    ),
    Mutant(
        "a forked process keeps the sockets of control",
        GROUP + "control_sockets.py",
        "for connection in (*(p.connection for p in self.peers.values()), self._awake):",
        "for connection in (self._awake,):",
    ),
    Mutant(
        "a forked process may use the group of its parent",
        GROUP + "group.py",
        "    os.register_at_fork(after_in_child=_let_all_go)\n",
        "    pass\n",
    ),
    Mutant(
        "a closed group holds its descriptors until cycles are collected",
        GROUP + "control.py",
        "self._where, self._on_failure = (lambda: last), (lambda why: None)",
        "last",
    ),
    Mutant(
        "who waits for a stopped rank while all meet is named in its place",
        GROUP + "rendezvous.py",
        "if silent is not None:\n                    ranks, address",
        "if False:\n                    ranks, address",
    ),
    Mutant(
        "a first rank that was stopped is waited for beyond the timeout",
        GROUP + "rendezvous.py",
        "return bool(heard) or not is_silent(first.getpeername()[:2])",
        "return True",
    ),
    Mutant(
        "a first rank that began later is not waited for",
        GROUP + "rendezvous.py",
        "if not self._hears_or_may_yet(first):",
        "if not select.select([first], [], [], self.door.left())[0]:",
    ),
    Mutant(
        "those that wait for a stopped rank are missed in its place",
        GROUP + "rendezvous.py",
        "if silent is None:\n                    raise",
        "if True:\n                    raise",
    ),
    Mutant(
        "rank 0 is named for whoever is silent while all meet",
        GROUP + "door.py",
        "            connection.recv(1)\n",
        "            return True\n",
    ),
    Mutant(
        "threads take turns in a group, in any order",
        GROUP + "calls.py",
        "if not self._lock.acquire(blocking=not self._control.peers):",
        "if not self._lock.acquire():",
    ),
    Mutant(
        "who is not in torch's group asks for its rank there",
        GROUP + "from_torch.py",
        "if process < 0:",
        "if False:",
    ),
    Mutant(
        "processes need not agree on options",
        GROUP + "agreement.py",
        '    "options": "Pass the same options on every rank",\n',
        "",
    ),
    Mutant(
        "a socket that closes is no death",
        GROUP + "control.py",
        "if peer.left_after is None and not peer.gave_up and self._closing is None:",
        "if False:",
    ),
    Mutant(
        "who leaves early is waited for",
        GROUP + "control.py",
        '            self.require_all(self._where()["call"])\n',
        "",
    ),
    Mutant(
        "whom a rank waits for is named, not who stopped",
        GROUP + "control.py",
        "ranks = sorted(stopped or late or awaited)",
        "ranks = sorted(awaited)",
    ),
    Mutant(
        "whoever comes is admitted without the key",
        GROUP + "wire.py",
        'if not hmac.compare_digest(proof, _proof(key, b"client", nonce, theirs)):',
        "if False:",
    ),
    Mutant(
        "a batch script waits for tasks that are not there",
        GROUP + "launch.py",
        '"SLURM_STEP_NUM_TASKS",\n        nodes',
        '"SLURM_NTASKS",\n        nodes',
    ),
    Mutant(
        "a file that was left over is believed",
        GROUP + "first_call.py",
        "return bool(place.key) and not place.board.outlives_jobs",
        "return True",
    ),
    Mutant(
        "a process that was killed counts as one that ended well",
        GROUP + "launcher.py",
        "return code if code > 0 else 128 - code",
        "return max(code, 0)",
    ),
    *MUTANTS_OF_HOSTS,
    Mutant(
        "plans of one capacity share a program, whose lengths are those of the last",
        OF_LENGTHS,
        "mine = self._numbers.get(group) or group._plans_numbered + 1",
        "mine = 1",
    ),
    Mutant(
        "a call that is refused takes a number",
        OF_LENGTHS,
        "or group._plans_numbered + 1",
        "or group._number_plan()",
    ),
    Mutant(
        "a program of ranks that was made after the lengths does not get them",
        OF_LENGTHS,
        "        if self._lengths is not None:\n            self._lengths.set(program)\n",
        "",
    ),
    Mutant(
        "programs of ranks keep the lengths that they were made with",
        DEVICE_PLAN,
        "return [*self._programs.values(), *self._rank_programs]",
        "return [*self._programs.values()]",
    ),
    Mutant(
        "lengths of another device are set",
        DEVICE_PLAN,
        "            lengths.require_on(program.device)\n",
        "            lengths.require_on(lengths.device)\n",
    ),
    Mutant(
        "calls of ranks begin before there are lengths",
        RUNS,
        "    plan._require_ready(call.library, call.device)\n",
        "",
    ),
    Mutant(
        "keys that were kept for other lengths are taken",
        "bindings/ringside/_ranks/calls.py",
        'f"number {self.plan._version}"',
        '"any"',
    ),
    Mutant(
        "of lengths on the device, keys have the room of queries",
        OF_LENGTHS,
        'self._source.rank_rows_q if side == "q" else self._source.rank_rows_k',
        "self._source.rank_rows_q",
    ),
]
