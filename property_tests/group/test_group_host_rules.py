"""Which host a process is on, where others reach it, where it looks for them: each rule by itself.

Tests of whole groups over several hosts are in test_group_hosts.py, and need root.
"""

import contextlib
import os
import socket
import sys
import threading
import time

import network_hosts
import pytest
import ringside as rs
from group_processes import free_port
from ringside._group import first_call, from_torch, host, meeting_file, wire
from ringside._group import rendezvous as rendezvous_module
from ringside._group.door import EVERYWHERE, Door, given_up, has_ended
from ringside._group.launcher import Nodes, run
from ringside._group.place import Place, place_of
from ringside._ranks.choice import require_shared

KEY = b"of this test"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are of Linux")
IPV6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this system has no IPv6")


def place(**more):
    return Place(**{"ranks": (1,), "size": 2, "timeout_s": 1.0, "key": KEY, **more})


# --- which host it is


@LINUX
def test_hosts_of_one_name_are_told_apart_and_one_host_is_not(monkeypatch, tmp_path):
    first = host.network(), host.memory()
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    assert (host.network(), host.memory()) == first
    boot = tmp_path / "boot_id"
    boot.write_text("of another machine\n")
    monkeypatch.setattr(host, "BOOT", boot)
    assert host.network() != first[0] and host.memory() != first[1]


@LINUX
def test_containers_of_one_machine_share_neither_loopback_nor_memory(monkeypatch, tmp_path):
    first = host.network(), host.memory()
    namespace = tmp_path / "net"
    namespace.touch()
    monkeypatch.setattr(host, "NETWORK", namespace)
    monkeypatch.setattr(host, "SHARED", type(tmp_path)("/proc"))  # another file system
    assert host.network() != first[0] and host.memory() != first[1]


def test_where_nobody_knows_the_host_memory_is_shared_with_nobody(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "BOOT", tmp_path / "absent")
    assert host.memory() != host.memory()
    assert host.network() == host.network()


def test_a_copy_of_a_machine_with_other_files_is_refused(tmp_path):
    (tmp_path / "0").touch()
    told = [((rank,), {"words": str(tmp_path / str(rank))}) for rank in range(2)]
    require_shared(told[:1])
    with pytest.raises(
        rs.Unsupported, match=r'rank 1, whose files .* Nearest supported: exchange="n'
    ):
        require_shared(told)


@LINUX
def test_jobs_alike_on_two_hosts_have_two_files(monkeypatch, tmp_path):
    monkeypatch.setattr(meeting_file.tempfile, "tempdir", str(tmp_path))
    mine = meeting_file.path_of("job")
    assert mine == meeting_file.path_of("job") != meeting_file.path_of("another")
    monkeypatch.setattr(host, "network", lambda: "another host")
    assert meeting_file.path_of("job") != mine


# --- where others reach it


class Connected:
    """A socket to the process of rank 0."""

    def __init__(self, own, theirs):
        self.getsockname, self.getpeername = lambda: (own, 1), lambda: (theirs, 2)


@pytest.mark.parametrize(
    ("own", "theirs", "told", "listens"),
    [
        ("10.0.0.2", "10.0.0.1", "node0", ("10.0.0.2", "10.0.0.2")),  # the network of the job
        ("10.0.0.1", "10.0.0.1", "10.0.0.1", ("10.0.0.1", "10.0.0.1")),
        ("fd00::2", "fd00::1", "node0", ("fd00::2", "fd00::2")),
        ("127.0.0.1", "127.0.1.1", "node0", (EVERYWHERE, "")),  # others come by another way
        ("127.0.0.1", "127.0.0.1", "127.0.0.1", ("127.0.0.1", "")),  # there are no others
        ("127.0.0.1", "127.0.0.1", "localhost", ("127.0.0.1", "")),
        ("127.0.0.1", "127.0.0.5", "127.0.0.5", ("127.0.0.5", "")),
        ("::1", "::1", "::1", ("::1", "")),
    ],
)
def test_a_process_listens_where_it_faces_rank_0(own, theirs, told, listens):
    found = first_call.where_to_listen(Connected(own, theirs), place(address=(told, 80)))
    assert found == listens


