"""Sockets in DDPMODE over message size beside TCP: figure 6 of the OSU report."""

from dataclasses import dataclass

from ..plan import KIB, MIB, apart, medians, rate_name, ratios, size_name, time_name
from ..result import Item
from .kind import RowKind
from .passthrough import window_of

SIZES = (1, 4, 16, 64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB)
WAITS = {"polling": "poll", "blocking": "sleep"}
SLICE_MS = 20
# What the report's user-level stack added to TCP's latency, in microseconds.
REPORTED_US = 100


@dataclass
class Kind:
    name: str
    # Of the lane, beyond what all have.
    options: dict


def kinds_of(how):
    return [Kind(f"{how}, CRC on", {"crc": True}), Kind(f"{how}, CRC off", {"crc": False})]


def measure(plan, row):
    lines = {}
    for how, wait in WAITS.items():
        for size in SIZES[::5] if plan.quick else SIZES:
            measure_size(plan, row, lines, how, wait, size)
    for chart in ("ddpmode-added",):
        lines[chart, "the report's"] = [[SIZES[0], REPORTED_US / 1e6], [SIZES[-1], REPORTED_US / 1e6]]
    row.series = [{"chart": chart, "line": line, "points": points} for (chart, line), points in lines.items()]


def measure_size(plan, row, lines, how, wait, size):
    kinds = kinds_of(how)
    where = {end: (*words, *plan.preloaded) for end, words in apart().items()}
    with plan.instrument(**where) as ends:
        common = {"size": size, "wait": wait, "depth": window_of(size)}
        lanes = [ends.open(op="tcp", **common), *(ends.open(op="ddp", **common, **kind.options) for kind in kinds)]
        latencies = plan.turns([lambda lane=lane: lane.latency(SLICE_MS) for lane in lanes])
        rates = plan.turns([lambda lane=lane: lane.window(SLICE_MS) for lane in lanes])
    note(lines, "ddpmode-latency", f"TCP, {how}", size, medians(latencies)[0])
    note(lines, "ddpmode-bandwidth", f"TCP, {how}", size, medians(rates)[0])
    for place, kind in enumerate(kinds, 1):
        row.items.append(latency_item(kind, size, [(taken[0], taken[place]) for taken in latencies]))
        row.items.append(bandwidth_item(kind, size, [(taken[0], taken[place]) for taken in rates]))
        note(lines, "ddpmode-latency", kind.name, size, medians(latencies)[place])
        note(lines, "ddpmode-bandwidth", kind.name, size, medians(rates)[place])
        # A chart with a logarithmic axis has no room for less than nothing.
        note(lines, "ddpmode-added", kind.name, size, max(1e-7, row.items[-2].median / 1e6))


def note(lines, chart, line, size, value):
    lines.setdefault((chart, line), []).append([size, value])


def latency_item(kind, size, pairs):
    tcp, ddp = medians(pairs)
    sides = {"TCP": time_name(tcp), "DDPMODE": time_name(ddp), "ratio": f"{medians([(0, of) for of in ratios(pairs)])[1]:.2f}"}
    added = [(ours - base) * 1e6 for base, ours in pairs]
    return Item(f"latency added, {size_name(size)}, {kind.name}", added, unit="µs", at_most=REPORTED_US, sides=sides,
                group=f"latency, {kind.name}")


def bandwidth_item(kind, size, pairs):
    sides = dict(zip(("TCP", "DDPMODE"), map(rate_name, medians(pairs))))
    return Item(f"bandwidth, {size_name(size)}, {kind.name}", ratios(pairs), sides=sides, group=f"bandwidth, {kind.name}")


METHOD = f"""The same program on plain TCP sockets and on sockets in DDPMODE, in one pair of processes with the library; it is
`setsockopt(DDPMODE)` that tells them apart. Each end is kept on a processor of its own. Polling: non-blocking sockets, `recv`
again and again; blocking: blocking sockets, `recv` and `send` that sleep. Latency: half of there and back. Bandwidth: a
window of messages (64, or 1 MiB of them, but at least four) answered by one octet. Each write is one Send of iWARP, or several
above 64 KiB. Slices of {SLICE_MS} ms. The reach is what the report's user-level stack added to TCP's latency in 2005, on other
machines: {REPORTED_US} µs."""

ROWS = [RowKind("ddpmode", "DDPMODE over message size, beside TCP", METHOD, measure, page="sockets")]
