"""Which host a process is on, judged by what can be shared there, and by what others reach it.

A name says little: containers and images have the same one, and a host often knows its own name as
127.0.1.1. So processes share a loopback where they share a network namespace of a kernel, and files
in memory where they share /dev/shm of a kernel.
"""

from __future__ import annotations

import fcntl
import ipaddress
import secrets
import socket
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path

from ringside._core import InvalidArgument

SHARED = Path("/dev/shm")
BOOT = Path("/proc/sys/kernel/random/boot_id")
NETWORK = Path("/proc/self/ns/net")
INTERFACES_6 = Path("/proc/net/if_inet6")
ASK_ADDRESS = 0x8915  # SIOCGIFADDR of Linux


def memory() -> str:
    """Alike in processes that share files in memory; of this process alone where nobody knows."""
    try:
        return f"{BOOT.read_text().strip()}/{SHARED.stat().st_dev}"
    except OSError:
        return secrets.token_hex(16)


def network() -> str:
    """Alike in processes that reach each other over the loopback."""
    try:
        return f"{BOOT.read_text().strip()}/{NETWORK.stat().st_ino}"
    except OSError:  # a system without namespaces
        return f"{socket.gethostname()}/{uuid.getnode():012x}"


def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is by itself that of the own host on every host.

    >>> is_loopback("127.0.1.1"), is_loopback("::1"), is_loopback("localhost")
    (True, True, True)
    >>> is_loopback("10.0.0.1"), is_loopback("node0")
    (False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_name(host: str) -> bool:
    """Whether that is no address.

    >>> is_name("node0"), is_name("10.0.0.1"), is_name("fd00::1")
    (True, False, False)
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def meaning(host: str) -> str:
    """Of a name on this host, in words; nothing of an address.

    >>> meaning("127.0.0.1")
    ''
    """
    if not is_name(host):
        return ""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return ", which is no name on this host"
    means = list(dict.fromkeys(str(address[0]) for *_, address in found))
    itself = ": itself" if all(map(is_loopback, means)) else ""
    return f", which is {', '.join(means)} on this host{itself}"


def with_port(host: str, port: int) -> str:
    """As ringside.init takes it.

    >>> with_port("node0", 80), with_port("fd00::1", 80)
    ('node0:80', '[fd00::1]:80')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def addresses() -> list[str]:
    """Of the interfaces of this host, but for loopbacks and what is known on one cable only."""
    found = dict.fromkeys([*_addresses_4(), *_addresses_6()])
    return [address for address in found if not is_loopback(address)]


def facing(host: str) -> str | None:
    """The address by which this host would call another one; None where it has no way."""
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(where)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return None


def ways(main: str) -> list[str]:
    """By which other hosts may reach this one: where it faces one that all know, then any."""
    own = facing(main)
    faces_main = main if own is None or is_loopback(own) else own
    every = dict.fromkeys([faces_main, *addresses(), socket.gethostname()])
    found = [way for way in every if not is_loopback(way)]
    if not found:
        raise InvalidArgument(
            "this host, which hosts rank 0, has no address but loopbacks; expected one by which "
            "other hosts reach it. Connect it to their network, or run all ranks on it"
        )
    return found


def _addresses_4() -> Iterator[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                told = fcntl.ioctl(probe, ASK_ADDRESS, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # it has none, or this is no Linux
            yield socket.inet_ntoa(told[20:24])


def _addresses_6() -> Iterator[str]:
    try:
        lines = INTERFACES_6.read_text().splitlines()
    except OSError:
        return
    for address, _, _, scope, *_ in map(str.split, lines):
        if int(scope, 16) == 0:
            yield socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address))
