"""Bandwidth of one direction against a TCP stream with the same message size."""

from ..plan import KIB, MIB, batch_of, medians, rate_name, ratios, size_name
from ..result import Item
from .kind import RowKind

SIZES = (64 * KIB, MIB)
WAITS = {"sleep": "both ends asleep while they wait", "poll": "both ends polling"}
DEPTH = 16

METHOD = """One connection. rddp: 16 requests outstanding, posted 256 KiB at a time; Sends go to 64 posted receives.
TCP: one `write` a message, reads of up to the message's size (at least 64 KiB, at most 1 MiB), `TCP_NODELAY`. A slice
ends when the receiving end has everything. Twice: with ends that sleep (blocking sockets; `CompletionQueue::wait`),
and with ends that poll (non-blocking sockets; `CompletionQueue::poll`)."""


def spec(op, size, wait, **more):
    """Returns a lane as this row measures it."""
    batch = 1 if op == "read" else batch_of(size)
    return {"op": op, "size": size, "wait": wait, "depth": DEPTH, "batch": batch, "window": 4 * DEPTH} | more


def tcp(size, wait, **more):
    return {"op": "tcp", "size": size, "wait": wait} | more


def compare(plan, base, ours):
    """Compares two lanes, and returns [(octets a second, octets a second)]."""
    return plan.compare(lambda: base.bandwidth(plan.ms), lambda: ours.bandwidth(plan.ms))


def item(what, pairs, name="rddp", **more):
    base, ours = medians(pairs)
    return Item(what, ratios(pairs), sides={"TCP": rate_name(base), name: rate_name(ours)}, **more)


def measure_ops(ops, reach, options):
    """Returns a row's measure: each of `ops` at both sizes, with both ways of waiting."""

    def measure(plan, row):
        for size in SIZES:
            for wait, how in WAITS.items():
                with plan.instrument() as ends:
                    base = ends.open(**tcp(size, wait))
                    for op in ops:
                        lane = ends.open(**spec(op, size, wait, **options))
                        what = f"{op.capitalize()} {size_name(size)}, {how}"
                        row.items.append(item(what, compare(plan, base, lane), at_least=reach))

    return measure


def measure_crc_off(plan, row):
    measure_ops(("write", "send"), 1.0, {"crc": False})(plan, row)
    for wait, how in WAITS.items():
        with plan.instrument() as ends:
            base, batched = ends.open(**tcp(64 * KIB, wait)), ends.open(**tcp(64 * KIB, wait, batch=4))
            what = f"TCP, 4 messages of 64 KiB a writev, {how}"
            row.items.append(item(what, compare(plan, base, batched), name="writev"))


def measure_place(plan, row):
    measure_ops(("write",), 0.9, {"crc": True, "place_before_crc": True})(plan, row)
    measure_ops(("send",), 0.9, {"crc": True})(plan, row)


ROWS = [
    RowKind("crc-off", "Write and Send, CRC off", METHOD, measure_crc_off),
    RowKind("crc-on", "Write, CRC on", METHOD, measure_ops(("write",), 0.8, {"crc": True})),
    RowKind("place", "Write with `place_before_crc`, and Send, CRC on", METHOD, measure_place),
    RowKind("read", "Read, depth 16, CRC on", METHOD, measure_ops(("read",), 0.85, {"crc": True})),
    RowKind("markers", "Write and Send, CRC on, markers both ways", METHOD,
            measure_ops(("write", "send"), 0.6, {"crc": True, "markers": True})),
]
