"""Between two network namespaces, at the MTUs that paths have."""

import statistics

from ..namespaces import ADDRESSES, inside, veth
from ..plan import KIB, apart, batch_of, medians, rate_name, ratios, receives_of, size_name
from ..result import Item
from .bandwidth import DEPTH, spec, tcp
from .kind import RowKind

SIZES = [KIB, 2 * KIB, 4 * KIB, 16 * KIB, 64 * KIB]
OPS = ("write", "send", "read")
# Least share of TCP's bandwidth, by size.
REACHES = {KIB: 0.6, 2 * KIB: 0.6, 4 * KIB: 0.6, 16 * KIB: 0.75, 64 * KIB: 0.85}
# MTUs of overlay networks (1450, 1442) and of a cloud's (9001): no FPDU fills their segments, which
# are no multiples of 4. Each stands beside one that is alike otherwise.
BESIDE = {1500: None, 1450: 1500, 1442: 1500, 9000: None, 9001: 9000}


def measure(plan, row):
    shares = {}
    for mtu, beside in BESIDE.items():
        with veth(mtu) as (passive, active):
            pinned = apart()
            where = {"address": ADDRESSES[0], "server_in": (*inside(passive), *pinned["server_in"]),
                     "client_in": (*inside(active), *pinned["client_in"])}
            for size in SIZES[::2] if plan.quick else SIZES:
                measure_size(plan, row, where, mtu, size, shares)
        if beside:
            row.items += [Item(f"MTU {mtu}, {op}s of {size_name(size)}, beside MTU {beside}",
                               [share / shares[beside, op, size]],
                               unit="x MTU " + str(beside), at_least=0.9)
                          for (of, op, size), share in shares.items() if of == mtu]


def measure_size(plan, row, where, mtu, size, shares):
    batch = batch_of(size)
    more = {"batch": batch, "depth": max(DEPTH, 4 * batch), "window": receives_of(size, DEPTH)}
    with plan.instrument(**where) as ends:
        lanes = [ends.open(**tcp(size, "sleep", batch=batch)),
                 *(ends.open(**spec(op, size, "sleep", crc=True) | more) for op in OPS)]
        taken = plan.turns([lambda lane=lane: lane.bandwidth(plan.ms) for lane in lanes])
    for place, op in enumerate(OPS, 1):
        pairs = [(turn[0], turn[place]) for turn in taken]
        base, ours = medians(pairs)
        shares[mtu, op, size] = statistics.median(ratios(pairs))
        reach = {"at_least": REACHES[size]} if mtu == 1500 else {}
        row.items.append(Item(f"MTU {mtu}, {op}s of {size_name(size)}", ratios(pairs),
                              sides={"TCP": rate_name(base), "rddp": rate_name(ours)}, **reach))


METHOD = """The script makes the namespaces, of which each end has one, and a processor. Both ends
asleep while they wait, CRC on. TCP and rddp post the same octets for each call: up to 16 messages
at once (TCP by `writev`), up to 256 KiB."""

ROWS = [RowKind("paths", "Short and long messages over veth, at the MTUs that paths have", METHOD,
                measure, packages=("iproute2",), needs_root=True)]
