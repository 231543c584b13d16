"""Comparison with UCX's tcp transport, at every size."""

from ..peers import ucx_bandwidth, ucx_latency
from ..plan import batch_of, medians, receives_of, size_name
from .kind import RowKind
from .latency import of_times
from .libfabric import bandwidth_item

# Requests that ucx_perftest keeps outstanding unless told otherwise.
OUTSTANDING = 32


def lane(ends, op, size, crc):
    window, batch = receives_of(size, OUTSTANDING), min(batch_of(size), OUTSTANDING // 2)
    return ends.open(op=op, size=size, depth=OUTSTANDING, batch=batch, window=window, crc=crc, wait="poll")


def count_of(size, ms):
    """Returns the number of messages that take about that long."""
    return max(20, int(ms / 1e3 / (5e-6 + size / 2e9)))


def measure(plan, row):
    lines = {"bandwidth": [], "latency": []}
    for crc in (False, True):
        for size in plan.sizes:
            measure_size(plan, row, size, crc, lines)
    row.series = [{"chart": chart, "line": "UCX tcp", "points": points} for chart, points in lines.items()]


def measure_size(plan, row, size, crc, lines):
    with_crc = "our CRC on" if crc else "CRC off"
    count, pings = count_of(size, plan.ms), count_of(size, plan.latency_ms)
    rounds = plan.slow_rounds
    with plan.instrument() as ends:
        send, write = (lane(ends, op, size, crc) for op in ("send", "write"))
        tag = plan.compare(lambda: ucx_bandwidth(plan, "tag_bw", size, count), lambda: send.bandwidth(plan.ms), rounds)
        put = plan.compare(lambda: ucx_bandwidth(plan, "ucp_put_bw", size, count), lambda: write.bandwidth(plan.ms), rounds)
        times = plan.compare(lambda: ucx_latency(plan, size, pings), lambda: send.latency(plan.latency_ms), rounds)
    for name, pairs in (("tag_bw", tag), ("ucp_put_bw", put)):
        what, group = f"{name}, {size_name(size)}, {with_crc}", f"{name}, {with_crc}"
        row.items.append(bandwidth_item("UCX", what, pairs, group))
    what, group = f"tag_lat, {size_name(size)}, {with_crc}", f"tag_lat, {with_crc}"
    row.items.append(of_times(what, times, 1.0, ("UCX", "rddp"), group=group, unit="x UCX"))
    if not crc:
        lines["bandwidth"].append([size, max(medians(tag)[0], medians(put)[0])])
        lines["latency"].append([size, medians(times)[0]])


METHOD = """`ucx_perftest` over its `tcp` transport on `lo` (`UCX_TLS=tcp UCX_NET_DEVICES=lo`), started anew for each
slice: `tag_bw` against our Sends, `ucp_put_bw` against our Writes (the `put_bw` below UCP knows no ordinary Writes
over tcp), `tag_lat` against our ping-pong. Both: depth 32, both ends polling; rddp's requests are posted by
`post_sends` up to 16 or 256 KiB at a time."""

ROWS = [RowKind("ucx", "Ahead of UCX tcp at every size from 64 octets to 4 MiB, CRC off, and with our CRC on",
                METHOD, measure, packages=("ucx-utils",))]
