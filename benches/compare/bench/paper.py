"""Figures of the paper on zero-copy SDP, and the same of a result of ours."""

from .charts import lines_of
from .plan import MIB, rate_name, size_name

PRIVATE, IN_CALL, ZCOPY = "private BCopy", "in-call BCopy", "ZCopy"

HEAD = """## Beside the paper

The paper's machines had two processors of 3.2 GHz and an InfiniBand adapter of 20 Gb/s that moved the octets of adverts by itself.
Here both ends share the processors of one machine and the kernel's TCP moves every octet, so the columns are to be read downwards:
where ZCopy begins to pay, and what it saves.

| | paper, BCopy | paper, ZCopy | here, private BCopy | here, in-call BCopy | here, ZCopy |
|---|---|---|---|---|---|
"""

TAIL = """
What a software transport cannot give: an adapter reads the sender's memory and writes the receiver's while both processors do
something else, so ZCopy there ends both copies and the work for each octet. Over TCP the kernel copies twice whatever is above it.
ZCopy saves what the private buffers of the paper's BCopy cost, and not more than in-call BCopy saves without an advert, a Read and
a report for each message: this is why nothing is advertised by default ([sdp.md](../sdp.md)).
"""


def beside(rows):
    """Returns the section that sets the paper's figures beside those of a result."""
    lines = lines_of(rows)
    if "sdp-bandwidth-1" not in lines:
        return ""
    table = [*(crossover_line(lines, count, said) for count, said in ((1, "128 KiB"), (2, "32 KiB"), (4, "16 KiB"))),
             best_line(lines), cpu_line(lines)]
    return HEAD + "\n".join(line for line in table if line) + "\n" + TAIL


def crossover_line(lines, count, said):
    rates = lines.get(f"sdp-bandwidth-{count}")
    if not rates:
        return ""
    name = f"{count} connection{'s' if count > 1 else ''}: ZCopy is faster from"
    return f"| {name} | | {said} | {crossover(rates, PRIVATE)} (than private) | {crossover(rates, IN_CALL)} (than in-call) | |"


def crossover(rates, base):
    """Returns the size from which on ZCopy is at no size slower than `base`."""
    base, ours = dict(map(tuple, rates[base])), dict(map(tuple, rates[ZCOPY]))
    found = None
    for size in sorted(ours, reverse=True):
        if ours[size] < base[size]:
            break
        found = size
    return size_name(found) if found else "never"


def best_line(lines):
    rates = lines.get("sdp-bandwidth-8")
    if not rates:
        return ""
    best = [rate_name(max(rate for _, rate in rates[name])) for name in (PRIVATE, IN_CALL, ZCOPY)]
    return f"| 8 connections, most at any size | 630 MB/s | 1360 MB/s (2.16 x) | {' | '.join(best)} |"


def cpu_line(lines):
    costs = lines.get("sdp-cpu-8")
    if not costs:
        return ""
    of = {name: dict(map(tuple, costs[name])) for name in (PRIVATE, IN_CALL, ZCOPY)}
    size = min(of[ZCOPY], key=lambda size: abs(size - MIB))
    shown = [f"{of[name][size]:.2f} s ({of[name][size] / of[PRIVATE][size]:.2f} x)" for name in (PRIVATE, IN_CALL, ZCOPY)]
    return f"| 8 connections, {size_name(size)}: processor time for a GB | 4 logical processors full | below half of one | {' | '.join(shown)} |"
