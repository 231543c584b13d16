"""perftest on librddp_verbs.so, beside rddp's own loops and plain TCP."""

from ..peers import perftest_bandwidth, perftest_latency
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
)
from ..result import Item
from .bandwidth import tcp
from .kind import RowKind

# The depth of `rddp perf`, unless told otherwise.
DEPTH = 64
SIZES = (64, 64 * KIB, MIB)
# What the row must reach: sizes and operations.
REACHED_AT, OPS = (64 * KIB, MIB), ("write", "read")
# Slices of bandwidth are that much longer: they begin with an empty pipe, and for perftest a Write
# is complete when TCP has taken it.
LONGER = 2
# Programs start anew for each slice, which takes longer than it.
ROUNDS = 7


def measure(plan, row):
    for op in ("write", "read", "send"):
        for size in SIZES[::2] if plan.quick else SIZES:
            measure_size(plan, row, op, size, op in OPS and size in REACHED_AT)


def measure_size(plan, row, op, size, has_reach):
    where, rounds = apart(), min(plan.rounds, ROUNDS)
    messages = max(200, int(LONGER * plan.ms / 1e3 / (8e-6 + size / 2e9)))
    pings = max(50, int(plan.latency_ms / 1e3 / (12e-6 + size / 1e9)))
    spec = {"op": op, "size": size, "wait": "poll", "crc": True, "depth": DEPTH}
    spec |= {"batch": batch_of(size), "window": receives_of(size, DEPTH)}
    with plan.instrument(**where) as ends:
        # As perftest has, each slice of bandwidth has a connection of its own, which is new to TCP.
        rates = plan.turns(
            [
                lambda: ends.open(**tcp(size, "poll")).bandwidth(LONGER * plan.ms),
                lambda: ends.open(**spec).bandwidth(LONGER * plan.ms),
                lambda: perftest_bandwidth(plan, f"ib_{op}_bw", size, messages, where),
            ],
            rounds,
        )
        base, ours = ends.open(**tcp(size, "poll")), ends.open(**spec)
        times = plan.turns(
            [
                lambda: base.latency(plan.latency_ms),
                lambda: ours.latency(plan.latency_ms),
                lambda: perftest_latency(plan, f"ib_{op}_lat", size, pings, where),
                *([lambda: ours.times(plan.latency_ms, "watch")["p50"]] if op == "write" else []),
            ],
            rounds,
        )
    least, most = (0.9, 1.1) if has_reach else (None, None)
    row.items += [
        item(f"ib_{op}_bw, {size_name(size)}", rates, rate_name, op, at_least=least),
        item(f"ib_{op}_lat, {size_name(size)}", times, time_name, op, at_most=most),
    ]
    if op == "write":
        # Its loop is another than that of `rddp perf`, which polls all the time.
        row.items.append(
            item(
                f"ib_write_lat, {size_name(size)}, against a loop like its own",
                times,
                time_name,
                op,
                own=3,
            )
        )


def item(what, taken, name, op, own=1, **reach):
    sides = dict(zip(("TCP", "rddp", "perftest", "rddp, like perftest"), map(name, medians(taken))))
    pairs = [(turn[own], turn[2]) for turn in taken]
    return Item(what, ratios(pairs), sides=sides, group=f"perftest, {op}", unit="x rddp", **reach)


METHOD = """Debian's perftest, unmodified, both ends under `rddp run --verbs` and started anew for
each slice (`ib_write_bw -R` and its like, which post one request at a time, 128 deep), against
the loops of `rddp perf` (64 deep, posted up to 16 or 256 KiB at a time) and plain TCP with as
much by each call, all polling, CRC on, each end kept on a processor of its own; all with a new
connection for each slice. Latency is the median, half of there and back, of a Read all of it;
Writes are noticed in memory. `ib_write_lat` polls for its own Write and then looks at memory
alone, where `rddp perf` polls at each look; so it stands beside a loop of ours that does the
same, too."""

ROWS = [
    RowKind(
        "perftest",
        "perftest on librddp_verbs.so, against rddp's own loops",
        METHOD,
        measure,
        packages=("perftest",),
    )
]
