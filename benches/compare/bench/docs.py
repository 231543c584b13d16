"""docs/performance.md and its charts, from a result."""

import json
import tomllib
from pathlib import Path

from . import report
from .plan import size_name
from .svg import Chart

NOTES = Path(__file__).resolve().parents[1] / "notes.toml"


def write(result, rows, root):
    folder = root / "docs/performance"
    folder.mkdir(parents=True, exist_ok=True)
    drawn = charts(rows)
    for name, chart in drawn.items():
        (folder / f"{name}.svg").write_text(chart.draw())
    (folder / "result.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    (root / "docs/performance.md").write_text(page(result, rows, drawn))


def charts(rows):
    """name -> chart, for those that something was measured of."""
    lines = {"bandwidth": {}, "latency": {}}
    # TCP and rddp come first in the legend.
    for row in sorted(rows, key=lambda row: row.name != "curves"):
        for series in row.series:
            lines[series["chart"]][series["line"]] = series["points"]
    drawn = {}
    if lines["bandwidth"]:
        how = ("one connection, loopback; TCP: one write a message; rddp: up to 16 requests posted at once; "
               "others: one at a time")
        drawn["bandwidth"] = Chart("Bandwidth over message size", how, "bandwidth", lines["bandwidth"], short_size, rate_tick)
    if lines["latency"]:
        how = "half of there and back, both ends polling, loopback"
        drawn["latency"] = Chart("Latency over message size", how, "one way", lines["latency"], short_size, time_tick)
    relative = against_tcp(lines["bandwidth"])
    if relative:
        how = "bandwidth of each, divided by that of TCP at the same size"
        drawn["relative"] = Chart("Bandwidth against TCP", how, "times TCP", relative, short_size, "{:g} x".format)
    return drawn


def against_tcp(lines):
    tcp = dict(map(tuple, lines.get("TCP", [])))
    if not tcp:
        return {}
    return {name: [(size, value / tcp[size]) for size, value in points if size in tcp] for name, points in lines.items()}


def short_size(size):
    return size_name(size).replace(" octets", " B")


def rate_tick(value):
    return f"{value / 1e9:g} GB/s" if value >= 1e9 else f"{value / 1e6:g} MB/s"


def time_tick(value):
    return f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} µs"


def page(result, rows, drawn):
    parts = [HEAD, machine(result), "## Reached and not\n", report.summary(rows)]
    if drawn:
        parts.append("## Over message size\n")
        parts.extend(f"![{chart.title}](performance/{name}.svg)\n" for name, chart in drawn.items())
    parts += [unreached(rows), METHOD.format(**result), "## All figures\n"]
    told = {}
    for row in rows:
        # Rows that are measured alike say so.
        same = told.setdefault(row.method, row.name)
        how = row.method if same == row.name else f"As {same}."
        parts += [f"### {row.name}: {row.title}\n", how + "\n", report.figures(row)]
    return "\n".join(parts).rstrip() + "\n"


def machine(result):
    of = result["machine"]
    pinned = " Each end was kept on a processor of its own." if result["pin"] else ""
    short = " This was a quick run, with slices too short to rely on." if result["quick"] else ""
    return (f"Measured on {of['date']} at commit `{of['commit']}`, in {result['seconds'] / 60:.0f} minutes: "
            f"{of['processor']}, {of['processors']} processors (virtual: {of['virtual']}), {of['memory_gib']:g} GiB, "
            f"Linux {of['kernel']}, {of['rust']}; load before the run {of['load']:.2f}.{pinned}{short}\n")


def unreached(rows):
    """Every row that misses something, and why as far as that is known."""
    notes = tomllib.loads(NOTES.read_text())
    parts = []
    for row in rows:
        missed = [item for item in row.items if item.reached is False]
        if not missed and not row.problem:
            continue
        parts.append(f"**{row.name}**: {row.title}.")
        if missed:
            parts.append(f"Missed: {'; '.join(f'{item.what} ({report.value_name(item)})' for item in missed)}.")
        if row.problem:
            parts.append(f"Not measured: {row.problem}.")
        parts.append(notes.get(row.name, {}).get("limit", "No reason has been written down yet.").strip() + "\n")
    return "\n".join(["## What was not reached, and why\n", *(parts or ["Nothing.\n"])])


HEAD = """<!-- Written by benches/compare/run --docs: change that, or benches/compare/notes.toml, and not this page. -->
# Performance

rddp against the plain TCP socket underneath it, and against the other stacks in user space that do RDMA over TCP: libfabric's
`tcp` provider and UCX's `tcp` transport. `benches/compare/run` measures all of it and writes this page.
"""

METHOD = """## Method

Every figure is a ratio of two slices of {ms} ms (bandwidth) or {latency_ms} ms (latency) that follow each other in
one run, in the same pair of processes where both sides are ours; which comes first alternates. The table has the
median of {rounds} ratios (at most 9 where a peer's program starts anew for each slice), with the least and the most.
Both ends are on this machine, on loopback and not tied to processors unless said otherwise. A slice ends when the
receiving end has said that it has everything. Messages leave from, and arrive in, the same memory again and again, at
all ends alike. "yes" and "NO" compare the median with the reach; "–" is information.
"""
