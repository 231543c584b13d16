"""Sockets by SDP beside DDPMODE and TCP: figures 5 to 11 of the paper on zero-copy SDP."""

import statistics

from ..plan import KIB, MIB, apart, medians, rate_name, ratios, size_name, time_name, together
from ..result import Item
from .kind import RowKind
from .passthrough import window_of

SHORT = (1, 4, 16, 64, 256)
SIZES = (*(KIB << step for step in range(0, 13, 2)), 8 * MIB)
CONNECTIONS = (1, 2, 4, 8)
SLICE_MS = 20
ALL = 0
NONE = -1

DDPMODE = {"op": "ddp", "crc": False}
SDP = {"op": "sdp", "crc": False}
# The ways that are compared, each with CRC off.
WAYS = {
    "TCP": {"op": "tcp"},
    "DDPMODE": DDPMODE,
    "in-call BCopy": SDP | {"source_threshold": NONE},
    "private BCopy": SDP | {"source_threshold": NONE, "bcopy": True},
    "ZCopy": SDP | {"source_threshold": ALL, "sink_threshold": ALL},
    "default": SDP,
}


def names(quick):
    return SIZES[::4] if quick else SIZES


def measure_bandwidth(plan, row):
    """Measures bandwidth and processor time over size, for each number of connections."""
    lines = {}
    for count in CONNECTIONS[::3] if plan.quick else CONNECTIONS:
        for size in names(plan.quick):
            with plan.instrument(**preloaded(plan)) as ends:
                lanes = [ends.open(size=size, wait="sleep", connections=count, threads=True, **way) for way in WAYS.values()]
                taken = plan.turns([lambda lane=lane: slice_of(lane, plan.ms) for lane in lanes])
            rates, costs, copies = ([tuple(one[place] for one in each) for each in taken] for place in range(3))
            for name, rate, cost, copied in zip(WAYS, medians(rates), medians(costs), medians(copies)):
                note(lines, f"sdp-bandwidth-{count}", name, size, rate)
                note(lines, f"sdp-cpu-{count}", name, size, cost * 1e9)
                note(lines, f"sdp-copies-{count}", name, size, copied)
            row.items += bandwidth_items(count, size, rates, costs)
    row.series = [{"chart": chart, "line": line, "points": points} for (chart, line), points in lines.items()]


def slice_of(lane, ms):
    """Returns octets a second, seconds of processor time an octet of both ends together, and copies
    an octet: the kernel's two, and those that the ends have counted."""
    report = lane.slice("bandwidth", ms)
    ends = report["active"], report["passive"]
    cpu_s, copied = (sum(end[what] for end in ends) for what in ("cpu_s", "copied"))
    return report["octets"] / report["seconds"], cpu_s / report["octets"], 2 + copied / report["octets"]


def bandwidth_items(count, size, rates, costs):
    at = list(WAYS)
    what = f"{count} connection{'s' if count > 1 else ''}, {size_name(size)}"
    column = {name: [one[place] for one in rates] for place, name in enumerate(at)}
    cost = {name: [one[place] for one in costs] for place, name in enumerate(at)}
    sides = {name: rate_name(statistics.median(values)) for name, values in column.items()}

    def ratio(values, ours, base):
        return ratios(list(zip(values[base], values[ours])))

    unit = "x DDPMODE"
    yield Item(f"in-call BCopy, {what}", ratio(column, "in-call BCopy", "DDPMODE"), unit=unit, sides=sides, group="in-call BCopy",
               at_least=0.9 if size in (64 * KIB, MIB) else None)
    yield Item(f"ZCopy, {what}", ratio(column, "ZCopy", "DDPMODE"), unit=unit, sides=sides, group="ZCopy",
               at_least=0.85 if (count, size) == (8, MIB) else None)
    yield Item(f"processor time of ZCopy, {what}", ratio(cost, "ZCopy", "private BCopy"), unit="x private BCopy",
               sides=sides_of_cost(cost), group="processor time", at_most=0.75 if (count, size) == (8, MIB) else None)
    better = [max(pair) for pair in zip(column["in-call BCopy"], column["ZCopy"])]
    yield Item(f"default, {what}", ratios(list(zip(better, column["default"]))), unit="x the better way", sides=sides,
               at_least=0.95, group="default")


def sides_of_cost(cost):
    return {name: f"{statistics.median(values) * 1e9:.2f} s/GB" for name, values in cost.items()}


def measure_latency(plan, row):
    lines = {}
    for how, wait, where in (("polling", "poll", apart), ("blocking", "sleep", together)):
        for size in (SHORT + names(False)[:6])[:: 5 if plan.quick else 1]:
            with plan.instrument(**preloaded(plan, where())) as ends:
                lanes = [ends.open(size=size, wait=wait, depth=window_of(size), **way) for way in WAYS.values()]
                taken = plan.turns([lambda lane=lane: lane.latency(SLICE_MS) for lane in lanes])
            for name, value in zip(WAYS, medians(taken)):
                note(lines, f"sdp-latency-{how}", name, size, value)
            row.items.append(latency_item(how, size, taken))
    row.series = [{"chart": chart, "line": line, "points": points} for (chart, line), points in lines.items()]


def latency_item(how, size, taken):
    at = list(WAYS).index
    pairs = [(one[at("DDPMODE")], one[at("default")]) for one in taken]
    sides = {name: time_name(value) for name, value in zip(WAYS, medians(taken))}
    reach = 1.1 if size <= 256 else None
    return Item(f"latency, {size_name(size)}, {how}", ratios(pairs), unit="x DDPMODE", at_most=reach, sides=sides,
                group=f"latency, {how}")


def preloaded(plan, where=None):
    where = where or {"server_in": (), "client_in": ()}
    return {end: (*words, *plan.preloaded) for end, words in where.items()}


def note(lines, chart, line, size, value):
    lines.setdefault((chart, line), []).append([size, value])


BANDWIDTH = """One way from client to server, one thread for each socket at both ends, blocking calls, each call one message, as the paper
measured with iperf 1.7; CRC off at all ends, as InfiniBand's hardware has it. Six kinds of connections of one pair of processes
take turns: TCP; DDPMODE; SDP that copies inside the calls and never advertises (in-call BCopy); SDP that copies through private
buffers at both ends, as in the paper (private BCopy); SDP that advertises every message, and reads every advert into the program's
buffer (ZCopy); SDP as it comes (default). Processor time is user and system time of both processes. Copies an octet are the two of TCP, into the kernel and out of it, and
those that both ends count (`DDP_SDP_INFO`)."""
LATENCY = f"""Half of there and back, as netperf's TCP_RR has it: polling, each end kept on a processor of its own; blocking,
both ends on one processor. Slices of {SLICE_MS} ms. The ways are those of sdp-bandwidth."""

ROWS = [
    RowKind("sdp-bandwidth", "SDP over message size and connections, beside DDPMODE and TCP", BANDWIDTH, measure_bandwidth, page="sdp"),
    RowKind("sdp-latency", "Latency of SDP over message size, beside DDPMODE and TCP", LATENCY, measure_latency, page="sdp"),
]
