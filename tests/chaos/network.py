"""One network namespace per node, joined by a bridge; any direction between two nodes can be cut.

May touch:  the network namespace it runs in (a private one, see `enter`).   Must not touch: the host's network.
Invariants: a cut drops silently, one way only, for new and open connections alike; healing restores the same addresses.
Read next:  nodes.py.

    10.77.0.254  br0, the clients           10.77.0.<node>  eth0 of that node, in its own namespace

How a direction is cut: the sender gets a permanent neighbour entry for the receiver with a hardware address that nobody
has. Its frames leave and no one takes them, as if the cable lost them: no error, no reset. This needs neither nftables nor
netem, which small kernels and containers lack; for want of netem a node is delayed by relay.py, between its link and br0.
The namespaces have no names; they live as long as the process that holds each, and all of them die with the run's own PID
namespace.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence

CLIENTS = 254
"""The host number of the clients: the harness itself, on the bridge."""
_NOBODY = "02:00:de:ad:00:00"
_MARK = "BARNABAS_CHAOS_NAMESPACE"
_PROBE_TIMEOUT_S = 20


def address_of(node_id: int) -> str:
    """IPv4 address of a node (or of CLIENTS)."""
    return f"10.77.0.{node_id}"


def _hardware_address(node_id: int) -> str:
    return f"02:00:0a:4d:00:{node_id:02x}"


def unshare_command() -> list[str]:
    """Runs what follows as PID 1 of its own PID, mount and network namespaces; it dies with this process."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *as_root, "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]


def why_not_permitted() -> str | None:
    """None where namespaces can be made; else one line that says what is missing."""
    for tool, package in (("unshare", "util-linux"), ("nsenter", "util-linux"), ("ip", "iproute2")):
        if shutil.which(tool) is None:
            return f"network namespaces need {tool}: sudo apt-get install {package}"
    trial = "ip link add trial0 type bridge && ip link add trial1 type veth peer name trial2"
    done = subprocess.run(
        [*unshare_command(), "sh", "-c", trial], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False
    )
    if done.returncode == 0:
        return None
    words = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return f"network namespaces are not permitted here (run as root, or allow user namespaces): {words}"


def enter(arguments: Sequence[str], *, module: str = "tests.chaos") -> None:
    """Replace this process by one that runs `python -m <module>` inside private namespaces; returns when inside."""
    if os.environ.get(_MARK) == "1":
        return
    reason = why_not_permitted()
    if reason is not None:
        print(f"chaos: {reason}", file=sys.stderr)
        raise SystemExit(2)
    os.environ[_MARK] = "1"
    command = [*unshare_command(), sys.executable, "-m", module, *arguments]
    sys.stdout.flush()
    os.execvp(command[0], command)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


