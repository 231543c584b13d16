"""Ten thousand connections in one process."""

import resource
import time

from .. import setup
from ..plan import apart, medians, ratios, together
from ..result import CannotMeasure, Item
from .kind import RowKind

CONNECTIONS, ACTIVE = 10_000, 100
DESCRIPTORS = CONNECTIONS + 200
IDLE_S = 2
LANE = {"op": "send", "size": 64, "depth": 4, "window": 16}


def measure(plan, row):
    if not setup.is_root() and resource.getrlimit(resource.RLIMIT_NOFILE)[1] < DESCRIPTORS:
        raise CannotMeasure(f"needs {DESCRIPTORS} descriptors in a process, or root (ulimit -Hn)")
    where = apart()
    with plan.instrument(**where) as crowd, plan.instrument(**where) as alone:
        before = crowd.usage()
        ours = crowd.open(**LANE, connections=CONNECTIONS, active=ACTIVE, wait="poll")
        after = crowd.usage()
        seconds = ours.opened["seconds"]
        row.items.append(
            Item(
                "connections a second, one after the other",
                [CONNECTIONS / seconds],
                unit="/s",
                sides={"all": f"{seconds:.2f} s"},
            )
        )
        for end in ("active", "passive"):
            row.items.append(memory(end, after[end]["resident"] - before[end]["resident"]))
        row.items.append(idle(crowd))
        few = alone.open(**LANE, connections=ACTIVE, wait="poll")
        row.items.append(rates("polling, apart", plan, few, ours, 0.9))
    for wait, how, kept in (
        ("sleep", "asleep while they wait, apart", where),
        ("poll", "polling, together", together()),
    ):
        with plan.instrument(**kept) as crowd, plan.instrument(**kept) as alone:
            ours = crowd.open(**LANE, connections=CONNECTIONS, active=ACTIVE, wait=wait)
            few = alone.open(**LANE, connections=ACTIVE, wait=wait)
            row.items.append(rates(how, plan, few, ours, 0.9 if kept is where else None))


def memory(end, grown):
    """Makes an item of an upper limit of our own memory: all memory that became present
    meanwhile."""
    receives = LANE["window"] if end == "passive" else 8
    what = f"memory of the process for each idle QP, {end} end, {receives} receives posted"
    return Item(
        what,
        [grown / CONNECTIONS / 1024],
        unit="KiB",
        at_most=8,
        sides={"all": f"{grown / (1 << 20):.1f} MiB"},
    )


def idle(ends):
    time.sleep(0.2)
    before = ends.usage()
    time.sleep(IDLE_S)
    after = ends.usage()
    shares = [
        (after[end]["cpu_s"] - before[end]["cpu_s"]) / IDLE_S * 100 for end in ("active", "passive")
    ]
    return Item(
        "idle: processor time of each end, share of the time that goes by",
        shares,
        unit="%",
        at_most=0.1,
    )


def rates(how, plan, few, ours, reach):
    pairs = plan.compare(lambda: few.rate(plan.ms), lambda: ours.rate(plan.ms))
    sides = dict(
        zip(("100 alone", "100 of 10,000"), (f"{rate / 1e6:.3f} M/s" for rate in medians(pairs)))
    )
    return Item(
        f"Sends of 64 octets on 100 of 10,000 QPs, both ends {how}",
        ratios(pairs),
        unit="x 100 alone",
        at_least=reach,
        sides=sides,
    )


METHOD = """Ten thousand QPs in each of the two processes. Memory is the growth of the resident
set (which the kernel's sockets are no part of) while they are made and connected, with their
receives and the 128 octets of buffer that each has here. The rate is of Sends posted one at a
time, four outstanding on each active QP; 100 alone are another pair of processes. Each end is
kept on a processor of its own, or (together) both on one."""

ROWS = [RowKind("many", "10,000 connected QPs in one process", METHOD, measure)]
