"""The pages of the docs and their charts, from a result."""

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import charts, paper, report

NOTES = Path(__file__).resolve().parents[1] / "notes.toml"
# Folder of all charts and results.
FOLDER = Path("docs/measurements/figures")


@dataclass
class Page:
    path: Path
    # In `FOLDER`.
    result: str
    charts: Callable
    head: str
    method: str
    # Text about what the rows say together, from them.
    beside: Callable = lambda rows: ""

    def write(self, result, rows, root):
        (root / FOLDER).mkdir(parents=True, exist_ok=True)
        drawn = self.charts(rows)
        for name, chart in drawn.items():
            (root / FOLDER / f"{name}.svg").write_text(chart.draw())
        (root / FOLDER / self.result).write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        (root / self.path).write_text(self.text(result, rows, drawn))

    def text(self, result, rows, drawn):
        parts = [self.head, machine(result, rows), GOALS, report.summary(rows)]
        if drawn:
            beside = FOLDER.relative_to(self.path.parent)
            parts.append("## Over message size\n")
            parts.extend(f"![{chart.title}]({beside / name}.svg)\n" for name, chart in drawn.items())
        parts += [self.beside(rows), short_of_goal(rows), self.method.format(**result), "## All figures\n"]
        told = {}
        for row in rows:
            # Rows that are measured in the same way share a description.
            same = told.setdefault(row.method, row.name)
            how = row.method if same == row.name else f"As {same}."
            if row.measured and row.measured != last(rows):
                how += f" Measured on {row.measured}."
            parts += [f"### {row.name}: {row.title}\n", how + "\n", report.figures(row)]
            if about := notes().get(row.name, {}).get("about"):
                parts.append(about.strip() + "\n")
        return "\n".join(parts).rstrip() + "\n"


def last(rows):
    """Returns when the rows of the last run were measured, if there were several."""
    return max((row.measured for row in rows), default="")


def machine(result, rows):
    of = result["machine"]
    short = " This was a quick run, with slices too short to rely on." if result["quick"] else ""
    parts = " (older rows say so)" if len({row.measured for row in rows}) > 1 else ""
    return (f"Measured on {of['date']} at commit `{of['commit']}`, in {result['seconds'] / 60:.0f} minutes{parts}: "
            f"{of['processor']}, {of['processors']} processors (virtual: {of['virtual']}), {of['memory_gib']:g} GiB, "
            f"Linux {of['kernel']}, TCP under {of['congestion']}, {of['rust']}; load before the run {of['load']:.2f}.{short}\n")


def notes():
    return tomllib.loads(NOTES.read_text())


def short_of_goal(rows):
    """Returns each row with a figure short of its goal, and the reason as far as it is known."""
    parts = []
    for row in rows:
        short = [item for item in row.items if item.reached is False]
        if not short and not row.problem:
            continue
        parts.append(f"**{row.name}**: {row.title}.")
        if short:
            parts.append(f"Short of the goal: {'; '.join(f'{item.what} ({report.value_name(item)})' for item in short)}.")
        if row.problem:
            parts.append(f"Not measured: {row.problem}.")
        parts.append(notes().get(row.name, {}).get("limit", "No reason has been written down yet.").strip() + "\n")
    return "\n".join(["## Short of the goal, and why\n", *(parts or ["Nothing.\n"])])


GOALS = """## Goals and measurements

A goal is this project's own: the ratio or value that a figure should reach (≥) or not exceed (≤), as `benches/compare/bench/rows/`
has it. No standard asks for it, and it is no promise.

Behind a spread whose least ratio is below three quarters of the median stands a star: on virtual machines TCP itself swings between
states for minutes, and a median over two of them says little. All sockets have one congestion control, unless a row names another.
"""

ENGINE_HEAD = """<!-- Written by benches/compare/run --docs: change that, or benches/compare/notes.toml, and not this page. -->
# Measurements of RDMA

rddp against the plain TCP socket underneath it, and against the other stacks in user space that do RDMA over TCP: libfabric's
`tcp` provider and UCX's `tcp` transport. `benches/compare/run` measures all of it and writes this page. What sockets cost under
`librddp_sockets.so`, in DDPMODE and not, is in [a page of its own](sockets.md); for a summary see
[performance](../performance.md).
"""

ENGINE_METHOD = """## Method

Every figure is a ratio of two slices of {ms} ms (bandwidth) or {latency_ms} ms (latency) that
follow each other in one run, in the same pair of processes where both sides are ours; which comes
first alternates. The table has the median of {rounds} ratios (at most 9 where a peer's program
starts anew for each slice, and where a figure is for information), with the least and the most.
Both ends are on this machine, on loopback unless said otherwise. Ends that poll are kept in place,
all peers alike: apart (each end on a processor of its own), which has the goal, or together (both
on one). A slice ends when the receiving end has said that it has everything. Messages leave from,
and arrive in, the same memory again and again, which begins in the middle of a page at all ends
that we wrote; a message of TCP has a header, as an FPDU has one. "Goal met" compares
the median with the goal; "–" is information.
"""

SOCKETS_HEAD = """<!-- Written by benches/compare/run --sockets --docs: change that, or benches/compare/notes.toml, and not this page. -->
# Measurements of sockets

What programs pay that run with `librddp_sockets.so` ([extended sockets](../extended-sockets.md)): for plain sockets, which pass
through it, and for sockets in DDPMODE. These are figures 5 and 6, and the comparison of ways to gather, of the report that
DDPMODE comes from (OSU-CISRC-6/05-TR37, 2005), measured anew. `benches/compare/run --sockets` measures all of it and writes
this page. rddp's own interface is in [a page of its own](rdma.md); for a summary see [performance](../performance.md).
"""

SOCKETS_METHOD = """## Method

Every figure compares slices that take turns in one run, each side first as often as the other; each row says how long they
are and where the ends run. Unless a row says otherwise the table has the median of {rounds} ratios (or differences) of
neighbouring slices, with the least and the most. Both ends are on this machine. Messages leave from, and arrive in, the same
memory again and again, which begins in the middle of a page, at all ends alike. "Goal met" compares the median with the
goal; "–" is information.
"""

SDP_HEAD = """<!-- Written by benches/compare/run --sdp --docs: change that, or benches/compare/notes.toml, and not this page. -->
# Measurements of SDP

The [Sockets Direct Protocol](../sdp.md) for unmodified programs, beside DDPMODE and plain TCP on the same connections. The charts have the
shape of figures 5 to 11 of "Transparently Achieving Superior Socket Performance using Zero Copy SDP over 20 Gb/s InfiniBand Links"
(Goldenberg, Kagan, Ravid, Tsirkin). `benches/compare/run --sdp` measures all of it and writes this page.
"""

PAGES = {
    "engine": Page(Path("docs/measurements/rdma.md"), "rdma.json", charts.engine, ENGINE_HEAD, ENGINE_METHOD),
    "sdp": Page(Path("docs/measurements/sdp.md"), "sdp.json", charts.sdp, SDP_HEAD, SOCKETS_METHOD,
                paper.beside),
    "sockets": Page(Path("docs/measurements/sockets.md"), "sockets.json", charts.sockets, SOCKETS_HEAD, SOCKETS_METHOD),
}