class Network:
    """The bridge and the namespaces of the nodes. Only inside private namespaces."""

    def __init__(self) -> None:
        if os.environ.get(_MARK) != "1" or os.getpid() != 1:
            raise RuntimeError("a Network is made only inside the private namespaces that network.enter() makes")
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        self._cuts: set[tuple[int, int]] = set()
        self._relays: dict[int, subprocess.Popen[str]] = {}
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "br0", "address", _hardware_address(CLIENTS), "type", "bridge")
        _run("ip", "addr", "add", f"{address_of(CLIENTS)}/24", "dev", "br0")
        _run("ip", "link", "set", "br0", "up")

    def add(self, node_id: int) -> None:
        """Make a node's namespace and plug it in; does nothing when it is there."""
        if node_id in self._holders:
            return
        holder = subprocess.Popen(
            ["unshare", "--net", "--", "sh", "-c", "echo ready; exec sleep infinity"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert holder.stdout is not None
        holder.stdout.readline()  # from here on the namespace is there
        self._holders[node_id] = holder
        peer = ("peer", "name", "eth0", "netns", str(holder.pid), "address", _hardware_address(node_id))
        _run("ip", "link", "add", f"node{node_id}", "type", "veth", *peer)
        _run("ip", "link", "set", f"node{node_id}", "master", "br0", "up")
        self._run_inside(
            node_id,
            f"ip link set lo up; ip addr add {address_of(node_id)}/24 dev eth0; ip link set eth0 up",
        )

    def inside(self, node_id: int) -> list[str]:
        """What to put before a command so that it runs in the node's namespace, as the same process."""
        return ["nsenter", f"--net=/proc/{self.holder(node_id)}/ns/net", "--"]

    def holder(self, node_id: int) -> int:
        """The id of a process in the node's namespace."""
        return self._holders[node_id].pid

    def cut(self, sender: int, receiver: int) -> None:
        """From now on nothing that `sender` (a node) sends reaches `receiver`; the other direction works."""
        self._cuts.add((sender, receiver))
        self._run_inside(sender, f"ip neigh replace {address_of(receiver)} lladdr {_NOBODY} dev eth0 nud permanent")

    def cut_outbound(self, sender: int, receivers: Iterable[int]) -> None:
        """Cut `sender` to each of `receivers`, one way."""
        for receiver in receivers:
            self.cut(sender, receiver)

    def cut_both_ways(self, one: int, others: Iterable[int]) -> None:
        """Cut `one` (a node) off each of `others` (nodes), in both directions."""
        for other in others:
            self.cut(one, other)
            self.cut(other, one)

    def delay(self, node_id: int, *, delay_s: float, jitter_s: float, loss: float, seed: int) -> None:
        """From now on every frame to and from a node is late, or lost with this probability. Undone by `undelay`."""
        devices = (f"tapo{node_id}", f"tapi{node_id}")
        words = ["--delay", str(delay_s), "--jitter", str(jitter_s), "--loss", str(loss), "--seed", str(seed)]
        relay = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.relay", *devices, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert relay.stdout is not None
        if relay.stdout.readline().strip() != "ready":
            relay.wait()
            raise RuntimeError("the relay did not start: /dev/net/tun must be there, and permitted")
        self._relays[node_id] = relay
        _run("ip", "link", "add", f"brd{node_id}", "type", "bridge")
        _run("ip", "link", "set", f"brd{node_id}", "up")
        for device, bridge in zip(devices, ("br0", f"brd{node_id}"), strict=True):
            _run("ip", "link", "set", device, "master", bridge, "up")
        _run("ip", "link", "set", f"node{node_id}", "master", f"brd{node_id}")

    def undelay(self, node_id: int) -> tuple[int, int]:
        """Plug the node in again; how many frames were relayed and lost."""
        relay = self._relays.pop(node_id)
        _run("ip", "link", "set", f"node{node_id}", "master", "br0")
        relay.terminate()
        said, _ = relay.communicate(timeout=_PROBE_TIMEOUT_S)
        _run("ip", "link", "del", f"brd{node_id}")
        passed, lost = said.split()
        return int(passed), int(lost)

    def heal(self) -> None:
        """Undo every cut."""
        for sender, receiver in sorted(self._cuts):
            true_address = _hardware_address(receiver)
            self._run_inside(
                sender, f"ip neigh replace {address_of(receiver)} lladdr {true_address} dev eth0 nud reachable"
            )
        self._cuts.clear()

    def close(self) -> None:
        """End the holders; the namespaces go with them, some time later."""
        for relay in self._relays.values():
            relay.kill()
            relay.communicate()
        for node_id in self._relays:
            _run("ip", "link", "del", f"brd{node_id}")
        self._relays.clear()
        for node_id, holder in self._holders.items():
            if holder.poll() is None:  # else the link has gone with its namespace
                _run("ip", "link", "del", f"node{node_id}")
            holder.kill()
            holder.wait()
            if holder.stdout is not None:
                holder.stdout.close()
        self._holders.clear()
        _run("ip", "link", "del", "br0")

    def _run_inside(self, node_id: int, script: str) -> None:
        _run(*self.inside(node_id), "sh", "-ec", script)
