"""Bandwidth of one direction against a TCP stream that is given the same octets by each call."""

from ..plan import KIB, MIB, batch_of, size_name
from ..ways import cost_item, item, pairs_of, turns, ways
from .kind import RowKind

SIZES = (64 * KIB, MIB)
DEPTH = 16
# Octets in front of each message of TCP, as many as an FPDU of a Write adds.
HEADER = 20

METHOD = """One connection. rddp: 16 requests outstanding, posted 256 KiB at a time; Sends go to
64 posted receives. TCP: the same octets by each `writev`, with a header of 20 octets in front of
each message; reads of up to the message's size (at least 64 KiB, at most 1 MiB), whose headers
nobody looks at; `TCP_NODELAY`. A slice ends when the receiving end has everything. With ends that
sleep (blocking sockets; `CompletionQueue::wait`), and with ends that poll (non-blocking sockets;
`CompletionQueue::poll`); apart: each end kept on a processor of its own; together: both on one,
which is for information. Processor time is user and system time of a process for a GB, TCP's and
ours; the sender is the end that the octets come from, the responder of a Read. An end that polls
is busy all the time."""

STABLE = """As crc-off. What is sent is registered with `Access::STABLE`, and no end copies it: beside it
the same of memory that may change, whose Responses, and short messages, are copied."""


def spec(op, size, wait, **more):
    """Returns a lane as this row measures it."""
    return {
        "op": op,
        "size": size,
        "wait": wait,
        "depth": DEPTH,
        "batch": batch_of(size),
        "window": 4 * DEPTH,
    } | more


def tcp(size, wait, **more):
    """Returns a lane of TCP that is given as many octets by each call."""
    return {
        "op": "tcp",
        "size": size,
        "wait": wait,
        "batch": batch_of(size),
        "header": HEADER,
    } | more


def measure_lanes(lanes):
    """Returns a row's measure. `lanes`: by name, the operation, options, and the least ratio."""

    def measure(plan, row):
        for size in SIZES:
            for way in ways():
                taken = measure_way(
                    plan, size, way, [(op, options) for op, options, _ in lanes.values()]
                )
                for place, (name, (_, _, reach)) in enumerate(lanes.items(), 1):
                    what = f"{name} {size_name(size)}, {way.name}"
                    reach = reach if way.demanded else None
                    row.items.append(item(what, pairs_of(taken, place), at_least=reach))

    return measure


def measure_way(plan, size, way, lanes):
    with plan.instrument(**way.where) as ends:
        opened = [
            ends.open(**tcp(size, way.wait)),
            *(ends.open(**spec(op, size, way.wait, **options)) for op, options in lanes),
        ]
        return turns(plan, opened, None if way.demanded else plan.slow_rounds)


def measure_read(plan, row):
    measure_lanes({"Read": ("read", {"crc": True}, 0.85)})(plan, row)
    for size in SIZES:
        way = ways()[0]
        taken = measure_way(plan, size, way, [("read", {"crc": False}), ("read", {"crc": True})])
        without, with_crc = pairs_of(taken, 1), pairs_of(taken, 2)
        row.items.append(item(f"Read {size_name(size)}, CRC off, {way.name}", without))
        what = f"processor time of the responder for a GB, Read {size_name(size)}"
        row.items.append(cost_item(f"{what}, CRC off, {way.name}", without, "sender", at_most=1.15))
        row.items.append(cost_item(f"{what}, CRC on, {way.name}", with_crc, "sender"))


def measure_stable(plan, row):
    copied, stable = {"crc": True}, {"crc": True, "stable": True}
    lanes = [("read", copied), ("read", stable), ("write", copied), ("write", stable)]
    names = ["Read, copied", "Read", "Write, not stable", "Write"]
    for size in SIZES:
        for way in ways():
            taken = measure_way(plan, size, way, lanes)
            for place, name in enumerate(names, 1):
                what = f"{name}, {size_name(size)}, {way.name}"
                row.items.append(item(what, pairs_of(taken, place)))
            if way == ways()[0]:
                what = f"processor time of the responder for a GB, Read, {size_name(size)}, {way.name}"
                responder = pairs_of(taken, 2)
                row.items.append(cost_item(what, responder, "sender", at_most=1.35))


def measure_tcp(plan, row):
    for size in SIZES:
        for way in ways()[:2]:
            others = {
                "without a header": {"header": 0},
                "a message by each call": {"batch": 1},
                "a message by each call, without a header": {"batch": 1, "header": 0},
            }
            with plan.instrument(**way.where) as ends:
                lanes = [
                    ends.open(**tcp(size, way.wait)),
                    *(ends.open(**tcp(size, way.wait) | of) for of in others.values()),
                ]
                taken = turns(plan, lanes, plan.slow_rounds)
            for place, name in enumerate(others, 1):
                what = f"{name}, {size_name(size)}, {way.name}"
                row.items.append(item(what, pairs_of(taken, place), ("TCP", "other")))


ROWS = [
    RowKind(
        "crc-off",
        "Write and Send, CRC off",
        METHOD,
        measure_lanes(
            {"Write": ("write", {"crc": False}, 1.0), "Send": ("send", {"crc": False}, 1.0)}
        ),
    ),
    RowKind(
        "crc-on", "Write, CRC on", METHOD, measure_lanes({"Write": ("write", {"crc": True}, 0.8)})
    ),
    RowKind(
        "place",
        "Write with `place_before_crc`, and Send, CRC on",
        METHOD,
        measure_lanes(
            {
                "Write": ("write", {"crc": True, "place_before_crc": True}, 0.9),
                "Send": ("send", {"crc": True}, 0.9),
            }
        ),
    ),
    RowKind("read", "Read, depth 16, CRC on", METHOD, measure_read),
    RowKind(
        "stable",
        "Read and Write of memory that nobody changes, CRC on",
        STABLE,
        measure_stable,
    ),
    RowKind(
        "markers",
        "Write and Send, CRC on, markers both ways",
        METHOD,
        measure_lanes(
            {
                "Write": ("write", {"crc": True, "markers": True}, 0.6),
                "Send": ("send", {"crc": True, "markers": True}, 0.6),
            }
        ),
    ),
    RowKind(
        "tcp",
        "TCP itself, by other calls (information)",
        "TCP as in the rows above, against TCP without headers, or with one message by a call.",
        measure_tcp,
    ),
]
