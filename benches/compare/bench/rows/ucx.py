"""Comparison with UCX's tcp transport, at every size."""

from ..peers import ucx_bandwidth, ucx_latency
from ..plan import apart, batch_of, medians, receives_of, size_name
from .kind import RowKind
from .latency import of_times
from .libfabric import bandwidth_items

# Requests that ucx_perftest keeps outstanding unless told otherwise.
OUTSTANDING = 32
CRC = {"CRC off": False, "our CRC on": True}
# Our operation, and the test of UCX that does the same.
TESTS = {"send": "tag_bw", "write": "ucp_put_bw"}


def lane(ends, op, size, crc, batch):
    window = receives_of(size, OUTSTANDING)
    return ends.open(
        op=op, size=size, depth=OUTSTANDING, batch=batch, window=window, crc=crc, wait="poll"
    )


def count_of(size, ms):
    """Returns the number of messages that take about that long."""
    return max(20, int(ms / 1e3 / (5e-6 + size / 2e9)))


def measure(plan, row):
    lines = {"bandwidth": [], "latency": []}
    for size in plan.sizes:
        with plan.instrument(**apart()) as ends:
            rates = {op: measure_rates(plan, row, ends, op, size) for op in TESTS}
            times = measure_times(plan, row, ends, size)
        lines["bandwidth"].append([size, max(rates.values())])
        lines["latency"].append([size, times])
    row.series = [
        {"chart": chart, "line": "UCX tcp", "points": points} for chart, points in lines.items()
    ]


def measure_rates(plan, row, ends, op, size):
    """Measures bandwidth, and returns UCX's."""
    count, where = count_of(size, plan.ms), apart()
    batches = sorted({1, min(batch_of(size), OUTSTANDING // 2)})
    lanes = [lane(ends, op, size, crc, batch) for crc in CRC.values() for batch in batches]
    theirs = [lambda: ucx_bandwidth(TESTS[op], size, count, where)]
    ours = [lambda one=one: one.bandwidth(plan.ms) for one in lanes]
    taken = plan.turns(theirs + ours, plan.slow_rounds)
    for number, name in enumerate(CRC):
        first = 1 + number * len(batches)
        one = [(turn[0], *turn[first : first + len(batches)]) for turn in taken]
        row.items += bandwidth_items("UCX", TESTS[op], size, one, f", {name}")
    return medians(taken)[0]


def measure_times(plan, row, ends, size):
    """Measures messages there and back, and returns UCX's time."""
    count, where = count_of(size, plan.latency_ms), apart()
    lanes = [lane(ends, "send", size, crc, 1) for crc in CRC.values()]
    theirs = [lambda: ucx_latency(size, count, where)]
    ours = [lambda one=one: one.latency(plan.latency_ms) for one in lanes]
    taken = plan.turns(theirs + ours, plan.slow_rounds)
    for place, name in enumerate(CRC, 1):
        pairs = [(turn[0], turn[place]) for turn in taken]
        what, group = f"tag_lat, {size_name(size)}, {name}", f"tag_lat, {name}"
        row.items.append(of_times(what, pairs, 1.0, ("UCX", "rddp"), group=group, unit="x UCX"))
    return medians(taken)[0]


METHOD = """`ucx_perftest` over its `tcp` transport on `lo` (`UCX_TLS=tcp UCX_NET_DEVICES=lo`),
started anew for each slice: `tag_bw` against our Sends, `ucp_put_bw` against our Writes (the
`put_bw` below UCP knows no ordinary Writes over tcp), `tag_lat` against our ping-pong. Both:
depth 32, both ends polling, each kept on a processor of its own, requests posted one at a time;
ours also by lists of up to 16 or 256 KiB, for information."""

ROWS = [
    RowKind(
        "ucx",
        "Ahead of UCX tcp at every size from 64 octets to 4 MiB, CRC off, and with our CRC on",
        METHOD,
        measure,
        packages=("ucx-utils",),
    )
]
