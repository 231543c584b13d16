"""The ways of serving one file, by turns: processor time of both ends, throughput, system calls and
copies, for each size, in memory and not, with checksums and without, on loopback and over veth."""

import contextlib
import itertools
import os
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import namespaces, network, residency
from .instrument import Fault
from .plan import KIB, MIB
from .ways_of_files import BASE, WAYS, Server, calls

GIB = 1 << 30
SIZES = {"4 KiB": 4 * KIB, "64 KiB": 64 * KIB, "1 MiB": MIB, "1 GiB": GIB}
NETWORKS = ("loopback", "veth")


@dataclass(frozen=True)
class Cell:
    size: str
    cold: bool
    sums: bool
    net: str

    @property
    def name(self):
        return f"{self.net}, {self.size}, {'cold' if self.cold else 'warm'}, {'' if self.sums else 'no '}checksum"

    @property
    def octets(self):
        return SIZES[self.size]

    @property
    def unit(self):
        """Returns what calls and time are told for: what a file takes says more of short ones."""
        return ("a file", self.octets) if self.octets < MIB else ("a MiB", MIB)

    @property
    def ways(self):
        return [way for way in WAYS if way.sums in (None, self.sums)]


ALL = [Cell(*parts) for parts in
       ((size, cold, sums, net) for net, size, cold, sums in itertools.product(NETWORKS, SIZES, (False, True), (True, False)))]
# One of each kind.
QUICK = [Cell("4 KiB", False, True, "loopback"), Cell("64 KiB", True, True, "loopback"), Cell("1 MiB", False, False, "veth")]


@contextlib.contextmanager
def network_of(net):
    """Makes a network. Returns the server's address in it, and the words before the commands of a
    server and of a client."""
    with network.under(network.usual()):
        if net == "loopback":
            yield "127.0.0.1", ((), ())
            return
        with namespaces.veth() as pair:
            for namespace in pair:
                namespaces.without_offload(namespace)
            yield namespaces.ADDRESSES[0], tuple(map(namespaces.inside, pair))


def destination():
    """Returns a folder in memory for what clients get. A device would not do: rddp writes to one in
    small pieces, as to a pipe."""
    return tempfile.TemporaryDirectory(dir="/dev/shm")


class Bench:
    """Files, and what they are served by."""

    def __init__(self, programs, folder, files, rounds):
        self.programs, self.folder, self.files, self.rounds = programs, Path(folder), files, rounds

    def names(self, cell):
        """Returns the files of a cell, which are made, and are on the disk."""
        folder = self.folder / cell.size.replace(" ", "")
        folder.mkdir(exist_ok=True)
        names = [str(number) for number in range(1 if cell.octets == GIB else self.files)]
        for name in names:
            path = folder / name
            if path.exists():
                continue
            block = os.urandom(min(cell.octets, 64 * MIB))
            with open(path, "wb") as file:
                for turn in range(cell.octets // len(block)):
                    # No two alike.
                    file.write(block[turn:] + block[:turn])
                os.fsync(file.fileno())
        return folder, names

    def turns(self, cell, address, inside):
        """Returns by the names of ways what their slices took, ways taking turns."""
        folder, names = self.names(cell)
        found = {way.name: {"server": [], "client": [], "rate": [], "strategies": []} for way in cell.ways}
        with contextlib.ExitStack() as stack:
            servers = {way: stack.enter_context(Server(self.programs, way, folder, address, inside))
                       for way in cell.ways if not (way.keeps and cell.cold)}
            # Of long files once for a network.
            for way in cell.ways if cell.octets < GIB or cell.sums and not cell.cold else ():
                with self.server(servers, way, folder, address, inside) as server:
                    self.check(server, folder / names[0])
            for number in range(self.rounds):
                for way in cell.ways[::-1] if number % 2 else cell.ways:
                    with self.server(servers, way, folder, address, inside) as server:
                        self.slice(server, folder, names, cell, found[way.name])
        for way in cell.ways:
            # A file that came in the answer was read, whatever the way.
            kernel = BASE.copies if found[way.name]["strategies"] == ["answer"] else way.copies
            found[way.name]["copies"] = kernel + found[way.name].pop("copied")
        return found

    def server(self, servers, way, folder, address, inside):
        """Returns the server of a way: one that keeps files in memory ends after each slice."""
        if way in servers:
            return contextlib.nullcontext(servers[way])
        return Server(self.programs, way, folder, address, inside)

    def check(self, server, path):
        """Compares the octets that a client gets."""
        with destination() as out:
            server.gets(path.name, f"{out}/got")
            if subprocess.run(["cmp", path, f"{out}/got"], check=False).returncode:
                raise Fault(f"{server.way.name}: other octets than the file's")

    def slice(self, server, folder, names, cell, found):
        wall = client = 0
        for name in names:
            (residency.cool if cell.cold else residency.warm)(folder / name)
        before, copied = server.processor_time(), server.copied()
        with destination() as out:
            for name in names:
                seconds, used, strategy = server.gets(name, f"{out}/{name}", cell.sums)
                wall, client = wall + seconds, client + used
                if strategy and strategy not in found["strategies"]:
                    found["strategies"].append(strategy)
        octets = cell.octets * len(names)
        found["copied"] = (server.copied() - copied) / octets
        found["server"].append((server.processor_time() - before) / octets * 1e9)
        found["client"].append(client / octets * 1e9)
        found["rate"].append(octets / wall)

    def calls(self, cell, address, inside):
        """Returns by the names of ways the system calls of the server and of the client, for an
        octet. What a server does before its first client and behind its last is not among them."""
        folder, names = self.names(cell)
        found = {}
        for way in cell.ways:
            counts = []
            for some in ([], names):
                client_calls = 0
                trace = [str(self.folder / f"{end}.trace") for end in ("server", "client")]
                with Server(self.programs, way, folder, address, inside, trace[0]) as server, destination() as out:
                    for name in some:
                        residency.warm(folder / name)
                        server.gets(name, f"{out}/{name}", cell.sums, trace[1])
                        client_calls += calls(trace[1])
                counts.append((calls(trace[0]), client_calls))
            octets = cell.octets * len(names)
            found[way.name] = [(counts[1][end] - counts[0][end]) / octets for end in (0, 1)]
        return found


def measure(programs, cells, files, rounds, with_calls, top):
    """Measures cells. Yields each, with what its ways took, by their names."""
    with tempfile.TemporaryDirectory(dir=top) as folder:
        bench = Bench(programs, folder, files, rounds)
        for net in NETWORKS:
            of_net = [cell for cell in cells if cell.net == net]
            if not of_net:
                continue
            with network_of(net) as (address, inside):
                for cell in of_net:
                    if cell.cold and not rounds:
                        continue
                    ways = bench.turns(cell, address, inside) if rounds else {}
                    if with_calls and not cell.cold:
                        for name, counts in bench.calls(cell, address, inside).items():
                            ways.setdefault(name, {})["calls"] = counts
                    yield cell, ways


def ratio(ways, name, ends=("server",)):
    """Returns the median of a way's processor time as a multiple of TCP's, slices of one round
    being compared."""
    sums = [[sum(values) for values in zip(*(ways[of][end] for end in ends))] for of in (name, BASE.name)]
    return statistics.median(ours / base for ours, base in zip(*sums))
