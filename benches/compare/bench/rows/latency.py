"""Short messages: one at a time, and many."""

import statistics

from ..plan import KIB, apart, medians, ratios, receives_of, size_name, time_name, together
from ..result import Item
from ..ways import item, turns, ways
from .bandwidth import HEADER
from .kind import RowKind

SIZE = 64
PLACES = {"apart": apart, "together": together}
ASLEEP = {"channel": "on the completion channel", "sleep": "in `CompletionQueue::wait`"}
# Sizes of messages there and back, and the most that they may take, against TCP's.
REACHES = {64: 1.15, 256: 1.16, KIB: 1.16, 4 * KIB: 1.25}
# Sizes of a request and of its answer.
REQUESTS = (64, 4 * KIB)


def ping(plan, row, wait, size, reach, what, where):
    with plan.instrument(**where) as ends:
        base = ends.open(op="tcp", size=size, wait=wait, header=HEADER)
        ours = ends.open(op="send", size=size, wait=wait)
        pairs = plan.compare(
            lambda: base.times(plan.latency_ms), lambda: ours.times(plan.latency_ms)
        )
    row.items.append(of_quantiles(what, pairs, reach))


def of_quantiles(what, pairs, reach, names=("TCP", "rddp"), **more):
    """Returns an item of medians of slices, beside which the slowest of 100 and of 1000 stand."""
    times = [tuple(side["p50"] for side in pair) for pair in pairs]
    made = of_times(what, times, reach, names, **more)
    for place, name in enumerate(names):
        tail = (
            time_name(statistics.median(pair[place][which] for pair in pairs))
            for which in ("p99", "p999")
        )
        made.sides[name] += " (p99 {}, p99.9 {})".format(*tail)
    return made


def of_times(what, pairs, reach, names=("TCP", "rddp"), **more):
    sides = dict(zip(names, map(time_name, medians(pairs))))
    return Item(what, ratios(pairs), at_most=reach, sides=sides, **more)


def measure_polling(plan, row):
    for size, reach in REACHES.items():
        what = f"Send of {size_name(size)} there and back, both ends polling"
        ping(plan, row, "poll", size, reach, f"{what}, apart", apart())
        ping(plan, row, "poll", size, None, f"{what}, together", together())


def measure_asleep(plan, row):
    what = f"Send of {size_name(SIZE)} there and back, both ends asleep"
    ping(
        plan,
        row,
        "channel",
        SIZE,
        1.3,
        f"{what} on the completion channel, as the scheduler puts them",
        {},
    )
    ping(
        plan,
        row,
        "sleep",
        SIZE,
        1.3,
        f"{what} in `CompletionQueue::wait`, as the scheduler puts them",
        {},
    )
    measure_sleep(plan, row)
    for wait, name in ASLEEP.items():
        ping(
            plan,
            row,
            wait,
            SIZE,
            1.4 if wait == "channel" else None,
            f"{what} {name}, together",
            together(),
        )
        ping(
            plan,
            row,
            wait,
            SIZE,
            1.3 if wait == "channel" else None,
            f"{what} {name}, apart",
            apart(),
        )


def measure_sleep(plan, row):
    """Measures whether ends that should sleep do: a message that has to wake somebody leaves the
    processor idle meanwhile."""
    for wait, name in ASLEEP.items():
        with plan.instrument() as ends:
            base = ends.open(op="tcp", size=SIZE, wait=wait, header=HEADER)
            ours = ends.open(op="send", size=SIZE, wait=wait)
            pairs = plan.compare(lambda: busy_share(base, plan), lambda: busy_share(ours, plan))
        sides = {side: f"{share:.0%}" for side, share in zip(("TCP", "rddp"), medians(pairs))}
        what = f"processor time of an end asleep {name}, share of the time that goes by"
        row.items.append(
            Item(what, [share for _, share in pairs], unit="", at_most=0.9, sides=sides)
        )


def busy_share(lane, plan):
    report = lane.slice("latency", plan.latency_ms)
    return (report["active"]["cpu_s"] + report["passive"]["cpu_s"]) / 2 / report["seconds"]


def measure_silent(plan, row):
    for name, where in {**PLACES, "as the scheduler puts them": dict}.items():
        with plan.instrument(**where()) as ends:
            base = ends.open(op="tcp", size=SIZE, wait="sleep", header=HEADER)
            ours = ends.open(op="write", size=SIZE)
            pairs = plan.compare(
                lambda: base.notice(plan.latency_ms), lambda: ours.notice(plan.latency_ms)
            )
        reach = 1.5 if name == "apart" else None
        row.items.append(of_quantiles(f"Write of 64 octets, one way, {name}", pairs, reach))


def measure_watch(plan, row):
    what = "polling for its own Write first, against never"
    for name, where in PLACES.items():
        watch_against(
            plan,
            row,
            f"{what}, {name}",
            2.0,
            lambda lane, ms: lane.times(ms, "silent"),
            "never",
            where(),
        )
    watch_against(
        plan,
        row,
        "against polling all the time, apart",
        None,
        lambda lane, ms: lane.times(ms),
        "all the time",
        apart(),
    )
    for name, where in PLACES.items():
        with plan.instrument(**where()) as ends:
            base = ends.open(op="tcp", size=SIZE, wait="poll", header=HEADER)
            ours = ends.open(op="write", size=SIZE)
            taken = plan.turns(
                [
                    lambda: base.times(plan.latency_ms),
                    lambda: ours.times(plan.latency_ms),
                    lambda: ours.times(plan.latency_ms, "watch"),
                ]
            )
        for place, how in (
            (1, "polling the queue while memory is watched"),
            (2, "polling for its own Write first"),
        ):
            pairs = [(turn[0], turn[place]) for turn in taken]
            row.items.append(of_quantiles(f"{how}, against TCP polling, {name}", pairs, None))


