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
        "if place.address is not None and len(told) == 1:",
        "if place.address is not None:",
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
        GROUP + "from_torch.py",
        "return [way for way in ways if not host.is_loopback(way)]",
        'return ["127.0.0.1"]',
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
