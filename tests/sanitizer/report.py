#!/usr/bin/env python3
"""Reads the logs of ThreadSanitizer that are its arguments, in which places are numbers, and prints
the races in words.

Two kinds are nobody's fault and are counted only:

- about a file descriptor: a program uses a number that another thread closes. Those under
tests/stress do so on purpose;
- about registered memory that a peer in the same process writes or reads. Who orders that is the
program, as with hardware (RFC 5040 §5.5).

Exit status 1 if there are others.
"""

import collections
import pathlib
import re
import subprocess
import sys

PLACE = re.compile(r"<null> <null> \((\S+)\+(0x[0-9a-f]+)\).*")
BUILT = pathlib.Path("target/sanitizer")
DEBUG = BUILT / "build/x86_64-unknown-linux-gnu/debug"
# Folders of binaries that a report names without a folder.
FOLDERS = [DEBUG, DEBUG / "deps", BUILT / "programs", pathlib.Path("target/toolchain")]
# The functions that touch registered memory, on behalf of a peer or of the program; under the fault
# guard, which touches no other, the callers are not in the report.
REGISTERED = re.compile(r"rddp_rnic::mem::(grant::Grant|octets|region::Region)|rddp_fault_guard_call")
ABOUT_A_NUMBER = "Location is file descriptor"


def races(log):
    """Returns the reports of one log."""
    reports = log.read_text(errors="replace").split("=" * 18)
    return [report.strip() for report in reports if "WARNING: ThreadSanitizer" in report]


def resolve(reports):
    """Returns the functions and lines at each place that these reports name."""
    wanted = collections.defaultdict(set)
    for name, address in PLACE.findall("\n".join(reports)):
        wanted[name].add(address)
    found = {}
    for name, addresses in wanted.items():
        binary = next((folder / name for folder in FOLDERS if (folder / name).is_file()), None)
        if binary is None:
            continue
        lines = subprocess.run(["addr2line", "-aCfipse", binary, *addresses], capture_output=True, text=True).stdout
        for entry in re.split(r"^(?=0x)", lines, flags=re.MULTILINE)[1:]:
            address, _, text = entry.partition(": ")
            found[name, int(address, 16)] = " ".join(text.split())
    return found


def in_words(report, found):
    return PLACE.sub(lambda place: found.get((place[1], int(place[2], 16)), place[0]), report)


def main(logs):
    reports = [report for log in logs for report in races(log)]
    numbers = [report for report in reports if ABOUT_A_NUMBER in report]
    reports = [report for report in reports if ABOUT_A_NUMBER not in report]
    found = resolve(reports)
    reports = [in_words(report, found) for report in reports]
    left = [report for report in reports if not REGISTERED.search(report)]
    for report in left:
        print(report, end="\n\n")
    print(f"{len(numbers)} reports about numbers of files, {len(reports) - len(left)} about registered memory, {len(left)} others")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main([log for log in map(pathlib.Path, sys.argv[1:]) if log.is_file()]))
