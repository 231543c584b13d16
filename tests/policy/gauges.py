#!/usr/bin/env python3
"""Numbers of the byte stream's crate that may only fall: how much of it knows of SDP, how large its
largest types are, and how many files name what exists to be measured. Whoever lowers one lowers its
limit in `LIMITS`.

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
    # The one is asked when a stream is opened.
    "questions for SDP outside of sdp/": 1,
    "files that ask them": 1,
    "uses of sdp/'s functions outside of it": 0,
    "lines that name SDP outside of sdp/": 29,
    "files that name it": 7,
    "methods of the largest type": 92,
    "files that those of one type stand in": 12,
    "fields of the largest struct": 16,
    # The ways to gather, and the report's two threads: they exist to be measured.
    "files that name what is measured alone": 3,
}

# A question is one under whatever name, if it is asked when the program runs.
QUESTION = re.compile(r"\b(?:is_sdp|has_messages|has_private_copies|beside)\(|\bdyn (?:Beside|Kind|Functions|Duties|Outbound)\b"
                      r"|\.has_messages [!=]=|[!=]= *Format::\w|\bmatches!\([^()]*, *Format::")
FUNCTION = re.compile(r"\bfn (\w+)")
# Those that may be called from outside sdp/.
OPEN = re.compile(r"^ *pub(?:\(crate\))? (?:const )?fn (\w+)", re.M)
# The types whose methods in sdp/ are SDP's part of something that is not its own.
FOREIGN = {"Stream", "Framed", "Base", "State"}
IMPL = re.compile(r"\bimpl(?:<[^>{}]*>)?\s+([A-Za-z]\w*)[^{;]*\{")
STRUCT = re.compile(r"\bstruct\s+(\w+)[^{;(]*\{")
METHOD = re.compile(r"^ {4}(?:pub(?:\([^)]*\))? )?(?:const |unsafe |extern \"C\" )*fn ", re.M)
# Another `Gather` is the trait that a train has.
MEASURED = re.compile(r"(?<!rddp_iwarp::)\bgather\b|by_thread|\bis_threaded\b", re.I)
FIELD = re.compile(r"^ {4}(?:pub(?:\([^)]*\))? )?\w+:", re.M)

# Files by their names, and what is counted in them.
SAMPLE = {
    "a.rs": "use crate::sdp::X;\nuse crate::sdp::{Y, of_sdp};\nstruct S {\n    a: u8,\n    pub(crate) b: u8,\n}\n"
            "impl S {\n    pub fn a(&self) {}\n    fn b(&self) { self.is_sdp() }\n}\n"
            "impl Drop for S {\n    fn drop(&mut self) {} // is_sdp()\n}\n",
    "b.rs": "impl<T> S<T> {\n    pub(crate) const fn c() {}\n}\n"
            "#[cfg(test)]\nmod tests {\n    fn sdp() { is_sdp() }\n}\n",
    "sdp/c.rs": "impl S {\n    fn sdp(&self) {}\n}\nimpl Stream<'_> {\n    pub fn offers(&self) {}\n    pub fn a(&self) {}\n}\n"
                "pub fn of_sdp() {}\n",
    "d.rs": "fn x(k: &dyn Kind) {\n    k.offers();\n    k.a();\n    of_sdp(f == Format::Octets);\n    let f = Format::Octets;\n"
            "    crate::Stream::a();\n}\nimpl rddp_iwarp::Gather for T {} // gather\n",
    "e.rs": "use options::Gather;\nfn x() { o.gather() }\n",
    "f.rs": "fn recv_by_thread() {}\n",
}
OF_SAMPLE = [3, 2, 2, 4, 2, 4, 3, 2, 2]


def bodies(code, head):
    """Yields the names behind `head`, and what stands in their braces."""
    for found in head.finditer(code):
        yield found, code[found.end():rust.end_of_braces(code, found.end() - 1)]


def gauges(files):
    """Returns the numbers, in the order of `LIMITS`, of files by their names."""
    codes = {name: rust.without_tests(rust.bare(text)) for name, text in files.items()}
    uses_of_sdp = uses(codes)
    asking, using, naming, methods, fields = [], [], [], collections.defaultdict(list), [0]
    for name, code in codes.items():
        if not name.startswith("sdp/"):
            asking += [name] * len(QUESTION.findall(code))
            using += uses_of_sdp.findall(code)
            naming += [name for line in code.split("\n") if re.search(r"sdp", line, re.I)]
        for found, body in bodies(code, IMPL):
            # A trait's methods are the trait's.
            if " for " not in found[0]:
                methods[found[1]] += [name] * len(METHOD.findall(body))
        fields += [len(FIELD.findall(body)) for _, body in bodies(code, STRUCT)]
    most = [max(map(count, methods.values()), default=0) for count in (len, lambda of: len(set(of)))]
    return [
        len(asking), len(set(asking)), len(using), len(naming), len(set(naming)), *most, max(fields),
        sum(1 for code in codes.values() if MEASURED.search(code)),
    ]


def uses(codes):
    """Returns a pattern of what stands where a function is called that sdp/ alone defines: one of
    its own, or a method there of a type that is not."""
    inside, outside, free = set(), set(), set()
    for name, code in codes.items():
        if not name.startswith("sdp/"):
            outside.update(FUNCTION.findall(code))
            continue
        free.update(re.findall(r"^pub(?:\(crate\))? (?:const )?fn (\w+)", code, re.M))
        for found, body in bodies(code, IMPL):
            if found[1] in FOREIGN and " for " not in found[0]:
                inside.update(OPEN.findall(body))
    methods = "|".join(sorted(inside - outside)) or "$."
    functions = "|".join(sorted(free - outside)) or "$."
    return re.compile(rf"(?:\.|::)(?:{methods})\(|\b(?:{functions})\(")


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
