#!/usr/bin/env python3
"""Reads the logs of ThreadSanitizer that are its arguments, in which places are numbers, and prints
the races in words.

One kind is nobody's fault and is counted only: about a file descriptor. A program uses a number
that another thread closes; those under tests/stress do so on purpose.

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
    for report in reports:
        print(report, end="\n\n")
    print(f"{len(numbers)} reports about numbers of files, {len(reports)} others")
    return 1 if reports else 0


if __name__ == "__main__":
    sys.exit(main([log for log in map(pathlib.Path, sys.argv[1:]) if log.is_file()]))
