"""The page of disks, from what `disks` has measured."""

import json

from . import docs
from .docs import FOLDER

PAGE = "docs/measurements/disks.md"
RESULT = "disks.json"

HEAD = """<!-- Written by benches/compare/disks --docs: change that, and not this page. -->
# Measurements of disks

`rddp block serve`, by NBD and by NVMe over RDMA ([disks](../block.md)), beside nbdkit's `file`, qemu-nbd and nbd-server, all of Debian.
`benches/compare/disks --docs` measures all of it and writes this page.
"""

METHOD = """## How to read it

The column of nbdkit has requests a second and microseconds of the server's processor a request; each further pair is a multiple of
these: the first more is better, the second less. Medians of {rounds}; a dash stands for no such way. The servers take turns, each with a process of its
own, on loopback; requests are `rddp block bench`'s, {seconds_of_slice} s a slice, so that a faster server also shows the limit of that client. The
disk is a file of 1 GiB that is in memory once it has been read, and writes are not flushed. The last rows are nbdcopy's with four
connections, of a disk that is full and of one a quarter full: seconds of the copy, and of the server's processor (less of both is
better).

The octets of NVMe go through iWARP with its CRC, those of NBD through TCP alone.
"""


def write(result, root):
    (root / FOLDER / RESULT).write_text(json.dumps(result, indent=1) + "\n")
    (root / PAGE).write_text(text(result))


def text(result):
    parts = [HEAD, docs.machine(result, []), METHOD.format(**result)]
    for place in result["places"]:
        parts += [f"## On {place['filesystem']}\n", table(place["cells"])]
    return "\n".join(parts).rstrip() + "\n"


def table(cells):
    names = [name for name in cells[0]["medians"] if name != "nbdkit"]
    lines = [["", "nbdkit", *names], ["---"] * (len(names) + 2)]
    for cell in cells:
        base = cell["medians"]["nbdkit"]
        lines.append([cell["cell"], figures(base), *(beside(cell["medians"].get(name), base) for name in names)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def figures(pair):
    return ", ".join(f"{value:,.0f}" if value >= 100 else f"{value:.2f}" for value in pair)


def beside(pair, base):
    return ", ".join(f"{value / of:.2f}" if of else "–" for value, of in zip(pair, base)) if pair else "–"
