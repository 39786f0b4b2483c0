"""Faults in what the exchange between GPUs has on the host: rounds, places, choices, names."""

from mutants_list import Mutant

ROUNDS = "reference/schedule/rounds.cpp"
PASS = "optimized/tables/schedules/process_pass.cpp"
RANKS = "bindings/ringside/_ranks/"
GROUP = "bindings/ringside/_group/"
MUTANTS_OF_EXCHANGE = [
    Mutant(
        "results go home in the round in which queries came",
        ROUNDS,
        "num_steps + from_last : step;",
        "step : step;",
    ),
    Mutant(
        "gradients leave before the keys of the step before are asked for",
        ROUNDS,
        "(payload == Payload::keys ? 0 : 3)",
        "(payload == Payload::keys ? 0 : 1)",
    ),
    Mutant(
        "every copy within a process is of the first message",
        ROUNDS,
        "all.push_back({from[i].first, turn, from[i].second, block});",
        "all.push_back({from[0].first, turn, from[0].second, block});",
    ),
    Mutant(
        "values land where keys do",
        PASS,
        "rows_of(*schedule, memory, pass_.sizes_, landing->second, array)",
        "rows_of(*schedule, memory, pass_.sizes_, landing->second, 0)",
    ),
    Mutant(
        "the ranks of a process share their buffers",
        PASS,
        "memory.empty() ? begin : memory.back().end",
        "begin",
    ),
    Mutant(
        "nothing is staged",
        PASS,
        "if (!parcel.here.dense()) bytes +=",
        "if (parcel.here.rows < 0) bytes +=",
    ),
    Mutant(
        "a slice of heads is sent as whole rows",
        "optimized/tables/schedules/rank_memory.cpp",
        "int64_t{block.heads.size()} * bytes, block.rows",
        "int64_t{buffer.heads.size()} * bytes, block.rows",
    ),
    Mutant(
        "a library of any age is NCCL",
        RANKS + "nccl.py",
        "if version[:2] < OLDEST:",
        "if False:",
    ),
    Mutant(
        "that of the wheel is not looked for",
        RANKS + "nccl.py",
        "if wheel := _of_wheel():",
        "if wheel := None:",
    ),
    Mutant(
        "two processes on a GPU are left to NCCL",
        RANKS + "choice.py",
        "for r, _ in told)) > 1:",
        "for r, _ in told)) > 2:",
    ),
    Mutant(
        "hosts exchange through memory that they do not share",
        RANKS + "choice.py",
        'if exchange == "nccl" or (exchange == "auto" and len(hosts) > 1):',
        'if exchange == "nccl":',
    ),
    Mutant(
        "versions of NCCL are not compared",
        RANKS + "choice.py",
        '_require_equal(told, "nccl", "NCCL", "Install one version of nvidia-nccl")',
        "pass",
    ),
    Mutant(
        "calls are marked by the number of the device",
        RANKS + "calls.py",
        "made_for = [fingerprint, self.dtypes, self.head_dims, self.keep_kv, self.poison]",
        "made_for = [fingerprint, self.dtypes, self.head_dims, self.keep_kv, self.device]",
    ),
    Mutant(
        "calls of other kinds are noticed by nobody",
        GROUP + "begun.py",
        "self._kinds[number], self._whats[number] = kind, what or {}",
        "self._whats[number] = what or {}",
    ),
    Mutant(
        "an interrupt amid a set-up stays with the process that has it",
        GROUP + "calls.py",
        "as well\n        except BaseException as interrupt:\n            self._fail_by(interrupt)",
        "as well\n        except BaseException:\n            pass",
    ),
    Mutant(
        "of calls between two beats nobody hears",
        GROUP + "begun.py",
        "return [(number, kind) for number, kind in kinds if kind != REFUSED]",
        "return []",
    ),
    Mutant(
        "who synchronizes does not wait for others to compare calls",
        GROUP + "control.py",
        "return is_compared or peer.left_after is not None or peer.ended",
        "return True",
    ),
    Mutant(
        "a call that others made before this process came to it is not compared",
        GROUP + "control.py",
        "kind = REFUSED if call in peer.refused else peer.ahead.pop(call, None)",
        "kind = REFUSED if call in peer.refused else None",
    ),
    Mutant(
        "who closes is not told of a failure",
        GROUP + "group.py",
        "if self._devices and self._settled < self._made and not was_told:",
        "if False:",
    ),
    Mutant(
        "who closes is told of a failure again",
        GROUP + "group.py",
        "if self._devices and self._settled < self._made and not was_told:",
        "if self._devices and self._settled < self._made:",
    ),
    Mutant(
        "who closes is told of what happened behind the last call",
        GROUP + "group.py",
        "        self._settled = made\n",
        "",
    ),
    Mutant(
        "arrays of other heads are launched",
        RANKS + "calls.py",
        "                if found != expected[name]:",
        "                if False:",
    ),
    Mutant(
        "the error of a set-up stays with the process that has it",
        RANKS + "together.py",
        'told = group._tell_all({"value": value, "error": error and str(error)})',
        'told = group._tell_all({"value": value or "", "error": None})',
    ),
    Mutant(
        "links that failed to meet are kept",
        RANKS + "device.py",
        "self._links = None  # anew at the next attempt",
        "pass",
    ),
    Mutant(
        "a call that stands still is not watched",
        RANKS + "device.py",
        "elif now - self._seen[1] > self.group.timeout_s:",
        "elif now - self._seen[1] > 100 * self.group.timeout_s:",
    ),
    Mutant(
        "what is said waits for a thread that may not run",
        GROUP + "control_sockets.py",
        "        self._push()\n        if self._unsent():\n            self._wake()",
        "        self._wake()",
    ),
    Mutant(
        "who has come as far is asked, too",
        GROUP + "control.py",
        "peer.told_of = int(call)",
        "peer.told_of = 0",
    ),
    Mutant(
        "calls on a GPU are not guarded",
        RANKS + "device.py",
        "        self._links.guard(self.group.timeout_s + GUARD_S)\n",
        "",
    ),
    Mutant(
        "time in which the watch could not look counts",
        RANKS + "device.py",
        "or started == completed or was_held:",
        "or started == completed:",
    ),
    Mutant(
        "who was held does not read what others said before it names itself",
        RANKS + "device.py",
        "if control.wait_for_failure(BEAT_S) is not None:",
        "if False:",
    ),
    Mutant(
        "who looked in vain says that it was held",
        RANKS + "device.py",
        "            if not was_held:\n",
        "            if False:\n",
    ),
    Mutant(
        "time in which a process did not run is that of others",
        GROUP + "control.py",
        "                    deadline += over\n",
        "                    pass\n",
    ),
    Mutant(
        "a call that was given up is taken for one that has ended",
        RANKS + "device.py",
        "        elif was_aborted:",
        "        elif False:",
    ),
    Mutant(
        "messages of another call are taken for this one's",
        RANKS + "device.py",
        "        if is_of_another:",
        "        if False:",
    ),
    Mutant(
        "a failure leaves streams waiting",
        GROUP + "group.py",
        "            device.abort()",
        "            pass",
    ),
    Mutant(
        "the old workspace is freed while others write into it",
        RANKS + "device.py",
        "        self._wait_until_idle()\n        handles",
        "        self._links.forget_workspace()\n        handles",
    ),
    Mutant(
        "who hosts what is the own affair of a program",
        RANKS + "calls.py",
        "processes = [list(ranks) for ranks in self.group._processes]",
        "processes = [list(self.group.ranks)] * len(self.group._processes)",
    ),
    Mutant(
        "each process takes the exchange that is faster for it",
        RANKS + "device.py",
        "return max(took for _, took in told)",
        "return float(program.rehearse(self._links, REHEARSALS))",
    ),
    Mutant(
        "a program stays attached to the links that were measured last",
        RANKS + "auto.py",
        "device_of(self.group, chosen, self.device).attach(key)",
        "pass",
    ),
    Mutant(
        "the slower exchange keeps its memory",
        RANKS + "auto.py",
        "if exchange != chosen and exchange not in had:",
        "if exchange != chosen and False:",
    ),
    Mutant(
        "an exchange that somebody asked for loses its program",
        RANKS + "auto.py",
        "if exchange != chosen and exchange not in had:",
        "if exchange != chosen:",
    ),
    Mutant(
        "what short messages took is believed of long ones",
        RANKS + "auto.py",
        'kind = (words, max(x["bytes"] for _, x in told).bit_length())',
        "kind = (words, 1)",
    ),
    Mutant(
        "keys that were kept of another call are taken",
        "bindings/ringside/_ranks/kept.py",
        "if theirs != mine:",
        "if theirs is None:",
    ),
    Mutant(
        "some keep keys, others do not",
        "bindings/ringside/_group/agreement.py",
        '    "keep_kv": "Keep keys and values on every rank, or on none",\n',
        "",
    ),
]
