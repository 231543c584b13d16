"""Between two network namespaces, at the MTUs that paths have."""

import statistics

from ..namespaces import ADDRESSES, inside, veth
from ..plan import KIB, apart, ratios, receives_of, size_name, together
from ..result import Item
from ..ways import cost_item, item, pairs_of, turns
from .bandwidth import DEPTH, spec, tcp
from .kind import RowKind

SIZES = [KIB, 2 * KIB, 4 * KIB, 16 * KIB, 64 * KIB]
OPS = ("write", "send", "read")
# Least share of TCP's bandwidth, by size.
REACHES = {KIB: 0.6, 2 * KIB: 0.6, 4 * KIB: 0.6, 16 * KIB: 0.75, 64 * KIB: 0.85}
# Messages of this size take at most this much more processor time than TCP's.
DIET, MOST = 4 * KIB, 1.8
# MTUs of overlay networks (1450, 1442) and of a cloud's (9001): no FPDU fills their segments, which
# are no multiples of 4. Each stands beside one that is alike otherwise.
BESIDE = {1500: None, 1450: 1500, 1442: 1500, 9000: None, 9001: 9000}


def measure(plan, row):
    shares = {}
    for mtu, beside in BESIDE.items():
        with veth(mtu) as namespaces:
            where = places(namespaces, apart())
            for size in SIZES[::2] if plan.quick else SIZES:
                shares |= {
                    (mtu, op, size): share
                    for op, share in measure_size(plan, row, where, mtu, size)
                }
            if beside is None:
                measure_together(plan, row, places(namespaces, together()), mtu)
        if beside:
            row.items += [
                Item(
                    f"MTU {mtu}, {op}s of {size_name(size)}, beside MTU {beside}",
                    [share / shares[beside, op, size]],
                    unit="x MTU " + str(beside),
                    at_least=0.9,
                )
                for (of, op, size), share in shares.items()
                if of == mtu
            ]


def places(namespaces, kept):
    """Returns where both ends are: in their namespaces, and `kept` on their processors."""
    passive, active = namespaces
    return {
        "address": ADDRESSES[0],
        "server_in": (*inside(passive), *kept["server_in"]),
        "client_in": (*inside(active), *kept["client_in"]),
    }


def batch_of(size):
    """Returns the number of messages that are posted at once: up to 64 KiB."""
    return max(1, min(16, 64 * KIB // size))


def slices(plan, where, size, batch, rounds=None):
    more = {"batch": batch, "depth": max(DEPTH, 4 * batch), "window": receives_of(size, DEPTH)}
    with plan.instrument(**where) as ends:
        lanes = [
            ends.open(**tcp(size, "sleep", batch=batch)),
            *(ends.open(**spec(op, size, "sleep", crc=True) | more) for op in OPS),
        ]
        return turns(plan, lanes, rounds)


def measure_size(plan, row, where, mtu, size):
    """Measures each operation, and yields the share of TCP's bandwidth that it has."""
    taken = slices(plan, where, size, batch_of(size))
    for place, op in enumerate(OPS, 1):
        what, pairs = f"MTU {mtu}, {op}s of {size_name(size)}", pairs_of(taken, place)
        reach = {"at_least": REACHES[size]} if mtu == 1500 else {}
        row.items.append(item(what, pairs, **reach))
        if (mtu, size) == (1500, DIET):
            row.items.append(
                cost_item(
                    f"{what}: processor time of both ends for a GB", pairs, "cost", at_most=MOST
                )
            )
        yield op, statistics.median(ratios([(base.rate, ours.rate) for base, ours in pairs]))
    if size == SIZES[-1]:
        taken = slices(plan, where, size, 4, plan.slow_rounds)
        row.items += [
            item(
                f"MTU {mtu}, {op}s of {size_name(size)}, 256 KiB at a time", pairs_of(taken, place)
            )
            for place, op in enumerate(OPS, 1)
        ]


def measure_together(plan, row, where, mtu):
    for size in SIZES[::2]:
        taken = slices(plan, where, size, batch_of(size), plan.slow_rounds)
        row.items += [
            item(
                f"MTU {mtu}, {op}s of {size_name(size)}, both ends on one processor",
                pairs_of(taken, place),
            )
            for place, op in enumerate(OPS, 1)
        ]


METHOD = """The script makes the namespaces, of which each end has one, and a processor unless a
figure says otherwise. Both ends asleep while they wait, CRC on. TCP and rddp post the same octets
by each call: up to 16 messages (TCP by `writev`, each behind a header of 20 octets), up to 64
KiB."""

ROWS = [
    RowKind(
        "paths",
        "Short and long messages over veth, at the MTUs that paths have",
        METHOD,
        measure,
        packages=("iproute2",),
        needs_root=True,
    )
]
