"""Comparison with libfabric's tcp provider, at every size."""

from ..peers import Peer, fi_pingpong
from ..plan import (
    KIB,
    MIB,
    apart,
    batch_of,
    medians,
    rate_name,
    ratios,
    receives_of,
    size_name,
    time_name,
    together,
)
from ..result import Item
from ..setup import build_peer
from .bandwidth import tcp
from .kind import RowKind
from .latency import of_times

# Requests outstanding at a time, as in peers/fi_msg.c and libfabric's own fabtests.
OUTSTANDING = 64
# Sizes of which the system calls are measured by themselves.
LONG = (64 * KIB, 256 * KIB, MIB, 4 * MIB)
# Octets of the longest FPDU on loopback: its EMSS, less what is no multiple of 4.
LONGEST_FPDU = 65480


def sends(ends, size, batch=None):
    """Opens a lane of Sends by ends that poll; they are posted by lists unless `batch` is 1."""
    window = receives_of(size, OUTSTANDING)
    batch = batch or min(batch_of(size), OUTSTANDING // 2)
    return ends.open(
        op="send", size=size, depth=OUTSTANDING, batch=batch, window=window, crc=False, wait="poll"
    )


def measure(plan, row):
    lines = {name: [] for name in (("bandwidth", "libfabric tcp"), ("latency", "libfabric tcp"))}
    build_peer(plan, "fi_msg", "-lfabric")
    where = apart()
    with Peer(plan, "fi_msg", where, "tcp") as theirs:
        for size in plan.sizes:
            with plan.instrument(**where) as ends:
                singly = sends(ends, size, 1)
                kinds = [lambda: theirs.bandwidth(size, plan.ms), lambda: singly.bandwidth(plan.ms)]
                if batch_of(size) > 1:
                    listed = sends(ends, size)
                    kinds.append(lambda: listed.bandwidth(plan.ms))
                rates = plan.turns(kinds)
                times = plan.compare(
                    lambda: theirs.latency(size, plan.latency_ms),
                    lambda: singly.latency(plan.latency_ms),
                )
            row.items += bandwidth_items("libfabric", "bandwidth", size, rates)
            row.items.append(
                of_times(
                    f"latency, {size_name(size)}",
                    times,
                    1.0,
                    ("libfabric", "rddp"),
                    group="latency",
                    unit="x libfabric",
                )
            )
            lines["bandwidth", "libfabric tcp"].append([size, medians(rates)[0]])
            lines["latency", "libfabric tcp"].append([size, medians(times)[0]])
    measure_together(plan, row)
    measure_pingpong(plan, row, where)
    row.series = [
        {"chart": chart, "line": line, "points": points} for (chart, line), points in lines.items()
    ]


def bandwidth_items(peer, what, size, rates, tail=""):
    """Yields an item of ours that posts a message by each call, as the peer does, and of ours that
    posts lists, if that was measured."""
    yield bandwidth_item(
        peer, f"{what}, {size_name(size)}{tail}", [taken[:2] for taken in rates], f"{what}{tail}"
    )
    if len(rates[0]) > 2:
        pairs = [(taken[0], taken[2]) for taken in rates]
        yield bandwidth_item(
            peer,
            f"{what}, {size_name(size)}{tail}, ours posted by lists",
            pairs,
            f"{what}{tail}, by lists",
            reach=None,
        )


def measure_together(plan, row):
    """Measures bandwidth alone: an end of libfabric that polls never yields the processor, so a
    message there and back takes two slices of the scheduler's."""
    where = together()
    with Peer(plan, "fi_msg", where, "tcp") as theirs:
        for size in plan.sizes[::3]:
            with plan.instrument(**where) as ends:
                ours = sends(ends, size, 1)
                rates = plan.compare(
                    lambda: theirs.bandwidth(size, plan.ms),
                    lambda: ours.bandwidth(plan.ms),
                    plan.slow_rounds,
                )
            what = f"bandwidth, {size_name(size)}, both ends on one processor"
            row.items.append(
                bandwidth_item("libfabric", what, rates, "bandwidth, together", reach=None)
            )


def measure_pingpong(plan, row, where):
    for size in plan.sizes:
        count = max(20, int(plan.latency_ms / 1e3 / (12e-6 + size / 1e9)))
        with plan.instrument(**where) as ends:
            ours = sends(ends, size, 1)
            pairs = plan.compare(
                lambda: fi_pingpong(size, count, where),
                lambda: ours.latency(plan.latency_ms, "mean"),
                plan.slow_rounds,
            )
        row.items.append(
            of_times(
                f"fi_pingpong, {size_name(size)}",
                pairs,
                1.0,
                ("fi_pingpong", "rddp"),
                group="fi_pingpong",
                unit="x libfabric",
            )
        )


def bandwidth_item(peer, what, pairs, group, reach=1.0):
    base, ours = medians(pairs)
    return Item(
        what,
        ratios(pairs),
        at_least=reach,
        sides={peer: rate_name(base), "rddp": rate_name(ours)},
        group=group,
        unit=f"x {peer}",
    )


def measure_calls(plan, row):
    build_peer(plan, "fi_msg", "-lfabric")
    build_peer(plan, "fpdus")
    where = apart()
    with Peer(plan, "fi_msg", where, "tcp") as theirs, Peer(
        plan, "fpdus", where, str(LONGEST_FPDU)
    ) as calls:
        for size in LONG[::3] if plan.quick else LONG:
            with plan.instrument(**where) as ends:
                stream = ends.open(**tcp(size, "poll", batch=1))
                lanes = [stream, sends(ends, size, 1)]
                rates = plan.turns(
                    [
                        *(
                            lambda peer=peer: peer.bandwidth(size, plan.ms)
                            for peer in (theirs, calls)
                        ),
                        *(lambda lane=lane: lane.bandwidth(plan.ms) for lane in lanes),
                    ]
                )
                times = plan.turns(
                    [
                        *(
                            lambda peer=peer: peer.latency(size, plan.latency_ms)
                            for peer in (theirs, calls)
                        ),
                        *(lambda lane=lane: lane.latency(plan.latency_ms) for lane in lanes),
                    ]
                )
            row.items += calls_items("bandwidth", size, rates, rate_name)
            row.items += calls_items("latency", size, times, time_name)


def calls_items(what, size, taken, name):
    """Yields what the calls alone reach against libfabric, and what rddp reaches against them."""
    sides = dict(zip(("libfabric", "calls", "TCP", "rddp"), map(name, medians(taken))))
    what = f"{what}, {size_name(size)}"
    yield Item(
        f"{what}, the calls alone",
        [turn[1] / turn[0] for turn in taken],
        unit="x libfabric",
        sides=sides,
    )
    yield Item(
        f"{what}, rddp", [turn[3] / turn[1] for turn in taken], unit="x the calls", sides=sides
    )


METHOD = """Our own program on libfabric's `FI_EP_MSG` endpoints over its `tcp` provider
(`benches/compare/peers/fi_msg.c`, after the manner of `fi_msg_bw` and `fi_msg_pingpong`): up to
64 sends outstanding, one `fi_send` each (there is no list of them), short ones injected, both
ends polling. rddp: Sends, depth 64, posted one at a time as well; and by lists of up to 32 or 256
KiB, for information. Each end is kept on a processor of its own, both peers' alike, and all
messages begin in the middle of a page. Latency is the median of half of there and back; against
`fi_pingpong`, which starts anew for each slice, the mean."""

CALLS = """The system calls of rddp's Sends and nothing else, in C
(`benches/compare/peers/fpdus.c`): a message is cut into FPDUs as on loopback, its sender writes
it by one vectored call, up to 1 MiB, from where it lies; its receiver has one `recvmsg` for each
FPDU, which takes the payload to its place, the CRC's octets and the next header. No CRC, no
checks, no queues. Against it stand libfabric, as in its row, and rddp with CRC off, posted one at
a time: what the calls themselves miss against libfabric, no work above them can win. Both ends
polling, apart."""

PACKAGES = ("libfabric-bin", "libfabric-dev", "gcc")

ROWS = [
    RowKind(
        "libfabric",
        "Ahead of libfabric tcp at every size from 64 octets to 4 MiB, CRC off",
        METHOD,
        measure,
        packages=PACKAGES,
    ),
    RowKind(
        "fpdus",
        "What the system calls of rddp's Sends reach by themselves, against libfabric (information)",
        CALLS,
        measure_calls,
        packages=PACKAGES,
    ),
]