def test_processes_that_meet_by_a_file_listen_on_the_loopback_only():
    connected = Connected("127.0.0.1", "127.0.0.1")
    assert first_call.where_to_listen(connected, place(board=meeting_file.MeetingFile("a"))) == (
        "127.0.0.1",
        "",
    )


@IPV6
def test_names_are_listened_at_over_both_protocols_and_addresses_over_theirs():
    door = Door(KEY, 1.0)
    with door.listener(("a-name", 0)) as listener:
        port = listener.getsockname()[1]
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, port), timeout=5).close()
    with door.listener(("127.0.0.1", 0)) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
    with door.listener(("localhost", 0)) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_an_address_that_the_host_has_not_is_refused_at_once():
    door, begin = Door(KEY, 20.0), time.monotonic()
    with pytest.raises(
        rs.InvalidArgument, match=r"192\.0\.2\.1 is no address of this host, which ho"
    ):
        door.listener(("192.0.2.1", 0))
    assert time.monotonic() - begin < 5


@LINUX
def test_own_addresses_are_those_that_can_be_listened_at():
    for address in host.addresses():
        assert not host.is_loopback(address)
        Door(KEY, 1.0).listener((address, 0)).close()
    assert host.facing("127.0.0.1") == "127.0.0.1"
    assert host.facing("no such name.invalid") is None


def test_names_are_explained_and_addresses_are_not():
    assert host.meaning("10.0.0.1") == host.meaning("fd00::1") == ""
    assert host.meaning("localhost").endswith(" on this host: itself")
    assert "127.0.0.1" in host.meaning("localhost") or "::1" in host.meaning("localhost")


# --- where it looks for rank 0


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("node0:80", ("node0", 80)),
        ("[fd00::1]:80", ("fd00::1", 80)),
        ("fd00::1:80", r'expected an address of IPv6 in brackets. Write "\[fd00::1\]:80"'),
        ("[fe80::1%eth0]:80", "each host knows on its own cable only"),
        ("[FE80::1]:80", "each host knows on its own cable only"),
        ("node0:0", 'expected "host:port"'),
    ],
)
def test_addresses_are_of_either_protocol_and_known_to_all_hosts(address, found):
    more = {"ranks_per_process": 1, "key": "k", "name": "", "timeout_s": None, "environment": {}}
    if isinstance(found, tuple):
        assert place_of(0, 2, address=address, **more).address == found
        assert host.with_port(*found) == address
    else:
        with pytest.raises(rs.InvalidArgument, match=found):
            place_of(0, 2, address=address, **more)


