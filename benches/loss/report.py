"""Tables and charts of the loss experiment: report.py HOLES LATENCY [PATHS]

Writes them into docs/measurements/loss.md, between its marks, and figures/loss-*.svg beside it.
"""

import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benches/compare"))

from bench.svg import Chart  # noqa: E402

MODES = {"tcp": "TCP", "user": "placed at user level", "auto": "placed in the kernel behind holes",
         "kernel": "placed in the kernel"}
# Where a logarithmic axis has a loss of 0.
NO_LOSS = 0.003


def rows(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def percent(loss):
    return f"{loss / 100:g} %"


def short(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def micros(row):
    trip = row["cell"]["round_trip"]
    return trip["secs"] * 1_000_000 + trip["nanos"] // 1000


def after_holes(found):
    """Whole messages, and the part of them behind the hole, by both settings of TCP."""
    yield "| TCP's settings | | whole message | of user level | behind the hole | of user level | octets there | cpu |"
    yield "|---|---|---|---|---|---|---|---|"
    for tuned, settings in ((True, "large"), (False, "Linux's own")):
        by = {mode: [row for row in found if row["cell"]["tuned"] == tuned and row["cell"]["mode"] == mode
                     and row["after_hole_us"] is not None] for mode in MODES}

        def median(mode, of):
            return statistics.median(of(row) for row in by[mode])

        whole, behind = lambda row: row["received"]["median_us"], lambda row: row["after_hole_us"]
        for mode, name in MODES.items():
            placed = median(mode, lambda row: row["received"]["kernel_octets_behind"] / row["cell"]["message"])
            cpu = median(mode, lambda row: row["received"]["cpu_seconds"])
            yield (f"| {settings} | {name} ({len(by[mode])}) | {median(mode, whole) / 1e3:.2f} ms | "
                   f"{median(mode, whole) / median('user', whole):.2f} | {median(mode, behind):.0f} us | "
                   f"{median(mode, behind) / median('user', behind):.2f} | {placed:.0%} | {cpu * 1e3:.2f} ms |")


def added(found):
    """The time of a short message, and what each level adds to TCP's in the same round."""
    yield "| | median | more than TCP | least | most |"
    yield "|---|---|---|---|---|"
    by = {mode: [row["received"]["median_us"] for row in found if row["cell"]["mode"] == mode] for mode in MODES}
    for mode, name in MODES.items():
        more = [its - tcp for its, tcp in zip(by[mode], by["tcp"])]
        yield (f"| {name} ({len(by[mode])}) | {statistics.median(by[mode]):.0f} us | "
               f"{statistics.median(more):.0f} us | {min(more):.0f} us | {max(more):.0f} us |")


def cells(found):
    """Returns (round trip, MTU, loss, depth, mode) -> the rows of all rounds."""
    by = {}
    for row in found:
        cell = row["cell"]
        by.setdefault((micros(row), cell["mtu"], cell["loss"], cell["depth"], cell["mode"]), []).append(row)
    return by


def median_of(rows, value):
    return statistics.median(value(row) for row in rows)


VALUES = {
    "bandwidth": (8, "MB/s", lambda row: row["octets_per_second"] / 1e6),
    "p99": (1, "ms", lambda row: row["received"]["p99_us"] / 1e3),
    "median": (1, "ms", lambda row: row["received"]["median_us"] / 1e3),
    "cpu": (8, "s/GB", lambda row: row["received"]["cpu_seconds"] * 1e9
            / (row["received"]["messages"] * row["cell"]["message"])),
}


def table(by, what):
    depth, unit, value = VALUES[what]
    yield f"| round trip | MTU | loss | TCP, {unit} | user level | behind holes | all |"
    yield "|---|---|---|---|---|---|---|"
    for trip, mtu, loss in sorted({key[:3] for key in by}):
        found = [by.get((trip, mtu, loss, depth, mode)) for mode in MODES]
        if not all(found):
            continue
        tcp, *others = [median_of(rows, value) for rows in found]
        shown = " | ".join(f"{short(other)} ({other / tcp:.2f})" for other in others)
        yield f"| {trip / 1000:g} ms | {mtu} | {percent(loss)} | {short(tcp)} | {shown} |"


def ratios(by):
    """Returns lines: of user level's, what each mode has (median, least, most of all cells)."""
    yield "| | cells | behind holes | all |"
    yield "|---|---|---|---|"
    for what, title in [("bandwidth", "bandwidth"), ("median", "time of a message, median")]:
        depth, _, value = VALUES[what]
        for name, is_wanted in [("nothing lost", lambda loss: loss == 0), ("losses", lambda loss: loss > 0)]:
            cells = sorted({key[:3] for key in by if is_wanted(key[2])})
            user = [median_of(by[(*cell, depth, "user")], value) for cell in cells]
            shown = []
            for mode in ["auto", "kernel"]:
                of = [median_of(by[(*cell, depth, mode)], value) / base for cell, base in zip(cells, user)]
                shown.append(f"{statistics.median(of):.2f} ({min(of):.2f} to {max(of):.2f})")
            yield f"| {title}, {name} | {len(cells)} | {shown[0]} | {shown[1]} |"


def charts(by):
    for trip, mtu in sorted({key[:2] for key in by}):
        for what, title in [("bandwidth", "Bandwidth"), ("p99", "Time of a message, 99th percentile")]:
            depth, unit, value = VALUES[what]
            lines = {name: [(max(key[2] / 100, NO_LOSS), median_of(found, value)) for key, found in by.items()
                            if key[:2] == (trip, mtu) and key[3:] == (depth, mode)] for mode, name in MODES.items()}
            if not all(lines.values()):
                continue
            messages = "eight messages of 1 MiB" if depth == 8 else "one message of 64 KiB"
            how = f"MTU {mtu}, round trip {trip / 1000:g} ms; {messages} under way"
            chart = Chart(f"{title} over loss", how, unit, lines,
                          lambda loss: "0" if loss == NO_LOSS else f"{loss:g} %", "{:g}".format, x_title="segments lost")
            name = f"loss-{what}-{mtu}-{trip}.svg"
            (ROOT / "docs/measurements/figures" / name).write_text(chart.draw())
            yield f"![{title}, MTU {mtu}, {trip / 1000:g} ms](figures/{name})"


def main():
    holes, latency, *paths = sys.argv[1:]
    parts = {"holes": after_holes(rows(holes)), "latency": added(rows(latency))}
    for by in map(cells, map(rows, paths)):
        parts |= {"ratios": ratios(by), **{what: table(by, what) for what in VALUES}, "charts": charts(by)}
    page = ROOT / "docs/measurements/loss.md"
    text = page.read_text()
    for name, lines in parts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(begin)
        text = before + begin + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1]
    page.write_text(text)


main()
