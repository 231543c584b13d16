"""iperf over SDP beside DDPMODE and TCP: the program that the paper measured with."""

import os
import re
import resource
import socket
import statistics
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..instrument import Fault
from ..plan import KIB, MIB, rate_name, ratios, size_name
from ..result import Item
from .kind import RowKind

SIZES = (KIB, 8 * KIB, 64 * KIB, 256 * KIB, MIB, 8 * MIB)
CONNECTIONS = (1, 2, 4, 8)
SECONDS = 0.4
ROUNDS = 4
WAYS = {
    "TCP": None,
    "DDPMODE": ("RDDP_FAMILY=ddp",),
    "SDP, threshold infinity": ("RDDP_FAMILY=sdp", "RDDP_SDP_SOURCE_THRESHOLD=none"),
    "SDP, threshold 0": ("RDDP_FAMILY=sdp", "RDDP_SDP_SOURCE_THRESHOLD=0", "RDDP_SDP_SINK_THRESHOLD=0"),
}


def measure(plan, row):
    lines = {}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(server(plan, words)) for name, words in WAYS.items()}
        for count in CONNECTIONS[::3] if plan.quick else CONNECTIONS:
            for size in SIZES[::3] if plan.quick else SIZES:
                slices = [lambda one=one: one.take(count, size) for one in servers.values()]
                taken = plan.turns(slices, 2 if plan.quick else ROUNDS)
                row.items += items_of(count, size, taken)
                for place, name in enumerate(WAYS):
                    rate = statistics.median(one[place][0] for one in taken)
                    lines.setdefault((f"iperf-{count}", name), []).append([size, rate])
    row.series = [{"chart": chart, "line": line, "points": points} for (chart, line), points in lines.items()]


def items_of(count, size, taken):
    what = f"{count} connection{'s' if count > 1 else ''}, {size_name(size)}"
    names = list(WAYS)
    for place, name in enumerate(names[2:], 2):
        for kind, (at, show) in {"bandwidth": (0, rate_name), "processor time": (1, lambda s: f"{s * 1e9:.2f} s/GB")}.items():
            pairs = [(one[0][at], one[place][at]) for one in taken]
            sides = {label: show(statistics.median(one[number][at] for one in taken)) for number, label in enumerate(names)}
            yield Item(f"{name}: {kind}, {what}", ratios(pairs), sides=sides, group=f"{name}: {kind}")


class Server:
    def __init__(self, words, process, port):
        self.words, self.process, self.port = words, process, port

    def take(self, count, size):
        """Runs one client; returns octets a second, and seconds of processor time an octet."""
        before = self.cost() + of_children()
        command = [*self.words, "iperf", "-c", "127.0.0.1", "-p", str(self.port), "-P", str(count), "-l", str(size),
                   "-t", str(SECONDS), "-y", "C"]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        spent = self.cost() + of_children() - before
        octets, rate = parse(asked.stdout, count)
        if asked.returncode != 0 or not octets:
            raise Fault(f"iperf: {asked.stdout[-300:]}{asked.stderr[-300:]}")
        return rate, spent / octets

    def cost(self):
        """Returns seconds of processor time of all threads so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def parse(said, count):
    """Returns octets and octets a second of all connections together; zeros if a report is
    missing. iperf's own sum is left out: slices below a second have none."""
    lines = [line.split(",") for line in said.splitlines() if re.fullmatch(r"[\d.,:+-]+", line)]
    lines = [line for line in lines if len(line) > 8 and line[5] != "-1"]
    if len(lines) != count:
        return 0, 0.0
    return sum(int(line[7]) for line in lines), sum(int(line[8]) for line in lines) / 8


@contextmanager
def server(plan, words):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = () if words is None else (*plan.preloaded, *words)
    process = subprocess.Popen([*words, "iperf", "-s", "-B", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL)
    try:
        one = Server(words, process, port)
        await_answer(one)
        yield one
    finally:
        process.terminate()
        process.wait()


def await_answer(one):
    for _ in range(50):
        try:
            return one.take(1, KIB)
        except Fault:
            time.sleep(0.1)
    raise Fault("iperf does not answer")


def of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


METHOD = f"""iperf 2, its server and its client both with the library (TCP: both without), `-P` connections each with a thread of its own, `-l`
octets a call, slices of {SECONDS} s that take turns. CRC is on, as DDPMODE and SDP come. Processor time is that of both
programs, in the kernel's ticks."""

ROWS = [RowKind("iperf", "iperf by SDP, threshold 0 and infinity, beside DDPMODE and TCP", METHOD, measure, packages=("iperf",),
                page="sdp")]
