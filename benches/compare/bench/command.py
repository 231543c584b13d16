"""Options, and the order of the steps."""

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import machine, network, report, setup
from .docs import PAGES
from .instrument import Fault
from .plan import Plan
from .result import CannotMeasure, Row
from .rows import ROWS

ROOT = Path(__file__).resolve().parents[3]


def main():
    # On SIGTERM, exit normally: processes that were started end, and namespaces are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = arguments()
    page = PAGES[options.page]
    if options.list:
        for kind in ROWS:
            if kind.page == options.page:
                print(f"{kind.name:<16} {kind.title}")
        return 0
    try:
        result = joined(options.report) if options.report else measure(options)
    except (OSError, json.JSONDecodeError, subprocess.CalledProcessError) as reason:
        # No cargo, a build that fails, a file that is no result: the message says what to do about
        # it.
        print(f"compare: {reason}", file=sys.stderr)
        return 1
    rows = [Row.from_dict(stored) for stored in result["rows"]]
    if options.docs or options.report:
        page.write(result, rows, ROOT)
        print(f"{page.path} and what it shows are written")
    if not options.report:
        store(result, rows, page, Path(options.out))
    return 1 if any(row.faulty for row in rows) else 0


def joined(files):
    """Returns one result of several, each with some of the rows.

    Of a row that several have, the last counts.
    """
    results = [json.loads(Path(file).read_text()) for file in files]
    found = {}
    for result in results:
        of = result["machine"]
        when = f"{of['date']} at commit `{of['commit']}`"
        for row in result["rows"]:
            found[row["name"]] = {"measured": when} | row
    rows = [found[kind.name] for kind in ROWS if kind.name in found]
    return results[-1] | {"rows": rows, "seconds": sum(row["seconds"] for row in rows)}


def store(result, rows, page, out):
    out.mkdir(parents=True, exist_ok=True)
    (out / page.result).write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    (out / "table.md").write_text(report.markdown(rows))
    for name, chart in page.charts(rows).items():
        (out / f"{name}.svg").write_text(chart.draw())
    print(f"table.md, {page.result} and charts are in {out}")


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/compare/run",
        description="Measures rddp against plain TCP, libfabric's tcp and UCX's tcp on this machine. Every figure is a ratio "
                    "of slices that take turns. What is missing is installed from Debian (as root).",
        epilog="The exit status says whether everything ran, not how fast it was: 1 when something hung or broke.")
    parser.add_argument("--sockets", action="store_true",
                        help="the rows of sockets under librddp_sockets.so (docs/measurements/sockets.md) instead")
    parser.add_argument("--sdp", action="store_true",
                        help="the rows of sockets that speak SDP (docs/measurements/sdp.md) instead")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    parser.add_argument("--only", metavar="ROW", action="append", choices=[kind.name for kind in ROWS],
                        help="measure this row; may be given again")
    parser.add_argument("--congestion", metavar="NAME", default=network.usual(),
                        help="TCP's congestion control of all peers alike, but in rows that name another (here: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="short slices: to see that everything runs")
    parser.add_argument("--out", metavar="DIR", default=str(ROOT / "target/compare"), help="where results go (%(default)s)")
    parser.add_argument("--docs", action="store_true", help="write the page in docs/ and its charts from this run")
    parser.add_argument("--report", metavar="FILE", action="append",
                        help="write those from a stored result, and measure nothing; may be given again, for more rows")
    options = parser.parse_args()
    options.page = "sdp" if options.sdp else "sockets" if options.sockets else "engine"
    if options.only and any(kind.page != options.page for kind in ROWS if kind.name in options.only):
        parser.error("rows of one page at a time (--sockets, --sdp)")
    return options


def measure(options):
    target = setup.build(ROOT)
    rounds, ms, latency_ms = (3, 30, 20) if options.quick else (15, 60, 40)
    plan = Plan(ROOT, target, rounds, ms, latency_ms, options.quick)
    described = machine.describe(ROOT) | {"congestion": options.congestion}
    begun = time.monotonic()
    rows = []
    for kind in ROWS:
        if kind.name in options.only if options.only else kind.page == options.page:
            rows.append(measure_row(plan, kind, kind.congestion or options.congestion))
            print(report.terminal(rows[-1]), flush=True)
    return {"machine": described, "quick": options.quick, "rounds": rounds, "ms": ms,
            "latency_ms": latency_ms, "seconds": time.monotonic() - begun, "rows": [row.as_dict() for row in rows]}


def measure_row(plan, kind, congestion):
    row = Row(kind.name, kind.title, " ".join(kind.method.split()))
    begun = time.monotonic()
    try:
        setup.install(kind.packages)
        if kind.needs_root and not setup.is_root():
            raise CannotMeasure("needs root")
        with network.under(congestion):
            kind.measure(plan, row)
    except CannotMeasure as reason:
        row.problem = str(reason)
    except (Fault, subprocess.CalledProcessError) as fault:
        row.problem, row.faulty = str(fault), True
        print(f"{kind.name}: {fault}", file=sys.stderr)
    row.seconds = time.monotonic() - begun
    return row
