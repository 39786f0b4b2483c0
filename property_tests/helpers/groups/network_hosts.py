"""Hosts that are network namespaces of this machine, on a switch that tests can cut.

Each has a name, an /etc/hosts, a loopback and one cable, and nothing of the machine's own network;
where they want, a /dev/shm and an identity of a machine of their own. Needs root and iproute2.
"""

import os
import secrets
import shutil
import subprocess

from group_processes import Workers, started

WHERE = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
TOOLS = {name: shutil.which(name, path=WHERE) for name in ("ip", "bridge", "unshare", "mount")}
# What a process of a host begins with: its arguments are a name, files, and the command.
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


def _do(*command, **more):
    return subprocess.run(
        [TOOLS[command[0]], *command[1:]], check=True, capture_output=True, text=True, **more
    )


def missing():
    """Why there can be no such hosts here, or nothing."""
    if os.name != "posix" or os.geteuid() != 0:
        return "network namespaces need root; run the tests as root to have them"
    if absent := [name for name, path in TOOLS.items() if path is None]:
        return f"there is no {', '.join(absent)}; install iproute2 and util-linux"
    try:
        with Network(1) as network:
            network.hosts[0].run("true")
    except (subprocess.CalledProcessError, OSError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip()
        return f"network namespaces cannot be made here: {said}"
    return ""


class Host:
    """One of a network: `name`, `address`, `address6`."""

    def __init__(self, namespace, number, folder, name=None):
        self.namespace, self.number, self.name = namespace, number, name or f"node{number}"
        self.address, self.address6 = f"10.77.0.{number + 1}", f"fd77::{number + 1}"
        self.names = folder / f"hosts{number}"
        self.identity = folder / f"boot{number}"
        self.is_a_machine = False  # with an identity and a memory of its own

    def knows(self, names):
        """What its /etc/hosts says: address by name."""
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in names.items())]
        self.names.write_text("\n".join(lines) + "\n")

    @property
    def begin(self):
        """What comes in front of a command that shall run there."""
        identity = str(self.identity) if self.is_a_machine else ""
        inside = ["sh", "-c", BEGIN, "sh", self.name, str(self.names), identity]
        return [TOOLS["ip"], "netns", "exec", self.namespace, TOOLS["unshare"], "-um", *inside]

    def run(self, *command, **more):
        return subprocess.run([*self.begin, *command], check=True, capture_output=True, **more)

    def started(self, count, **variables):
        return started(count, before=self.begin, **variables)


class Network:
    """Hosts on one switch, as a context; `families` are the versions of IP that they speak."""

    def __init__(self, count, folder=None, families=(4, 6)):
        self.prefix = f"ringside-{os.getpid()}-{secrets.token_hex(3)}"
        self.switch = f"{self.prefix}-switch"
        self.families = families
        self.folder = folder
        self.count = count
        self.hosts = []

    def __enter__(self):
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _build(self):
        import tempfile
        from pathlib import Path

        self._own = tempfile.TemporaryDirectory()
        folder = Path(self._own.name)
        _do("ip", "netns", "add", self.switch)
        self._in(self.switch, "link add br0 type bridge", "link set br0 up")
        for number in range(self.count):
            host = Host(f"{self.prefix}-{number}", number, folder)
            _do("ip", "netns", "add", host.namespace)
            self.hosts.append(host)
            self._in(
                self.switch,
                f"link add port{number} type veth peer name eth0 netns {host.namespace}",
                f"link set port{number} master br0 up",
            )
            addresses = {4: f"{host.address}/24", 6: f"{host.address6}/64 nodad"}
            self._in(
                host.namespace,
                "link set lo up",
                *(f"addr add {addresses[family]} dev eth0" for family in self.families),
                "link set eth0 up",
            )
            host.identity.write_text(f"{secrets.token_hex(16)}\n")
        for host in self.hosts:
            key = "address" if 4 in self.families else "address6"
            own = {host.name: "127.0.1.1"}  # as Debian has it
            host.knows({**{x.name: getattr(x, key) for x in self.hosts}, **own})

    def __exit__(self, *error):
        for name in [*(host.namespace for host in self.hosts), self.switch]:
            subprocess.run([TOOLS["ip"], "netns", "del", name], capture_output=True)
        self._own.cleanup()

    def _in(self, namespace, *lines):
        _do("ip", "-n", namespace, "-batch", "-", input="\n".join(lines) + "\n")

    def cut(self, host):
        """The switch drops what the host sends and what is for it; its cable stays plugged in."""
        self._port(host, 0)

    def mend(self, host):
        self._port(host, 3)

    def _port(self, host, state):
        command = ["link", "set", "dev", f"port{host.number}", "state", str(state)]
        _do("bridge", "-n", self.switch, *command)

    def unplug(self, host):
        self._in(host.namespace, "link set eth0 down")

    def started(self, per_host, **variables):
        """So many processes on each host, those of the first host first."""
        return Workers(w for host in self.hosts for w in host.started(per_host, **variables))
