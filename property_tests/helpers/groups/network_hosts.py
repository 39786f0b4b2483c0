"""Hosts that are network namespaces of this machine, on a switch that tests can cut.

Each has a name, an /etc/hosts, a loopback and a cable of its own, and sees nothing of the machine's
network; where a test wants it, a /dev/shm and the identity of another machine, too. Needs root.
"""

import contextlib
import ctypes
import fcntl
import os
import secrets
import select
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from group_processes import Workers, started

WHERE = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
TOOLS = {name: shutil.which(name, path=WHERE) for name in ("ip", "bridge", "unshare", "mount")}
SECONDS = 20.0  # far more than any of them takes
# What a process of a host begins with: its arguments are a name, two files, and the command.
BEGIN = """
set -e
hostname "$1"
mount --bind "$2" /etc/hosts
if [ -n "$3" ]; then
  mount --bind "$3" /proc/sys/kernel/random/boot_id
  mount -t tmpfs tmpfs /dev/shm
fi
shift 3
exec "$@"
"""
DROPS, FORWARDS = 0, 3  # states of a port of the switch
NEW_NETWORK, SET_INTERFACE, TUN, WITHOUT_HEADER = 0x40000000, 0x400454CA, 0x0001, 0x1000


def missing():
    """Why there can be no such hosts here, or nothing."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root; run these tests as root"
    if absent := [name for name, path in TOOLS.items() if path is None]:
        return f"there is no {', '.join(absent)}; install iproute2 and util-linux"
    try:
        with Network(1) as network:
            _do(*network.hosts[0].begin, "true")
    except (subprocess.SubprocessError, OSError) as error:
        said = getattr(error, "stderr", None) or str(error)
        return f"network namespaces cannot be made here: {said.strip()}"
    return ""


def _do(*command, **more):
    more = {"check": True, "capture_output": True, "text": True, "timeout": SECONDS, **more}
    return subprocess.run(command, **more)


def _configure(namespace, *lines):
    _do(TOOLS["ip"], "-n", namespace, "-batch", "-", input="\n".join(lines) + "\n")


class Host:
    """One of a network.

    Attributes:
        name: what its processes take for the name of the host.
        address, address6: of its cable.
        is_a_machine: whether it has an identity and a memory of its own.
    """

    def __init__(self, namespace, number, folder):
        self.namespace, self.number, self.name = namespace, number, f"node{number}"
        self.address, self.address6 = f"10.77.0.{number + 1}", f"fd77::{number + 1}"
        self.is_a_machine = False
        self._names, self._boot = folder / f"hosts{number}", folder / f"boot{number}"
        self._boot.write_text(f"{secrets.token_hex(16)}\n")

    def knows(self, names):
        """Writes its /etc/hosts: addresses by name."""
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in names.items())]
        self._names.write_text("\n".join(lines) + "\n")

    @property
    def begin(self):
        """What comes in front of a command that shall run there."""
        boot = str(self._boot) if self.is_a_machine else ""
        inside = ["sh", "-c", BEGIN, "sh", self.name, str(self._names), boot]
        return [TOOLS["ip"], "netns", "exec", self.namespace, TOOLS["unshare"], "-um", *inside]

    def configure(self, *lines):
        """Runs lines of `ip` there."""
        _configure(self.namespace, *lines)

    def started(self, count, **variables):
        return started(count, self.begin, **variables)


class Network:
    """So many hosts on one switch, as a context; `families` are the versions of IP they speak."""

    def __init__(self, count, families=(4, 6)):
        prefix = f"ringside-{os.getpid()}-{secrets.token_hex(3)}"
        self.families, self._switch = families, f"{prefix}-switch"
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self.hosts = [Host(f"{prefix}-{i}", i, folder) for i in range(count)]

    def __enter__(self):
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        for name in [*(host.namespace for host in self.hosts), self._switch]:
            _do(TOOLS["ip"], "netns", "del", name, check=False)
        self._folder.cleanup()

    def _build(self):
        _do(TOOLS["ip"], "netns", "add", self._switch)
        _configure(self._switch, "link add switch type bridge", "link set switch up")
        for host in self.hosts:
            _do(TOOLS["ip"], "netns", "add", host.namespace)
            port, name = f"port{host.number}", host.namespace
            _configure(self._switch, f"link add {port} type veth peer name eth0 netns {name}")
            _configure(self._switch, f"link set {port} master switch", f"link set {port} up")
            host.configure("link set lo up")
            self.plug(host)
            self.name(host)

    def name(self, host):
        """It knows all by name, itself as 127.0.1.1, as Debian has it."""
        kind = "address" if 4 in self.families else "address6"
        host.knows({x.name: getattr(x, kind) for x in self.hosts} | {host.name: "127.0.1.1"})

    def plug(self, host):
        of = {4: f"{host.address}/24", 6: f"{host.address6}/64 nodad"}
        addresses = [f"addr replace {of[family]} dev eth0" for family in self.families]
        host.configure("link set eth0 up", *addresses)

    def unplug(self, host):
        host.configure("link set eth0 down")

    def cut(self, host):
        """The switch drops what comes from a host and goes to it; the cable stays plugged in."""
        self._set_port(host, DROPS)

    def mend(self, host):
        self._set_port(host, FORWARDS)

    def _set_port(self, host, state):
        port = ["dev", f"port{host.number}", "state", str(state)]
        _do(TOOLS["bridge"], "-n", self._switch, "link", "set", *port)

    def started(self, per_host, **variables):
        """So many processes on each host, those of the first host first."""
        return Workers(x for host in self.hosts for x in host.started(per_host, **variables))


@contextlib.contextmanager
def slow_cable(hosts, delay_s):
    """Between two hosts, beside the switch; what goes in comes out later. Their addresses there."""
    with ThreadPoolExecutor(1) as thread:  # which is in one namespace after the other
        ends = [thread.submit(_end_of_cable, host.namespace).result() for host in hosts]
    for i, host in enumerate(hosts):
        host.configure("link set slow up", f"addr add 10.78.0.{i + 1}/24 dev slow")
    is_over = threading.Event()
    carrier = threading.Thread(target=_carry, args=(ends, delay_s, is_over), daemon=True)
    carrier.start()
    try:
        yield "10.78.0.1", "10.78.0.2"
    finally:
        is_over.set()
        carrier.join()
        for end in ends:
            os.close(end)


def _end_of_cable(namespace):
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as file:
        if libc.setns(file.fileno(), NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, SET_INTERFACE, struct.pack("16sH22x", b"slow", TUN | WITHOUT_HEADER))
    return end


def _carry(ends, delay_s, is_over):
    """Packets of each end to the other, in order."""
    to = dict(zip(ends, reversed(ends), strict=True))
    underway = deque()
    while not is_over.is_set():
        wait = underway[0][0] - time.monotonic() if underway else 0.05
        for end in select.select(ends, [], [], max(wait, 0.0))[0]:
            underway.append((time.monotonic() + delay_s, to[end], os.read(end, 1 << 16)))
        while underway and underway[0][0] <= time.monotonic():
            _, end, packet = underway.popleft()
            with contextlib.suppress(OSError):  # the other end is down
                os.write(end, packet)
