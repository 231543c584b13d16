"""Programs of Debian: libfabric's tcp provider, UCX's tcp transport, and perftest on rddp."""

import csv
import json
import os
import re
import select
import socket
import subprocess
import time
from pathlib import Path

from .instrument import Fault

PATIENCE = 30


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Peer:
    """One of the programs in peers/ (see slices.h there): a pair of processes, slices on demand.
    `last` is the last argument of both."""

    def __init__(self, plan, name, where, last):
        binary, self.name = str(plan.target / name), name
        self.server = subprocess.Popen([*where["server_in"], binary, "server", "127.0.0.1", last], stdout=subprocess.PIPE,
                                       text=True)
        ports = self.server.stdout.readline().split()
        self.client = subprocess.Popen([*where["client_in"], binary, "client", "127.0.0.1", *ports, last],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def _slice(self, what, size, ms):
        self.client.stdin.write(f"{what} {size} {ms}\n")
        ready, _, _ = select.select([self.client.stdout], [], [], PATIENCE)
        line = self.client.stdout.readline() if ready else ""
        if not line:
            raise Fault(f"{self.name} stopped at: {what} {size} {ms}")
        return json.loads(line)

    def bandwidth(self, size, ms):
        report = self._slice("bw", size, ms)
        return report["octets"] / report["seconds"]

    def latency(self, size, ms):
        return self._slice("lat", size, ms)["p50"] / 1e9

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (self.client, self.server):
            process.kill()
            process.communicate()


def fi_pingpong(size, count, where):
    """Returns seconds one way, the mean of `count` round trips."""
    port = str(free_port())
    words = ["fi_pingpong", "-p", "tcp", "-e", "msg", "-I", str(count), "-S", str(size)]
    with _Server([*where["server_in"], *words, "-B", port], port):
        out = _run([*where["client_in"], *words, "-P", port, "127.0.0.1"])
    # bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec
    return float(out.splitlines()[-1].split()[6]) / 1e6


def ucx(test, size, count, where):
    """Returns the fields of ucx_perftest's last line: latency in µs, bandwidth in
    MiB/s, messages a second."""
    port = str(free_port())
    environment = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo", "UCX_LOG_LEVEL": "error"}
    with _Server([*where["server_in"], "ucx_perftest", "-p", port], port, environment):
        words = ["ucx_perftest", "127.0.0.1", "-p", port, "-t", test, "-s", str(size), "-n", str(count)]
        out = _run([*where["client_in"], *words, "-w", str(max(10, count // 20)), "-v"], environment)
    names, *values = csv.reader(line for line in out.splitlines() if "," in line)
    return {name: float(value) for name, value in zip(names, values[-1])}


def ucx_bandwidth(test, size, count, where):
    return ucx(test, size, count, where)["overall_bw"] * (1 << 20)


def ucx_latency(size, count, where):
    return ucx("tag_lat", size, count, where)["50.0_percentile_lat"] / 1e6


def perftest(plan, test, size, count, where):
    """Returns the columns of the one line of results that a program of perftest prints, both ends
    on librddp_verbs.so."""
    port = str(free_port())
    words = [str(plan.target / "release" / "rddp"), "run", "--verbs", "--", test, "-R", "-F", "-p", port,
             "-s", str(size), "-n", str(count)]
    with _Server([*where["server_in"], *words], port):
        out = _run([*where["client_in"], *words, "127.0.0.1"])
    columns = [line.split() for line in out.splitlines() if re.match(rf"\s*{size}\s", line)]
    if len(columns) != 1:
        raise Fault(f"{test} of {size} octets: {out[-300:]}")
    return [float(value) for value in columns[0]]


def perftest_bandwidth(plan, test, size, count, where):
    # #bytes #iterations peak average[MiB/s] messages
    return perftest(plan, test, size, count, where)[3] * (1 << 20)


def perftest_latency(plan, test, size, count, where):
    # #bytes #iterations least most typical[µs] ...
    return perftest(plan, test, size, count, where)[4] / 1e6


class _Server:
    """A program that listens for one client and then ends."""

    def __init__(self, words, port, environment=None):
        self.process = subprocess.Popen(words, env=os.environ | (environment or {}), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        self.port = int(port)

    def __enter__(self):
        """Waits until the program listens, without connecting: the first to connect is its
        client."""
        for _ in range(500):
            if self._is_listening():
                return self
            time.sleep(0.01)
        raise Fault(f"{self.process.args[0]} does not listen")

    def _is_listening(self):
        # Local address, remote address, state: 0A is LISTEN.
        listening = re.compile(rf":{self.port:04X} [0-9A-F]+:0000 0A ")
        return any(listening.search(Path(table).read_text()) for table in ("/proc/net/tcp", "/proc/net/tcp6"))

    def __exit__(self, *_):
        if self.process.poll() is None:
            try:
                self.process.wait(1)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


def _run(words, environment=None):
    try:
        done = subprocess.run(words, env=os.environ | (environment or {}), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise Fault(f"{words[0]} did not end: {' '.join(words)}") from None
    if done.returncode != 0 or not done.stdout.strip():
        raise Fault(f"{' '.join(words)}: {done.stdout.strip()}")
    return done.stdout
