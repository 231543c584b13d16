"""Costs of a call through librddp_sockets.so, as ext-sockets/preload/benches/cost.rs prints
them."""

import re
import subprocess

from ..result import Item
from .kind import RowKind


def measure(plan, row):
    words = ["cargo", "bench", "--package", "rddp-preload", "--bench", "cost", "--locked", "--quiet"]
    printed = subprocess.run(words, cwd=plan.root, stdout=subprocess.PIPE, text=True, check=True).stdout
    for call, figures in parse(printed):
        without, with_it, *more = figures
        sides = {"without": f"{without:.1f} ns", "with": f"{with_it:.1f} ns"}
        row.items.append(Item(call, more, unit="ns more", sides=sides))


def parse(table):
    """Parses a table: a line of heads; then a call, and nanoseconds without, with, and more at each
    start."""
    for line in table.splitlines()[1:]:
        if found := re.fullmatch(r"(.+?)((?: +-?[\d.]+)+)", line):
            yield found[1], list(map(float, found[2].split()))


METHOD = """Calls that have nothing to do and come straight back, on a plain TCP socket, on one processor. Two processes, with the library and
without, make batches of 2,000 calls by turns, 150 times; a value is the median difference of neighbouring batches, and
the processes start anew 9 times (`cargo bench -p rddp-preload`)."""

ROWS = [RowKind("calls", "Nanoseconds that the library adds to a call", METHOD, measure, page="sockets")]
