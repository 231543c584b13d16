#!/usr/bin/env python3
"""Checks docs/conformance.md, from a checkout's root: every test that a row names exists.

A row is `| source | rule | tests |`. A test is a file of this tree and the functions in it,
separated by commas: `mpa/src/sizes.rs mulpdu_stays_within_its_range`; several files are separated
by semicolons. What stands in parentheses is a remark.
"""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")


def functions(path, known={}):
    if path not in known:
        known[path] = set(re.findall(r"fn ([a-z0-9_]+)", path.read_text())) if path.is_file() else None
    return known[path]


def faults(cell):
    for part in re.sub(r"\([^()]*\)", "", cell).split(";"):
        words = part.replace(",", " ").replace("`", "").split()
        if not words or not words[0].endswith(".rs"):
            continue
        known = functions(root / words[0])
        if known is None:
            yield f"no file {words[0]}"
            continue
        for word in words[1:]:
            if NAME.fullmatch(word) and word not in known:
                yield f"no test {word} in {words[0]}"


def main():
    rows = bad = 0
    for number, line in enumerate((root / "docs/conformance.md").read_text().splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 3 or set(line) <= set("|- "):
            continue
        rows += 1
        for fault in faults(cells[2]):
            print(f"docs/conformance.md:{number}: {fault}")
            bad += 1
    print(f"conformance: {rows} rows, {bad} faults")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
