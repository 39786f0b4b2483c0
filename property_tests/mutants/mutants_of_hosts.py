"""Faults in groups over several hosts: who is on which, where others reach it, who hears why."""

from mutants_list import Mutant

GROUP = "bindings/ringside/_group/"
MUTANTS_OF_HOSTS = [
    Mutant(
        "who came over the loopback sends others to their own",
        GROUP + "first_call.py",
        'return (theirs if is_one_host else EVERYWHERE), ""',
        "return own, own",
    ),
    Mutant(
        "one of several addresses that is another's ends the search",
        GROUP + "first_call.py",
        "return len(told) == 1",
        "return True",
    ),
    Mutant(
        "names are listened at over IPv4 only",
        GROUP + "door.py",
        "if socket.has_dualstack_ipv6():",
        "if False:",
    ),
    Mutant(
        "an address that the host has not is tried until the deadline",
        GROUP + "door.py",
        "if error.errno == errno.EADDRNOTAVAIL:",
        "if False:",
    ),
    Mutant(
        "a silent host is waited for beyond the deadline",
        GROUP + "door.py",
        "seconds = min(most_s, max(self.left(), LEAST_S))",
        "seconds = most_s",
    ),
    Mutant(
        "who says something while others are missing is no longer waited with",
        GROUP + "door.py",
        "if any(has_ended(other) or given_up(other) for other in others):",
        "if any(has_ended(other) or _waiting(other) for other in others):",
    ),
    Mutant(
        "why a rank gave up is lost with what it has not read",
        GROUP + "rendezvous.py",
        "        take_leave(self.controls.values())\n",
        "",
    ),
    Mutant(
        "hosts of one name are one host",
        GROUP + "host.py",
        'return f"{BOOT.read_text().strip()}/{NETWORK.stat().st_ino}"',
        "return socket.gethostname()",
    ),
    Mutant(
        "containers of one machine share their memory",
        GROUP + "host.py",
        'return f"{BOOT.read_text().strip()}/{SHARED.stat().st_dev}"',
        'return f"{BOOT.read_text().strip()}/{SHARED.is_dir()}"',
    ),
    Mutant(
        "memory is shared where nobody knows the host",
        GROUP + "host.py",
        "return secrets.token_hex(16)",
        "return socket.gethostname()",
    ),
    Mutant(
        "jobs alike on two hosts meet by one file",
        GROUP + "meeting_file.py",
        '{host.network()} {job}"',
        '{job}"',
    ),
    Mutant(
        "the first host tells others its loopback",
        GROUP + "host.py",
        "found = [way for way in every if not is_loopback(way)]",
        'found = ["127.0.0.1"]',
    ),
    Mutant(
        "a key that all were given travels",
        GROUP + "rendezvous.py",
        "key = None if self.place.key else self.door.key",
        "key = self.door.key",
    ),
    Mutant(
        "a key that only one was given is no matter",
        GROUP + "first_call.py",
        "if (found.key is None) == bool(place.key):",
        "if True:",
    ),
    Mutant(
        "a notice in torch's store counts as one left over, whoever holds another key",
        GROUP + "torch_store.py",
        "is_of_one_host = outlives_jobs = False",
        "is_of_one_host, outlives_jobs = False, True",
    ),
    Mutant(
        "who meets at torch's store calls rank 0 by the loopback",
        GROUP + "torch_store.py",
        "return host.ways(self.address[0])",
        'return ["127.0.0.1"]',
    ),
    Mutant(
        "rank 0 listens on its loopback, where torch's store sends those of all hosts",
        GROUP + "rendezvous.py",
        'where = "127.0.0.1" if board.is_of_one_host else EVERYWHERE',
        'where = "127.0.0.1"',
    ),
    Mutant(
        "a notice stays in torch's store when all have met",
        GROUP + "rendezvous.py",
        "                board.take_down()\n",
        "                pass\n",
    ),
    Mutant(
        "who does not answer in the place of torch's store is waited for",
        GROUP + "torch_store.py",
        "thread.join(min(ANSWER_S, max(seconds, LEAST_S)))",
        "thread.join()",
    ),
    Mutant(
        "a store that cannot be reached is given up at once",
        GROUP + "rendezvous.py",
        "if self.door.left() <= 0:\n                    raise InvalidArgument(",
        "if True:\n                    raise InvalidArgument(",
    ),
    Mutant(
        "torchrun is taken to serve a store where it says that it does not",
        GROUP + "launch.py",
        'environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":',
        'environment.get("TORCHELASTIC_USE_AGENT_STORE"):',
    ),
    Mutant(
        "a script around a program counts as what started the job",
        GROUP + "launch.py",
        "        while rank in Path(",
        "        while False and rank in Path(",
    ),
    Mutant(
        "the first host of a step is a range of them",
        GROUP + "launch.py",
        'return re.sub(r"\\[([^\\],-]*)[^\\]]*\\]", r"\\1", first)',
        'return first.replace("[", "").replace("]", "")',
    ),
    Mutant(
        "steps of a job share a port",
        GROUP + "launch.py",
        'for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))',
        'for name in ("SLURM_JOB_ID",))',
    ),
    Mutant(
        "groups of some processes of a job need no names, and mix",
        GROUP + "rendezvous.py",
        "if len(processes) < self.place.processes:",
        "if False:",
    ),
    Mutant(
        "a process of a group of another name is let in",
        GROUP + "rendezvous.py",
        'hello["version"] == __version__ and hello["name"] != self.place.name:',
        "False:",
    ),
    Mutant(
        "groups of all names meet by one file",
        GROUP + "place.py",
        'MeetingFile(f"{launched.job}|{place.name}")',
        "MeetingFile(launched.job)",
    ),
    Mutant(
        "who is sent away calls again for ever",
        GROUP + "rendezvous.py",
        "            if self.door.left() <= 0:\n                why = (",
        "            if False:\n                why = (",
    ),
    Mutant(
        "words of a group that failed end the next",
        GROUP + "rendezvous.py",
        'if "ranks" not in hello:',
        "if False:",
    ),
    Mutant(
        "another version is let in",
        GROUP + "rendezvous.py",
        'if hello["version"] != __version__:',
        "if False:",
    ),
    Mutant(
        "processes of all hosts have the same numbers",
        GROUP + "launcher.py",
        "first = processes * (nodes.rank or 0)",
        "first = 0",
    ),
    Mutant(
        "a copy of a machine counts as the same machine",
        "bindings/ringside/_ranks/choice.py",
        'if not Path(x["words"]).exists():',
        "if False:",
    ),
]