def watch_against(plan, row, what, reach, base, name, where):
    with plan.instrument(**where) as ends:
        lane = ends.open(op="write", size=SIZE)
        pairs = plan.compare(
            lambda: base(lane, plan.latency_ms), lambda: lane.times(plan.latency_ms, "watch")
        )
    row.items.append(of_quantiles(what, pairs, reach, (name, "then watches"), unit=f"x {name}"))


def measure_requests(plan, row):
    for size in REQUESTS:
        for name, where in PLACES.items():
            with plan.instrument(**where()) as ends:
                base = ends.open(op="tcp", size=size, wait="sleep", header=HEADER)
                ours = ends.open(op="send", size=size, wait="sleep")
                pairs = plan.compare(
                    lambda: base.times(plan.latency_ms, "request"),
                    lambda: ours.times(plan.latency_ms, "request"),
                )
            row.items.append(
                of_quantiles(
                    f"{size_name(size)} there and back on a new connection, {name}", pairs, None
                )
            )


def measure_small(plan, row):
    for way in ways():
        rounds = None if way.demanded else plan.slow_rounds
        with plan.instrument(**way.where) as ends:
            base = ends.open(op="tcp", size=SIZE, wait=way.wait, header=HEADER)
            many = ends.open(op="tcp", size=SIZE, wait=way.wait, header=HEADER, batch=64)
            for batch, reach in ((64, 5.0), (16, None), (1, None)):
                ours = ends.open(
                    op="send",
                    size=SIZE,
                    wait=way.wait,
                    depth=64,
                    batch=batch,
                    window=receives_of(SIZE, 64),
                )
                pairs = turns(plan, [base, ours], rounds)
                what = f"64 outstanding, posted {batch} at a time, {way.name}"
                row.items.append(small_item(what, pairs, at_least=reach if way.demanded else None))
                if batch == 64:
                    what = f"the same against one `writev` of 64, {way.name}"
                    row.items.append(small_item(what, turns(plan, [many, ours], rounds)))


def small_item(what, pairs, **more):
    made = item(what, pairs, **more)
    rates = medians([(base.rate, ours.rate) for base, ours in pairs])
    made.sides = {
        name: f"{rate / SIZE / 1e6:.2f} M/s" for name, rate in zip(("TCP", "rddp"), rates)
    }
    return made


PING = """Half of there and back, the median of a slice; beside it, the medians of the slowest in
100 and in 1000. TCP: one `write` of a header of 20 octets and the message (two pieces if it is
longer than 1 KiB), then `read` until all is there, `TCP_NODELAY`. Apart: each end kept on a
processor of its own; together: both on one."""

SMALL = """Messages a second on one connection. rddp posts lists of Sends, and 2048 receives; TCP
calls `write` for each message, or `writev` for 64, each behind a header of 20 octets, and
receives up to 64 KiB at once. Places and processor time are those of crc-off."""

REQUEST = """A connection for each message: opened, a Send there and one back, closed; the median
of the time of all of that. The active end makes a QP each time (TCP: a socket); both ends sleep
(blocking calls; `CompletionQueue::wait`), the passive end serves one after the other. An MPA
startup is a Request and a Reply, and a wait more than TCP has."""

PING_POLL = "TCP on non-blocking sockets that spin; rddp polls its completion queue."

PING_ASLEEP = """TCP in blocking calls; rddp arms its completion queue and sleeps on the
completion channel, or sleeps in `CompletionQueue::wait`. Where the scheduler puts two processes
that wake each other decides most of this (to wake another processor takes several times as long
as the messages do), so it is measured once more with both kept on one processor, and with each on
its own. That they do sleep is measured too: an end that spins would be busy all the time."""

SILENT = """All processes of a host share a clock. The sender puts the time into the message (64
octets), sends it and sleeps in a read of an ordinary TCP socket until the receiver nods. TCP: the
receiver sleeps in a blocking `read`. rddp: the receiving process looks at the message's place in
its memory and calls nothing but `sched_yield` in between; rddp's background thread places the
Write. The figure is the receiver's time of seeing it less the time in it. Apart, that thread
shares a processor with the process that looks; as the scheduler puts them, it need not."""

WATCH = """Writes of 64 octets there and back, half of that, as for ping-poll: the loop of
`ib_write_lat`, and of many a library that puts small messages into rings. Each end posts a Write,
polls the completion queue until it has completed, and then looks at memory, and makes no call of
rddp's, until the other's has come; so rddp's background thread has to place that. Against ends
that never poll, and against ends that poll at every look at memory; and these and the first
against TCP as ping-poll has it. A look in 64 gives way to other threads."""

ROWS = [
    RowKind(
        "small", "Sends of 64 octets, depth 64, against one `write` each", SMALL, measure_small
    ),
    RowKind(
        "ping-poll",
        "Ping-pong of 64 octets to 4 KiB, polling",
        f"{PING} {PING_POLL}",
        measure_polling,
    ),
    RowKind(
        "ping-asleep", "Ping-pong of 64 octets, asleep", f"{PING} {PING_ASLEEP}", measure_asleep
    ),
    RowKind(
        "silent",
        "A Write noticed in memory by a process that makes no rddp call",
        SILENT,
        measure_silent,
    ),
    RowKind(
        "watch",
        "Ping-pong of Writes, polling for one's own and then watching memory",
        WATCH,
        measure_watch,
    ),
    RowKind("requests", "A connection for each request", REQUEST, measure_requests),
]
