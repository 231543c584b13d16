"""The page of devices that look like RoCE, from what `roce` has measured."""

import json

from . import docs
from .docs import FOLDER

PAGE = "docs/measurements/roce.md"
RESULT = "roce.json"

HEAD = """<!-- Written by benches/compare/roce --docs: change that, and not this page. -->
# Measurements of devices that look like RoCE

[Such devices](../roce.md) beside the TCP sockets that they stand on. `benches/compare/roce --docs` measures all of it and
writes this page.
"""

METHOD = """## How to read it

perftest's programs run over the device, and beside them qperf's `tcp_lat` and `tcp_bw` with messages of the same length;
UCX's over the device, and beside them UCX's own transport by TCP. The two take turns, {rounds} times each; the ratio is the
median of those of neighbours, with the least and the greatest one. Of latencies (us) less is better, of bandwidths (MB/s)
more. perftest looks at its queue all the time, qperf sleeps: on two processors that are both busy the one that sleeps is
better off, and on an idle virtual machine it is worse off by the time that waking takes, which is most of its latency
here. The latencies of UCX, whose ends all look, compare like with like. On loopback the device's octets have no CRC.
"""


def write(result, root):
    (root / FOLDER / RESULT).write_text(json.dumps(result, indent=1) + "\n")
    (root / PAGE).write_text(text(result))


def text(result):
    parts = [HEAD, docs.machine(result, []), METHOD.format(**result)]
    for network in result["networks"]:
        parts += [f"## {title(network['name'])}\n", table(network["rows"])]
    return "\n".join(parts).rstrip() + "\n"


def title(name):
    return "Loopback" if name == "loopback" else f"Two hosts, MTU {name}, nothing offloaded"


def table(rows):
    lines = [["", "device", "TCP", "ratio", "goal"], ["---"] * 5]
    for row in rows:
        spread = f"{row['ratio']:.2f} ({row['least']:.2f} to {row['most']:.2f})"
        goal = f"{'at most' if row['unit'] == 'us' else 'at least'} {row['goal']}{'' if row['met'] else ', not met'}"
        lines.append([row["name"], f"{row['ours']:,.2f} {row['unit']}", f"{row['tcp']:,.2f} {row['unit']}", spread, goal])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
