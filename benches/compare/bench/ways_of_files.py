"""Ways of serving one file: rddp's strategies, and three of plain TCP, each with two commands."""

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from .instrument import Fault

PATIENCE = 60
# The clock of a process's processor time, whoever asks (clock_getcpuclockid(3)).
PROCESS = 2


@dataclass(frozen=True)
class Way:
    name: str
    # Options of `rddp serve`; None for peers/serve_file.c.
    options: tuple | None = None
    # Copies of each octet by the server's kernel: out of the page cache, and into TCP's buffers.
    copies: int = 2
    # Whether it has a checksum of its own: True and False are left out where the other is measured.
    sums: bool | None = None
    # Whether the server keeps files mapped, so that they stay in memory.
    keeps: bool = False

    @property
    def is_tcp(self):
        return self.options is None


WAYS = [
    Way("TCP read"),
    Way("TCP read, CRC", sums=True),
    Way("TCP sendfile", copies=0),
    Way("naive", ("--strategy", "naive")),
    Way("slots", ("--strategy", "slots")),
    Way("pipelined", ("--strategy", "pipelined")),
    Way("map", ("--strategy", "map", "--immutable"), copies=1, keeps=True),
    Way("region", ("--strategy", "region")),
    Way("auto", ()),
]
BASE = WAYS[0]
# What peers/serve_file.c calls its ways.
PEER = {"TCP read": "read", "TCP read, CRC": "crc", "TCP sendfile": "sendfile"}


@dataclass(frozen=True)
class Programs:
    rddp: Path
    peer: Path


class Server:
    """A server of a way, in the network that `inside` says (words before a command), for clients
    in another. With `traced`, a file, its system calls are counted there."""

    def __init__(self, programs, way, folder, address, inside=((), ()), traced=None):
        self.programs, self.way, self.address, self.inside, self.traced = programs, way, address, inside, traced
        if way.is_tcp:
            words = [programs.peer, "server", address, PEER[way.name], folder]
        else:
            words = [programs.rddp, "serve", folder, "--bind", address, "--port", "0", "--json", *way.options]
        trace = ["strace", "-f", "-c", "-o", traced] if traced else []
        self.process = subprocess.Popen([*inside[0], *trace, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)
        line = self.process.stdout.readline()
        if not line:
            raise Fault(f"the server of {way.name} does not start")
        self.at = f"{address}:{line.strip()}" if way.is_tcp else json.loads(line)["listening"]

    def processor_time(self):
        """Returns the seconds of processor time of the server, threads that have ended included."""
        return time.clock_gettime((~self.process.pid << 3) | PROCESS)

    def copied(self):
        """Returns the octets that rddp has copied in the server's memory."""
        if self.way.is_tcp:
            return 0
        words = [self.programs.rddp, "stat", str(self.process.pid), "--json"]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        # Nothing is counted of a server before its first connection.
        return json.loads(done.stdout)["processes"][0]["total"]["octets_copied"] if done.returncode == 0 else 0

    def client(self, name, destination, sums):
        """Returns the words of a command that gets a file."""
        host, _, port = self.at.rpartition(":")
        if self.way.is_tcp:
            return [*self.inside[1], self.programs.peer, "client", host, port, PEER[self.way.name], name, destination]
        check = "crc32c" if sums else "none"
        return [*self.inside[1], self.programs.rddp, "get", "-q", "--checksum", check, f"{self.at}/{name}", destination]

    def gets(self, name, destination, sums=True, traced=None):
        """Gets a file. Returns seconds, seconds of the client's processor, and the strategy."""
        words = self.client(name, destination, sums)
        if traced:
            words = [*self.inside[1], "strace", "-f", "-c", "-o", traced, *words[len(self.inside[1]):]]
        begun = time.monotonic()
        client = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(client.pid, 0)
        seconds = time.monotonic() - begun
        client.returncode = os.waitstatus_to_exitcode(status)
        if client.returncode:
            raise Fault(f"{self.way.name}: the client ended with {client.returncode}: {words}")
        strategy = "" if self.way.is_tcp else self.told(name)
        return seconds, used.ru_utime + used.ru_stime, strategy

    def told(self, name):
        """Returns the strategy by which the server says that it has given a file."""
        line = json.loads(self.process.stdout.readline())
        if line.get("file") != name:
            raise Fault(f"{self.way.name}: the server says {line}")
        return line["strategy"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pid = self.process.pid
        if self.traced:
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        os.kill(pid, signal.SIGTERM)
        try:
            self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


def calls(path):
    """Returns the number of system calls in a summary of strace's."""
    lines = Path(path).read_text().splitlines()
    return int(lines[-1].split()[3]) if lines else 0
