"""Comparison with libfabric's tcp provider, at every size."""

from ..peers import FiMsg, fi_pingpong
from ..plan import batch_of, medians, rate_name, ratios, receives_of, size_name
from ..result import Item
from ..setup import build_fi_msg
from .kind import RowKind
from .latency import of_times

# Requests outstanding at a time, as in peers/fi_msg.c and libfabric's own fabtests.
OUTSTANDING = 64


# Up to this size, the row also shows the result of posting one at a time.
SHORT = 1024


def sends(ends, size, batch=None):
    """Opens a lane of Sends that are posted by lists, by ends that poll."""
    window = receives_of(size, OUTSTANDING)
    batch = batch or min(batch_of(size), OUTSTANDING // 2)
    return ends.open(op="send", size=size, depth=OUTSTANDING, batch=batch, window=window, crc=False, wait="poll")


def measure(plan, row):
    lines = {name: [] for name in (("bandwidth", "libfabric tcp"), ("latency", "libfabric tcp"))}
    build_fi_msg(plan.root, plan.target)
    with FiMsg(plan) as theirs:
        for size in plan.sizes:
            with plan.instrument() as ends:
                ours = sends(ends, size)
                rates = plan.compare(lambda: theirs.bandwidth(size, plan.ms), lambda: ours.bandwidth(plan.ms))
                single = sends(ends, size, 1)
                singly = size <= SHORT and plan.compare(lambda: theirs.bandwidth(size, plan.ms),
                                                        lambda: single.bandwidth(plan.ms), plan.slow_rounds)
                times = plan.compare(lambda: theirs.latency(size, plan.latency_ms), lambda: ours.latency(plan.latency_ms))
            row.items.append(bandwidth_item("libfabric", f"bandwidth, {size_name(size)}", rates, "bandwidth"))
            if singly:
                what = f"bandwidth, {size_name(size)}, ours posted one at a time"
                row.items.append(bandwidth_item("libfabric", what, singly, None, reach=None))
            row.items.append(of_times(f"latency, {size_name(size)}", times, 1.0, ("libfabric", "rddp"),
                                      group="latency", unit="x libfabric"))
            lines["bandwidth", "libfabric tcp"].append([size, medians(rates)[0]])
            lines["latency", "libfabric tcp"].append([size, medians(times)[0]])
    measure_pingpong(plan, row)
    row.series = [{"chart": chart, "line": line, "points": points} for (chart, line), points in lines.items()]


def measure_pingpong(plan, row):
    for size in plan.sizes:
        count = max(20, int(plan.latency_ms / 1e3 / (12e-6 + size / 1e9)))
        with plan.instrument() as ends:
            ours = sends(ends, size)
            pairs = plan.compare(lambda: fi_pingpong(plan, size, count), lambda: ours.latency(plan.latency_ms, "mean"),
                                 plan.slow_rounds)
        row.items.append(of_times(f"fi_pingpong, {size_name(size)}", pairs, 1.0, ("fi_pingpong", "rddp"),
                                  group="fi_pingpong", unit="x libfabric"))


def bandwidth_item(peer, what, pairs, group, reach=1.0):
    base, ours = medians(pairs)
    return Item(what, ratios(pairs), at_least=reach, sides={peer: rate_name(base), "rddp": rate_name(ours)}, group=group,
                unit=f"x {peer}")


METHOD = """Our own program on libfabric's `FI_EP_MSG` endpoints over its `tcp` provider
(`benches/compare/peers/fi_msg.c`, after the manner of `fi_msg_bw` and `fi_msg_pingpong`): up to 64 sends outstanding,
one `fi_send` each (there is no list of them), short ones injected, both ends polling. rddp: Sends, depth 64, posted by
`post_sends` up to 32 or 256 KiB at a time, both ends polling. Latency is the median of half of there and back; against `fi_pingpong`, which starts anew for
each slice, the mean."""

ROWS = [RowKind("libfabric", "Ahead of libfabric tcp at every size from 64 octets to 4 MiB, CRC off", METHOD, measure,
                packages=("libfabric-bin", "libfabric-dev", "gcc"))]
