"""Sockets in DDPMODE over message size beside TCP: figure 6 of the OSU report."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from ..plan import KIB, MIB, apart, medians, rate_name, ratios, size_name, time_name, together
from ..result import Item
from .kind import RowKind
from .passthrough import window_of

SIZES = (1, 4, 16, 64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB)
SLICE_MS = 20
# Microseconds that the report's user-level stack added to TCP's latency.
REPORTED_US = 100
CRC = {"CRC on": True, "CRC off": False}


@dataclass
class Way:
    name: str
    wait: str
    where: Callable
    # True if two threads of each process make its calls, as in the report.
    threads: bool = False
    # True if the charts over all sizes have space for it.
    charted: bool = True


WAYS = [
    Way("polling", "poll", apart),
    Way("blocking", "sleep", together),
    Way("threads", "sleep", together, threads=True),
    Way("blocking on two processors", "sleep", apart, charted=False),
    Way("threads on two processors", "sleep", apart, threads=True, charted=False),
]


def measure(plan, row):
    lines = {}
    for way in WAYS:
        if way.threads and not has_threads(plan, way):
            row.problem = f"{way.name}: this build does not know RDDP_PROGRESS=threads"
            continue
        for size in SIZES[::5] if plan.quick else SIZES:
            measure_size(plan, row, lines, way, size)
    lines["ddpmode-added", "the report's"] = [[size, REPORTED_US / 1e6] for size in (SIZES[0], SIZES[-1])]
    row.series = [{"chart": chart, "line": line, "points": points} for (chart, line), points in lines.items()]


def has_threads(plan, way):
    with plan.instrument(**where_of(plan, way)) as ends:
        ends.open(op="ddp", wait=way.wait).latency(SLICE_MS)
        return ends.threads() > 1


def where_of(plan, way):
    progress = ("RDDP_PROGRESS=threads",) if way.threads else ()
    return {end: (*words, *plan.preloaded, *progress) for end, words in way.where().items()}


def measure_size(plan, row, lines, way, size):
    common = {"size": size, "wait": way.wait, "depth": window_of(size)}
    with plan.instrument(**where_of(plan, way)) as ends:
        lanes = [ends.open(op="tcp", **common),
                 *(ends.open(op="ddp", crc=crc, **common) for crc in CRC.values())]
        latencies = plan.turns([lambda lane=lane: lane.latency(SLICE_MS) for lane in lanes])
        rates = plan.turns([lambda lane=lane: lane.window(SLICE_MS) for lane in lanes])
    for place, crc in enumerate(CRC, 1):
        name = f"{way.name}, {crc}"
        row.items.append(latency_item(name, size, [(taken[0], taken[place]) for taken in latencies]))
        # A chart with a logarithmic axis has no place for negative values.
        note(lines, "ddpmode-added", name, size, max(1e-7, row.items[-1].median / 1e6), is_charted(way, crc))
        row.items.append(bandwidth_item(name, size, [(taken[0], taken[place]) for taken in rates]))
    for name, latency, rate in zip(("TCP", *CRC), medians(latencies), medians(rates)):
        charted = is_charted(way, name)
        line = f"TCP, {way.name}" if name == "TCP" else f"{way.name}, {name}"
        note(lines, "ddpmode-latency", line, size, latency, charted)
        note(lines, "ddpmode-bandwidth", line, size, rate, charted)


def is_charted(way, name):
    return way.charted and (name != "CRC off" or way.wait == "poll")


def note(lines, chart, line, size, value, charted):
    if charted:
        lines.setdefault((chart, line), []).append([size, value])


def latency_item(name, size, pairs):
    sides = dict(zip(("TCP", "DDPMODE"), map(time_name, medians(pairs))))
    sides["ratio"] = f"{statistics.median(ratios(pairs)):.2f}"
    added = [(ours - base) * 1e6 for base, ours in pairs]
    return Item(f"latency added, {size_name(size)}, {name}", added, unit="µs", at_most=REPORTED_US, sides=sides,
                group=f"latency, {name}")


def bandwidth_item(name, size, pairs):
    sides = dict(zip(("TCP", "DDPMODE"), map(rate_name, medians(pairs))))
    return Item(f"bandwidth, {size_name(size)}, {name}", ratios(pairs), sides=sides, group=f"bandwidth, {name}")


METHOD = f"""The same program on plain TCP sockets and on sockets in DDPMODE, in one pair of processes with the library; it is
`setsockopt(DDPMODE)` that tells them apart. Polling: non-blocking sockets, `recv` again and again, each end kept on a processor
of its own. Blocking: blocking sockets, `recv` and `send` that sleep, both ends on one processor; and each on its own, where the
time to wake a processor covers most. Threads: the same, and the calls on sockets in DDPMODE are made by two threads of the process, to which they are
posted through a UNIX socket (the report's design; `RDDP_PROGRESS=threads`). Latency: half of there and back. Bandwidth: a window of messages (64, or 1 MiB of them, but at least four) answered by one octet. Each write is one Send of iWARP, or several
above 64 KiB. Slices of {SLICE_MS} ms. The goal is what the report's user-level stack added to TCP's latency in 2005, on other
machines: {REPORTED_US} µs."""

ROWS = [RowKind("ddpmode", "DDPMODE over message size, beside TCP", METHOD, measure, page="sockets")]
