#!/usr/bin/env python3
"""Numbers of the byte stream's crate that may only fall: how much of it knows of SDP, and how large
its largest types are. Whoever lowers one lowers its limit in `LIMITS`.

    tests/policy/gauges.py      prints them

check.py has the faults from here. First this tries itself on `SAMPLE`.
"""

import collections
import pathlib
import re
import sys

import rust

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = "ext-sockets/stream/src"

LIMITS = {
    "questions for SDP outside of sdp/": 7,
    "files that ask them": 5,
    "lines that name SDP outside of sdp/": 64,
    "files that name it": 17,
    "methods of the largest type": 319,
    "files that they stand in": 40,
    "fields of the largest struct": 16,
}

IMPL = re.compile(r"\bimpl(?:<[^>{}]*>)?\s+([A-Za-z]\w*)[^{;]*\{")
STRUCT = re.compile(r"\bstruct\s+(\w+)[^{;(]*\{")
METHOD = re.compile(r"^ {4}(?:pub(?:\([^)]*\))? )?(?:const |unsafe |extern \"C\" )*fn ", re.M)
FIELD = re.compile(r"^ {4}(?:pub(?:\([^)]*\))? )?\w+:", re.M)

# Files by their names, and what is counted in them.
SAMPLE = {
    "a.rs": "use crate::sdp::X;\nstruct S {\n    a: u8,\n    pub(crate) b: u8,\n}\n"
            "impl S {\n    pub fn a(&self) {}\n    fn b(&self) { self.is_sdp() }\n}\n"
            "impl Drop for S {\n    fn drop(&mut self) {} // is_sdp()\n}\n",
    "b.rs": "impl<T> S<T> {\n    pub(crate) const fn c() {}\n}\n"
            "#[cfg(test)]\nmod tests {\n    fn sdp() { is_sdp() }\n}\n",
    "sdp/c.rs": "impl S {\n    fn sdp(&self) {}\n}\n",
}
OF_SAMPLE = [1, 1, 2, 1, 4, 3, 2]


def bodies(code, head):
    """Yields the names behind `head`, and what stands in their braces."""
    for found in head.finditer(code):
        yield found, code[found.end():rust.end_of_braces(code, found.end() - 1)]


def gauges(files):
    """Returns the numbers, in the order of `LIMITS`, of files by their names."""
    asking, naming, methods, fields = [], [], collections.defaultdict(list), [0]
    for name, text in files.items():
        code = rust.without_tests(rust.bare(text))
        if not name.startswith("sdp/"):
            asking += [name] * len(re.findall(r"\bis_sdp\(", code))
            naming += [name for line in code.split("\n") if re.search(r"sdp", line, re.I)]
        for found, body in bodies(code, IMPL):
            # A trait's methods are the trait's.
            if " for " not in found[0]:
                methods[found[1]] += [name] * len(METHOD.findall(body))
        fields += [len(FIELD.findall(body)) for _, body in bodies(code, STRUCT)]
    largest = max(methods.values(), key=len, default=[])
    return [len(asking), len(set(asking)), len(naming), len(set(naming)), len(largest), len(set(largest)), max(fields)]


def measured():
    top = ROOT / SOURCES
    paths = {str(path.relative_to(top)): path for path in sorted(top.rglob("*.rs"))}
    return gauges({name: path.read_text() for name, path in paths.items() if "tests" not in name})


def check():
    """Yields what is wrong."""
    if (found := gauges(SAMPLE)) != OF_SAMPLE:
        yield f"gauges.py does not count its sample as it should: {found}"
    for (what, limit), found in zip(LIMITS.items(), measured()):
        if found > limit:
            yield f"{SOURCES}: {what}: {found}, at most {limit} are allowed"
        elif found < limit:
            yield f"{SOURCES}: {what}: {found}: lower the limit of {limit} in tests/policy/gauges.py"


def main():
    for what, found in zip(LIMITS, measured()):
        print(f"{what}: {found}")
    faults = list(check())
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
