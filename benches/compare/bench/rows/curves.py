"""Curves for the charts beside other stacks: TCP and rddp over message size."""

from ..plan import medians, size_name
from ..result import Item
from .bandwidth import DEPTH
from .kind import RowKind
from ..plan import batch_of, rate_name, ratios
from .latency import of_times

CRC = {"rddp Write": True, "rddp Write, CRC off": False}


def measure(plan, row):
    lines = {}
    for size in plan.sizes:
        measure_bandwidth(plan, row, size, lines)
        measure_latency(plan, row, size, lines)
    row.series = [{"chart": chart, "line": line, "points": points} for (chart, line), points in lines.items()]


def measure_bandwidth(plan, row, size, lines):
    """Measures TCP and rddp, each by the better of sleeping and polling."""
    best = {}
    for wait in ("sleep", "poll"):
        with plan.instrument() as ends:
            base = ends.open(op="tcp", size=size, wait=wait)
            for name, crc in CRC.items():
                ours = ends.open(op="write", size=size, wait=wait, depth=max(DEPTH, 64 if size < 4096 else 0),
                                 batch=batch_of(size), crc=crc)
                pairs = plan.compare(lambda: base.bandwidth(plan.ms), lambda: ours.bandwidth(plan.ms))
                for line, rate in zip(("TCP", name), medians(pairs)):
                    best[line] = max(best.get(line, 0), rate)
                if crc:
                    base_rate, our_rate = medians(pairs)
                    row.items.append(Item(f"Write {size_name(size)}, CRC on, {wait}", ratios(pairs),
                                          sides={"TCP": rate_name(base_rate), "rddp": rate_name(our_rate)}))
    for line, rate in best.items():
        lines.setdefault(("bandwidth", line), []).append([size, rate])


def measure_latency(plan, row, size, lines):
    with plan.instrument() as ends:
        base, ours = ends.open(op="tcp", size=size), ends.open(op="send", size=size)
        pairs = plan.compare(lambda: base.latency(plan.latency_ms), lambda: ours.latency(plan.latency_ms))
    row.items.append(of_times(f"Send {size_name(size)} there and back, CRC on, polling", pairs, None))
    for line, seconds in zip(("TCP", "rddp Send"), medians(pairs)):
        lines.setdefault(("latency", line), []).append([size, seconds])


METHOD = """For each size the better of sleeping and polling ends, for TCP and for rddp each; rddp posts up to 16
Writes or 256 KiB at a time. Latency: half of there and back, both ends polling."""

ROWS = [RowKind("curves", "Over message size (the charts)", METHOD, measure)]
