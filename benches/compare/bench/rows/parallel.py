"""Several connections at once."""

from ..plan import KIB
from ..ways import cost_item, item, pairs_of, turns, ways
from .bandwidth import HEADER, spec, tcp
from .kind import RowKind

CONNECTIONS = 8
SIZE = 64 * KIB
# Sizes of the messages that take turns on each of `MANY` connections.
MIXED = (64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB)
MANY = (8, 64)
OPS = ("write", "send")


def measure(plan, row):
    for way in ways():
        with plan.instrument(**way.where) as ends:
            base = ends.open(**tcp(SIZE, way.wait, connections=CONNECTIONS))
            ours = ends.open(**spec("write", SIZE, way.wait, connections=CONNECTIONS, crc=True))
            pairs = turns(plan, [base, ours])
        row.items.append(
            item(f"8 x Write 64 KiB, {way.name}", pairs, at_least=0.85 if way.demanded else None)
        )
        if way.wait == "sleep":
            # Ends that poll are busy whatever they carry.
            reach = 1.25 if way.demanded else None
            row.items.append(
                cost_item(
                    f"processor time of both ends for a GB, {way.name}",
                    pairs,
                    "cost",
                    at_most=reach,
                )
            )


def measure_mixed(plan, row):
    for count in MANY:
        for way in ways():
            with plan.instrument(**way.where) as ends:
                base = ends.open(
                    op="tcp", sizes=MIXED, wait=way.wait, connections=count, header=HEADER
                )
                lanes = [
                    ends.open(
                        op=op,
                        sizes=MIXED,
                        wait=way.wait,
                        connections=count,
                        crc=True,
                        depth=4 * len(MIXED),
                        window=16 * len(MIXED),
                    )
                    for op in OPS
                ]
                taken = turns(plan, [base, *lanes], None if way.demanded else plan.slow_rounds)
            for place, op in enumerate(OPS, 1):
                row.items.append(
                    item(
                        f"{count} connections, {op.capitalize()}s, {way.name}",
                        pairs_of(taken, place),
                    )
                )


METHOD = """One thread of the program at each end, for TCP too (non-blocking sockets and `poll`).
Calls, header, places and processor time are those of crc-off."""

MIXED_METHOD = """Messages of 64 and 256 octets, 1, 4, 16 and 64 KiB take turns on each
connection; one of each is posted by a call (TCP: one `writev`), 24 outstanding. One thread at
each end. CRC on. Header, places and processor time are those of crc-off."""

ROWS = [
    RowKind(
        "parallel",
        "8 QPs in parallel, 64 KiB Writes, CRC on, against 8 TCP streams",
        METHOD,
        measure,
    ),
    RowKind(
        "mixed",
        "8 and 64 connections with messages of 64 octets to 64 KiB",
        MIXED_METHOD,
        measure_mixed,
    ),
]
