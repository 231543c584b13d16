"""Comparison with UCX's tcp transport, at every size."""

from ..peers import ucx_bandwidth, ucx_latency
from ..plan import apart, batch_of, medians, receives_of, size_name
from .kind import RowKind
from .latency import of_times
from .libfabric import bandwidth_items

# Requests that ucx_perftest keeps outstanding unless told otherwise.
OUTSTANDING = 32
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
    for crc in (False, True):
        for size in plan.sizes:
            measure_size(plan, row, size, crc, lines)
    row.series = [
        {"chart": chart, "line": "UCX tcp", "points": points} for chart, points in lines.items()
    ]


def measure_size(plan, row, size, crc, lines):
    with_crc = "our CRC on" if crc else "CRC off"
    count, pings, rounds, where = (
        count_of(size, plan.ms),
        count_of(size, plan.latency_ms),
        plan.slow_rounds,
        apart(),
    )
    listed = min(batch_of(size), OUTSTANDING // 2)
    with plan.instrument(**where) as ends:
        lanes = {
            op: [lane(ends, op, size, crc, batch) for batch in sorted({1, listed})] for op in TESTS
        }
        rates = {
            op: plan.turns(
                [
                    lambda: ucx_bandwidth(TESTS[op], size, count, where),
                    *(lambda one=one: one.bandwidth(plan.ms) for one in lanes[op]),
                ],
                rounds,
            )
            for op in TESTS
        }
        times = plan.compare(
            lambda: ucx_latency(size, pings, where),
            lambda: lanes["send"][0].latency(plan.latency_ms),
            rounds,
        )
    for op, taken in rates.items():
        row.items += bandwidth_items("UCX", TESTS[op], size, taken, f", {with_crc}")
    what, group = f"tag_lat, {size_name(size)}, {with_crc}", f"tag_lat, {with_crc}"
    row.items.append(of_times(what, times, 1.0, ("UCX", "rddp"), group=group, unit="x UCX"))
    if not crc:
        lines["bandwidth"].append([size, max(medians(taken)[0] for taken in rates.values())])
        lines["latency"].append([size, medians(times)[0]])


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