@contextlib.contextmanager
def answering(answer, address=("127.0.0.1", 0)):
    """The port of an address of this host where `answer(connection)` is called for who comes."""
    with socket.create_server(address) as listener:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    answer(listener.accept()[0])

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_whoever_greets_otherwise_is_known_at_once():
    with answering(lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2")) as port:
        begin = time.monotonic()
        with pytest.raises(wire.WrongKey):
            Door(KEY, 20.0).call(("127.0.0.1", port))
        assert time.monotonic() - begin < 5


def test_whoever_is_silent_is_waited_for_until_the_deadline_and_not_taken_for_another():
    kept = []
    with answering(kept.append) as port:
        begin = time.monotonic()
        with pytest.raises(
            rs.RankFailure, match=rf"not there within 1 s \(127.0.0.1:{port}: timed"
        ):
            first_call.call_first(place(address=("127.0.0.1", port)), Door(KEY, 1.0))
        assert 1.0 <= time.monotonic() - begin < 5


@LINUX  # of which 127.0.0.2 is a loopback, too
def test_of_several_addresses_that_of_the_key_is_taken_once_it_is_there():
    late = contextlib.ExitStack()

    def ours(connection):
        wire.challenge_as_server(connection, KEY)

    def another(connection):
        with contextlib.suppress(wire.WrongKey):
            wire.challenge_as_server(connection, b"another")

    port = free_port()
    threading.Timer(0.3, lambda: late.enter_context(answering(ours, ("127.0.0.1", port)))).start()
    with late, answering(another, ("127.0.0.2", port)):
        also = place(address=("127.0.0.2", port), also=("127.0.0.3", "127.0.0.1"))
        found = first_call.call_first(also, Door(KEY, 20.0))
        assert found.getpeername() == ("127.0.0.1", port)
        found.close()


def test_the_first_host_tells_torch_s_processes_all_its_addresses(monkeypatch):
    ways, _, _ = from_torch._meeting_point(["a", "a"])
    assert ways == ["127.0.0.1"]
    monkeypatch.setattr(host, "addresses", lambda: ["10.0.0.1", "fd00::1"])
    monkeypatch.setattr(socket, "gethostname", lambda: "node0")
    monkeypatch.setattr(host, "facing", lambda main: {"node0.a": "127.0.0.1"}.get(main, "10.0.0.9"))
    wanted = {
        "node0.a": ["node0.a", "10.0.0.1", "fd00::1", "node0"],  # it is this host
        "node7": ["10.0.0.9", "10.0.0.1", "fd00::1", "node0"],
    }
    for main, expected in wanted.items():
        monkeypatch.setenv("MASTER_ADDR", main)
        assert from_torch._meeting_point(["a", "b"])[0] == expected
    monkeypatch.delenv("MASTER_ADDR")
    monkeypatch.setattr(host, "facing", lambda main: "127.0.0.1")
    assert from_torch._meeting_point(["a", "b"])[0] == ["10.0.0.1", "fd00::1", "node0"]


def test_a_host_that_no_other_reaches_is_told_so(monkeypatch):
    monkeypatch.setattr(host, "addresses", lambda: [])
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    with pytest.raises(rs.InvalidArgument, match="has no address but loopbacks; expected one by"):
        host.ways("localhost")


# --- who says why


def test_why_others_gave_up_is_found_behind_what_they_said_before_and_stays_to_be_heard():
    ours, theirs = socket.socketpair()
    ours.settimeout(10.0)  # of which nothing is waited
    begin = time.monotonic()
    assert given_up(ours) is None and not has_ended(ours)
    beats, why = [{"t": "beat"}] * 3, {"t": "abort", "why": "no way", "ranks": [1]}
    data = b"".join(map(wire.encoded, [*beats, why]))
    theirs.sendall(data[:-5])
    assert given_up(ours) is None and not has_ended(ours)
    theirs.sendall(data[-5:])
    theirs.close()
    for _ in range(2):
        assert given_up(ours).arguments()[:2] == ("no way", (1,)) and not has_ended(ours)
    assert [wire.receive(ours) for _ in range(4)] == [*beats, why]
    assert given_up(ours) is None and has_ended(ours)
    assert time.monotonic() - begin < 5
    ours.close()


def test_who_gives_up_ends_its_words_and_reads_those_of_others_before_it_closes():
    """Else a reset, which closing before would be, overtakes what it has said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    wire.send(theirs, {"t": "beat"})
    meeting = rendezvous_module.Meeting(place())
    meeting.controls[0] = ours
    meeting._tell_all(rs.RankFailure("no way", [1]))
    ours.setblocking(False)
    with pytest.raises(BlockingIOError):
        ours.recv(1)
    assert wire.receive(theirs) == {"t": "abort", "why": "no way", "ranks": [1]}
    assert has_ended(theirs)
    ours.close(), theirs.close()


def test_a_rank_that_never_comes_is_missed_though_others_say_something_all_the_time():
    ours, theirs = socket.socketpair()
    wire.send(theirs, {"t": "beat"})
    with Door(KEY, 20.0).listener(("127.0.0.1", 0)) as listener:
        with pytest.raises(rs.RankFailure, match="rank 1 did not come within"):
            Door(KEY, 0.5).admit(listener, [1], [ours])


# --- tests of several hosts


def test_where_there_can_be_no_namespaces_the_tests_of_hosts_say_why(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert network_hosts.missing() == "network namespaces need root; run these tests as root"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setitem(network_hosts.TOOLS, "ip", None)
    assert network_hosts.missing() == "there is no ip; install iproute2 and util-linux"
    monkeypatch.setitem(network_hosts.TOOLS, "ip", sys.executable)  # which makes none
    told = {name: path or "/bin/true" for name, path in network_hosts.TOOLS.items()}
    monkeypatch.setattr(network_hosts, "TOOLS", told)
    assert network_hosts.missing().startswith("network namespaces cannot be made here: ")


# --- ringside run


@pytest.mark.parametrize(
    ("nodes", "key", "message"),
    [
        (Nodes(0), "k", "--nnodes 0; expected at least 1"),
        (Nodes(2), "k", "--nnodes 2 and no --node-rank; expected 0 to 1. Give every host another"),
        (Nodes(2, 2, "a"), "k", "--nnodes 2 and --node-rank 2; expected 0 to 1"),
        (Nodes(1, 1), "k", "--nnodes 1 and --node-rank 1; expected 0 to 0"),
        (Nodes(2, 0), "k", "--nnodes 2 without --master-addr; expected both, alike on all hosts"),
        (Nodes(2, 0, "a"), "", "--nnodes 2 without RINGSIDE_KEY; .* `openssl rand -hex 32` prints"),
        (Nodes(2, 0, "a", 70000), "k", "--master-port 70000; expected 1 to 65535"),
    ],
)
def test_hosts_of_a_job_that_cannot_be_are_refused(monkeypatch, nodes, key, message):
    monkeypatch.setenv("RINGSIDE_KEY", key)
    with pytest.raises(rs.InvalidArgument, match=message):
        run(["false"], 2, nodes)


TELL = (
    "import os; told = ','.join(os.environ['RINGSIDE_' + x] for x in {names}); "
    "open({to}, 'a').write(told + chr(10))"
)
NAMES = ("RANK", "LOCAL_RANK", "SIZE", "RENDEZVOUS", "KEY")


@pytest.mark.parametrize("address", ["node0", "fd00::1", "[fd00::1]"])
def test_processes_of_a_host_are_numbered_after_those_of_the_hosts_before(
    monkeypatch, tmp_path, address
):
    monkeypatch.setenv("RINGSIDE_KEY", "secret")
    to = tmp_path / "told"
    command = [sys.executable, "-c", TELL.format(names=NAMES, to=repr(str(to)))]
    assert run(command, 2, Nodes(3, 1, address, 99)) == 0
    meets = "node0:99" if address == "node0" else "[fd00::1]:99"
    told = sorted(to.read_text().splitlines())
    assert told == [f"{2 + i},{i},6,{meets},secret" for i in (0, 1)]


def test_a_failure_is_named_by_its_number_in_the_job_and_where_it_came_from(monkeypatch, capsys):
    monkeypatch.setenv("RINGSIDE_KEY", "secret")
    fail = "import sys, os; sys.exit(5 * (os.environ['RINGSIDE_LOCAL_RANK'] == '1'))"
    assert run([sys.executable, "-c", fail], 2, Nodes(2, 1, "a")) == 5
    told = capsys.readouterr().err
    assert "process 3 of 4 exited with code 5" in told and "because" not in told
    note = f"from ringside._group.launched import *; note_failed_by_others(); {fail}"
    assert run([sys.executable, "-c", note], 2, Nodes(2, 1, "a")) == 5
    assert "3 of 4 exited with code 5 because of another host" in capsys.readouterr().err


def test_a_port_in_use_is_waited_for_and_then_refused():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(rs.InvalidArgument, match=f"127.0.0.1:{port} cannot be listened at"):
            Door(KEY, 0.2).listener(("127.0.0.1", port))
