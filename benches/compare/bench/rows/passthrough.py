"""Sockets that are not in DDPMODE, with librddp_sockets.so loaded and without: figure 5 of the OSU
report."""

import contextlib

from ..plan import KIB, MIB, apart, medians, rate_name, size_name, time_name, together
from ..report import spread_name
from ..result import Item
from .kind import RowKind

SIZES = (1, 16, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB)
# Places of the ends, and the ways in which they wait there.
PLACES = {"on one processor, asleep": ("sleep", together), "each on its own, polling": ("poll", apart)}
# Number of times that processes start anew: the addresses of their memory make a difference as long
# as they live.
STARTS = 12
SLICES, SLICE_MS = 24, 6
REACH = 1.01


def window_of(size):
    """Returns the number of messages that go one way before they are answered."""
    return max(4, min(64, MIB // size))


def measure(take, name_of, chart):
    """Returns a row's measure: `take` returns a slice's figure, of which more is worse."""

    def measure_row(plan, row):
        starts, slices = (2, 3) if plan.quick else (STARTS, SLICES)
        for place, (wait, where) in PLACES.items():
            compared = {size: [] for size in SIZES}
            for number in range(starts):
                with contextlib.ExitStack() as stack:
                    programs = start(plan, stack, number, wait, where())
                    for size in SIZES:
                        compared[size].append(turns(plan, take, programs, size, slices))
            items_of(row, place, compared, name_of)
        row.series = [series(chart, place, row.items) for place in PLACES]

    return measure_row


def start(plan, stack, number, wait, where):
    """Starts three pairs of processes, (without, with, without), in an order that
    changes; lanes by size."""
    programs = [None] * 3
    for place in range(3):
        which = (place + number) % 3
        words = plan.preloaded if which == 1 else ()
        ends = stack.enter_context(plan.instrument(**{end: (*at, *words) for end, at in where.items()}))
        programs[which] = {size: ends.open(op="tcp", size=size, wait=wait, depth=window_of(size)) for size in SIZES}
    return programs


def turns(plan, take, programs, size, slices):
    """Returns figures without, with, and without once more: medians of slices that took turns."""
    kinds = [lambda lane=lanes[size]: take(lane) for lanes in programs]
    taken = plan.turns(kinds, slices)
    once, loaded, again = medians(taken)
    ratio, noise = medians([(with_it / first, second / first) for first, with_it, second in taken])
    return {"without": once, "with": loaded, "without, again": again, "ratio": ratio, "noise": noise}


def items_of(row, place, compared, name_of):
    for size, starts in compared.items():
        sides = dict(zip(("without", "with"), map(name_of(size), medians([(of["without"], of["with"]) for of in starts]))))
        noise = Item("", [of["noise"] for of in starts], fine=True)
        sides["without, against without"] = f"{noise.median:.4f} ({spread_name(noise)})"
        row.items.append(Item(f"{size_name(size)}, {place}", [of["ratio"] for of in starts], unit="x without", at_most=REACH,
                              sides=sides, fine=True, group=place))


def series(chart, place, items):
    points = [[size, item.median] for size, item in zip(SIZES, (item for item in items if item.group == place))]
    return {"chart": "passthrough", "line": f"{chart}, {place}", "points": points}


def latency(lane):
    return lane.latency(SLICE_MS)


def window(lane):
    """Returns the seconds of a window: a bandwidth as a figure of which less is better."""
    return lane.spec["depth"] * lane.spec["size"] / lane.window(SLICE_MS)


def bandwidth_name(size):
    return lambda seconds: rate_name(window_of(size) * size / seconds)


HOW = f"""The same program (`rddp-compare`, plain TCP, `TCP_NODELAY`) in three pairs of processes: without the library, with
it in `LD_PRELOAD`, and without it once more. Slices of {SLICE_MS} ms take turns; a value is the median of the ratios of
{SLICES} neighbouring slices, and the processes start anew {STARTS} times. The table has the median of these {STARTS}, and
the interval in which that median lies with 95 %, whatever the distribution. Without, against without, is what the
method itself makes of two alike. With both ends on one processor nothing of what either does is hidden, and
no processor has to be woken. Above 1: slower with the library."""

LATENCY = "Latency: the median of a slice's messages there and back, in blocking calls on one processor, or spinning on two."

BANDWIDTH = """Bandwidth, as the report does it: a window of messages (64, or 1 MiB of them, but at least four) is answered by
one octet; the ratio is of the time of a window."""

ROWS = [
    RowKind("plain-latency", "Plain sockets with the library against without: latency", f"{HOW} {LATENCY}",
            measure(latency, lambda _: time_name, "latency"), page="sockets"),
    RowKind("plain-bandwidth", "Plain sockets with the library against without: bandwidth", f"{HOW} {BANDWIDTH}",
            measure(window, bandwidth_name, "bandwidth"), page="sockets"),
]
