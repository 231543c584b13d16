"""The page of the ways of serving a file, from what `serving` has measured."""

import json
import statistics
from types import SimpleNamespace

from . import docs
from .docs import FOLDER
from .plan import MIB
from .serving import ALL, Cell, ratio
from .ways_of_files import BASE

PAGE = "docs/measurements/serving.md"
RESULT = "serving.json"
# The goals of `auto`: the server's processor time as a multiple of the least of all strategies.
NEAR = 1.10

HEAD = """<!-- Written by benches/compare/files --ways --docs: change that, and not this page. -->
# Measurements of serving files

The ways in which `rddp serve` gives one file to `rddp get` ([files](../files.md)), beside a server of plain TCP that reads and sends
(`TCP read`), that sends the CRC-32C of each piece as well (`TCP read, CRC`), and that uses `sendfile(2)`. The client of TCP checks
no more than that. `benches/compare/files --ways` measures all of it and writes this page.
"""

METHOD = """## Method

Each file is fetched by a command of its own over a connection of its own, into a file in memory (tmpfs); what the command takes to begin is
part of the client's time, and of short files most of it; up to 1 MiB most of the server's time is that of a connection and its request, as the cells of 4 KiB
show. A slice is {files} files (of 1 GiB, one). All ways take turns, forwards and
backwards; the table has medians of {rounds} slices, and behind a multiple the least and the most. Processor time is that of the whole
process, as the kernel counts it, the server's from the first connection of a slice on. Before each slice all pages of its files are in
memory (warm) or none is (cold: on the host's disk, ext4), which `mincore(2)` tells. Before the first slice the octets that arrive by a
way are compared with the file's. Over veth nothing is offloaded: segments are of 1,448 octets on both sides of it.

rddp's FPDUs have a CRC in all of them. "Checksum" is that of the client's `--checksum`: `crc32c` is one more for each chunk of `slots`
and `pipelined`; the ranges of `naive`, `map` and `region` have none but the FPDUs'. With `--checksum none` TCP's way with a CRC is left out.

System calls are those of `strace -f -c`, which slows both ends, in cells that are warm: of the server without its beginning and end,
and of the client whole. A file of up to 16 KiB comes in the answer to the request, by each of rddp's ways. Copies are those of an
octet at the server: out of the page cache and into TCP's buffers, which is in the nature of each way, and in user space, as
`rddp stat` counts them. A map's octets are copied once, and sendfile's not at all on one host.
"""


def write(result, root):
    # Of some only calls may have been counted.
    measured = [stored for stored in result["cells"] if stored["ways"].get(BASE.name, {}).get("server")]
    cells = [(Cell(**stored["cell"]), stored) for stored in measured]
    cells.sort(key=lambda pair: ALL.index(pair[0]))
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    (root / FOLDER / RESULT).write_text(json.dumps(result, indent=1) + "\n")
    (root / PAGE).write_text(text(result, cells))


def text(result, cells):
    measured = [SimpleNamespace(measured=stored["measured"]) for _, stored in cells]
    parts = [HEAD, docs.machine(result, measured), "## The server's processor time\n", INTRO, summary(cells),
             METHOD.format(**result), "## All figures\n"]
    for cell, stored in cells:
        parts += [f"### {cell.name[0].upper() + cell.name[1:]}\n", table(cell, stored["ways"])]
    return "\n".join(parts).rstrip() + "\n"


INTRO = f"""As a multiple of `{BASE.name}`'s in the same cell, medians. The last column compares `auto` with the least of rddp's ways that are
possible without `--immutable` (`map` needs that): the goal is {NEAR:.2f}. Of 4 KiB all of them are one way, and that column shows the spread.
"""


def summary(cells):
    names = list(dict.fromkeys(name for _, stored in cells for name in stored["ways"]))
    names.remove(BASE.name)
    lines = [["cell", *names, "auto / least"], ["---"] * (len(names) + 2)]
    for cell, stored in cells:
        ways = stored["ways"]
        values = [f"{ratio(ways, name):.2f}" if name in ways else "–" for name in names]
        lines.append([cell.name, *values, f"{of_least(ways):.2f}"])
    missing = [cell.name for cell in ALL if cell not in dict(cells)]
    return joined(lines) + (f"\nNot measured yet: {'; '.join(missing)}.\n" if missing else "")


def of_least(ways):
    """Returns the server's processor time of `auto` as a multiple of the least that it may be."""
    allowed = [name for name in ("naive", "slots", "pipelined", "region") if name in ways]
    return statistics.median(ways["auto"]["server"]) / min(statistics.median(ways[name]["server"]) for name in allowed)


def table(cell, ways):
    unit, octets = cell.unit
    # Of short files time is told for one, in milliseconds.
    time, factor = ("s for a GB", 1) if octets == MIB else ("ms for a file", octets / 1e6)
    heads = ["way", f"server, {time}", f"x {BASE.name}", f"client, {time}", "both ends, x", "MB/s",
             f"calls for {unit}: server; client", "copies"]
    lines = [heads, ["---"] * len(heads)]
    for name, found in ways.items():
        title = f"{name} ({', '.join(found['strategies'])})" if found.get("strategies") and found["strategies"] != [name] else name
        calls = "; ".join(f"{count * octets:.1f}" for count in found["calls"]) if "calls" in found else ""
        ours = [one / base for one, base in zip(found["server"], ways[BASE.name]["server"])]
        lines.append([
            title, f"{statistics.median(found['server']) * factor:.3f}", f"{ratio(ways, name):.2f} ({min(ours):.2f} … {max(ours):.2f})",
            f"{statistics.median(found['client']) * factor:.3f}", f"{ratio(ways, name, ('server', 'client')):.2f}",
            f"{statistics.median(found['rate']) / 1e6:,.0f}", calls, f"{found['copies']:.2f}".rstrip("0").rstrip("."),
        ])
    return joined(lines)


def joined(lines):
    return "\n".join("| " + " | ".join(line) + " |" if line[0] != "---" else "|" + "|".join(line) + "|" for line in lines) + "\n"
