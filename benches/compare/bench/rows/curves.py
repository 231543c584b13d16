"""Curves for the charts beside other stacks: TCP and rddp over message size."""

from ..plan import apart, batch_of, medians, size_name
from ..ways import item, turns
from .bandwidth import DEPTH, HEADER, tcp
from .kind import RowKind
from .latency import of_quantiles

CRC = {"rddp Write": True, "rddp Write, CRC off": False}


def measure(plan, row):
    lines = {}
    for size in plan.sizes:
        measure_bandwidth(plan, row, size, lines)
        measure_latency(plan, row, size, lines)
    row.series = [
        {"chart": chart, "line": line, "points": points} for (chart, line), points in lines.items()
    ]


def measure_bandwidth(plan, row, size, lines):
    """Measures TCP and rddp, each by the better of sleeping and polling."""
    best = {}
    for wait in ("sleep", "poll"):
        with plan.instrument(**apart()) as ends:
            base = ends.open(**tcp(size, wait))
            for name, crc in CRC.items():
                ours = ends.open(
                    op="write",
                    size=size,
                    wait=wait,
                    depth=max(DEPTH, 64 if size < 4096 else 0),
                    batch=batch_of(size),
                    crc=crc,
                )
                pairs = turns(plan, [base, ours])
                for line, rate in zip(
                    ("TCP", name), medians([(base.rate, ours.rate) for base, ours in pairs])
                ):
                    best[line] = max(best.get(line, 0), rate)
                if crc:
                    row.items.append(item(f"Write {size_name(size)}, CRC on, {wait}", pairs))
    for line, rate in best.items():
        lines.setdefault(("bandwidth", line), []).append([size, rate])


def measure_latency(plan, row, size, lines):
    with plan.instrument(**apart()) as ends:
        base, ours = ends.open(op="tcp", size=size, header=HEADER), ends.open(op="send", size=size)
        pairs = plan.compare(
            lambda: base.times(plan.latency_ms), lambda: ours.times(plan.latency_ms)
        )
    row.items.append(
        of_quantiles(f"Send {size_name(size)} there and back, CRC on, polling", pairs, None)
    )
    for line, seconds in zip(
        ("TCP", "rddp Send"), medians([(base["p50"], ours["p50"]) for base, ours in pairs])
    ):
        lines.setdefault(("latency", line), []).append([size, seconds])


METHOD = """For each size the better of sleeping and polling ends, for TCP and for rddp each, each
end kept on a processor of its own; rddp posts up to 16 Writes or 256 KiB at a time, and TCP
writes the same by one `writev`. Header and processor time are those of crc-off. Latency as
ping-poll has it: both ends polling."""

ROWS = [RowKind("curves", "Over message size (the charts)", METHOD, measure)]
