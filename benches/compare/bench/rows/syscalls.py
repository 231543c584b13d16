"""System calls for a message, as strace counts them."""

import re
import tempfile
from pathlib import Path

from ..instrument import Instrument
from ..plan import KIB
from ..result import CannotMeasure, Item
from .bandwidth import HEADER, spec, tcp
from .kind import RowKind

LANES = {
    "TCP 64 KiB": tcp(64 * KIB, "sleep"),
    "Write 64 KiB, CRC on": spec("write", 64 * KIB, "sleep"),
    "Send 64 KiB, CRC on": spec("send", 64 * KIB, "sleep"),
    "Read 64 KiB, CRC on": spec("read", 64 * KIB, "sleep"),
    "TCP 64 octets, one at a time": {"op": "tcp", "size": 64, "wait": "sleep", "header": HEADER},
    "Send 64 octets, 64 at a time": {"op": "send", "size": 64, "wait": "sleep", "depth": 64, "batch": 64, "window": 1024},
    "Send 64 octets, one at a time": {"op": "send", "size": 64, "wait": "sleep", "depth": 64, "batch": 1, "window": 1024},
    "Send 64 octets, one at a time, a wait before each poll":
        {"op": "send", "size": 64, "wait": "first", "depth": 64, "batch": 1, "window": 1024},
}


# Messages there and back between ends that sleep.
PINGS = {
    "TCP 64 octets": {"op": "tcp", "size": 64, "wait": "sleep", "header": HEADER},
    "Send 64 octets, asleep on the completion channel": {"op": "send", "size": 64, "wait": "channel"},
    "Send 64 octets, asleep in `CompletionQueue::wait`": {"op": "send", "size": 64, "wait": "sleep"},
    "Send 64 octets, a wait before each poll": {"op": "send", "size": 64, "wait": "first"},
}


def measure(plan, row):
    measure_lanes(plan, row, LANES, "bandwidth", "calls a message")
    measure_lanes(plan, row, {f"{name}, there and back": lane for name, lane in PINGS.items()}, "latency", "calls there and back")


def measure_lanes(plan, row, lanes, kind, unit):
    for name, lane in lanes.items():
        for end in ("active", "passive"):
            calls, messages = counted(plan, lane, end, kind=kind)
            most = sorted(calls.items(), key=lambda call: -call[1])[:4]
            sides = {call: f"{count / messages:.3f}" for call, count in most}
            total = sum(calls.values()) / messages
            row.items.append(Item(f"{name}, {end} end", [total], unit=unit, sides=sides))
            if lane["wait"] == "first":
                receives = calls.get("recvfrom", 0) / messages
                row.items.append(Item(f"{name}, {end} end: recvfrom", [receives], unit=unit, at_most=1.1))


def counted(plan, lane, end, where=None, kind="bandwidth"):
    """Counts the system calls of one end by name, less those of setting up, and the messages, or
    with `latency` the round trips. `where` both ends are: an instrument's options."""
    where = where or {}
    traced = "server_in" if end == "passive" else "client_in"
    with tempfile.TemporaryDirectory() as folder:
        totals = []
        for ms in (0, plan.ms):
            path = Path(folder) / f"calls-{ms}"
            words = ("strace", "-f", "-c", "-o", str(path))
            ends = Instrument(plan.binary, **where | {traced: (*words, *where.get(traced, ()))})
            try:
                report = ends.open(**lane).slice(kind, ms)
                times = report["active"]["latency_ns"]
                messages = times["count"] if times else report["messages"]
                ends.finish()
            finally:
                ends.close()
            totals.append((parse(path.read_text()), messages))
    (before, few), (after, many) = totals
    calls = {name: max(0, count - before.get(name, 0)) for name, count in after.items()}
    if not calls or many <= few:
        raise CannotMeasure("strace may not trace here")
    return calls, many - few


def parse(table):
    """Parses lines of strace's table: % time, seconds, usecs/call, calls, [errors,] name."""
    lines = re.findall(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(\w+)$", table, re.MULTILINE)
    return {name: int(count) for count, name in lines if name != "total"}


METHOD = """`strace -f -c` on one end at a time, less what the same connection costs without traffic. Traced programs
are slow, so the other end often sleeps: compare the counts, not their times."""

ROWS = [RowKind("syscalls", "System calls for a message (information)", METHOD, measure, packages=("strace",))]
