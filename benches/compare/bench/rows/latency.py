"""Short messages: one at a time, and many."""

from ..plan import apart, medians, ratios, receives_of, time_name, together
from ..result import Item
from .kind import RowKind

SIZE = 64


def ping(plan, row, wait, reach, what, **where):
    with plan.instrument(**where) as ends:
        base = ends.open(op="tcp", size=SIZE, wait=wait)
        ours = ends.open(op="send", size=SIZE, wait=wait)
        pairs = plan.compare(lambda: base.latency(plan.latency_ms), lambda: ours.latency(plan.latency_ms))
        row.items.append(of_times(what, pairs, reach))


def of_times(what, pairs, reach, names=("TCP", "rddp"), **more):
    sides = dict(zip(names, map(time_name, medians(pairs))))
    return Item(what, ratios(pairs), at_most=reach, sides=sides, **more)


def measure_polling(plan, row):
    ping(plan, row, "poll", 1.15, "Send of 64 octets there and back, both ends polling")


def measure_asleep(plan, row):
    ping(plan, row, "channel", 1.3, "Send of 64 octets there and back, both ends asleep on the completion channel")
    ping(plan, row, "sleep", 1.3, "both ends asleep in `CompletionQueue::wait`")
    measure_sleep(plan, row)
    ping(plan, row, "channel", 1.3, "asleep on the completion channel, both ends kept on one processor", **together())
    ping(plan, row, "channel", 1.3, "asleep on the completion channel, each end kept on a processor of its own", **apart())


def measure_sleep(plan, row):
    """Measures whether ends that should sleep do: a message that has to wake somebody leaves the
    processor idle meanwhile."""
    for wait, name in (("channel", "on the completion channel"), ("sleep", "in `CompletionQueue::wait`")):
        with plan.instrument() as ends:
            base, ours = ends.open(op="tcp", size=SIZE, wait=wait), ends.open(op="send", size=SIZE, wait=wait)
            pairs = plan.compare(lambda: busy_share(base, plan), lambda: busy_share(ours, plan))
        sides = {name: f"{share:.0%}" for name, share in zip(("TCP", "rddp"), medians(pairs))}
        what = f"processor time of an end asleep {name}, share of the time that goes by"
        row.items.append(Item(what, [share for _, share in pairs], unit="", at_most=0.9, sides=sides))


def busy_share(lane, plan):
    report = lane.slice("latency", plan.latency_ms)
    return (report["active"]["cpu_s"] + report["passive"]["cpu_s"]) / 2 / report["seconds"]


def measure_silent(plan, row):
    with plan.instrument() as ends:
        base = ends.open(op="tcp", size=SIZE, wait="sleep")
        ours = ends.open(op="write", size=SIZE)
        pairs = plan.compare(lambda: base.notice(plan.latency_ms), lambda: ours.notice(plan.latency_ms))
        row.items.append(of_times("Write of 64 octets, one way", pairs, 1.5))


def measure_watch(plan, row):
    what = "polling for its own Write first, against never"
    watch_against(plan, row, f"{what}, each end kept on a processor of its own", 2.0, lambda lane, ms: lane.watch(ms, polls=False),
                  "never", **apart())
    watch_against(plan, row, f"{what}, both ends kept on one processor", 2.0, lambda lane, ms: lane.watch(ms, polls=False),
                  "never", **together())
    watch_against(plan, row, "against polling all the time, each end kept on a processor of its own", None,
                  lambda lane, ms: lane.latency(ms), "all the time", **apart())


def watch_against(plan, row, what, reach, base, name, **where):
    with plan.instrument(**where) as ends:
        lane = ends.open(op="write", size=SIZE)
        pairs = plan.compare(lambda: base(lane, plan.latency_ms), lambda: lane.watch(plan.latency_ms))
        row.items.append(of_times(what, pairs, reach, (name, "then watches")))


def measure_small(plan, row):
    for wait in ("poll", "sleep"):
        with plan.instrument() as ends:
            base = ends.open(op="tcp", size=SIZE, wait=wait)
            for batch, reach in ((64, 5.0), (16, None), (1, None)):
                ours = ends.open(op="send", size=SIZE, wait=wait, depth=64, batch=batch, window=receives_of(SIZE, 64))
                pairs = plan.compare(lambda: base.rate(plan.ms), lambda: ours.rate(plan.ms))
                what = f"64 outstanding, posted {batch} at a time, both ends {'polling' if wait == 'poll' else 'asleep'}"
                sides = [f"{rate / 1e6:.2f} M/s" for rate in medians(pairs)]
                row.items.append(Item(what, ratios(pairs), at_least=reach, sides=dict(zip(("TCP", "rddp"), sides))))


PING = """Half of there and back, the median of a slice. TCP: one `write`, then `read` until all is there,
`TCP_NODELAY`."""

SMALL = """Messages a second on one connection. rddp posts lists of Sends, and 2048 receives; TCP calls `write` for
each message and receives up to 64 KiB at once."""

PING_POLL = "TCP on non-blocking sockets that spin; rddp polls its completion queue."

PING_ASLEEP = """TCP in blocking calls; rddp arms its completion queue and sleeps on the completion channel, or sleeps
in `CompletionQueue::wait`. Where the scheduler puts two processes that wake each other decides most of this (to wake
another processor takes several times as long as the messages do), so it is measured once more with both kept on one
processor, and with each on its own. That they do sleep is measured too: an end that spins would be busy all the time."""

SILENT = """All processes of a host share a clock. The sender puts the time into the message (64 octets), sends it and
sleeps in a read of an ordinary TCP socket until the receiver nods. TCP: the receiver sleeps in a blocking `read`.
rddp: the receiving process looks at the message's place in its memory and calls nothing but `sched_yield` in between;
rddp's background thread places the Write. The figure is the receiver's time of seeing it less the time in it."""

WATCH = """Writes of 64 octets there and back, half of that, the median of a slice: the loop of `ib_write_lat`, and of many a
library that puts small messages into rings. Each end posts a Write, polls the completion queue until it has completed, and then
looks at memory, and makes no call of rddp's, until the other's has come; so rddp's background thread has to place that. Against
ends that never poll, and against ends that poll at every look at memory. A look in 64 gives way to other threads."""

ROWS = [
    RowKind("small", "Sends of 64 octets, depth 64, against one `write` each", SMALL, measure_small),
    RowKind("ping-poll", "Ping-pong of 64 octets, polling", f"{PING} {PING_POLL}", measure_polling),
    RowKind("ping-asleep", "Ping-pong of 64 octets, asleep", f"{PING} {PING_ASLEEP}", measure_asleep),
    RowKind("silent", "A Write noticed in memory by a process that makes no rddp call", SILENT, measure_silent),
    RowKind("watch", "Ping-pong of Writes, polling for one's own and then watching memory", WATCH, measure_watch),
]
