#!/usr/bin/env python3
"""Checks what the tree promises of itself, from a checkout's root:

- the pure crates name no sockets, clocks, threads, output, libc or unsafe, and of the standard
  library only what computes; nor do they depend on a crate that may;
- unsafe code stands in the rooms made for it alone, and in tests;
- arrows point down: a crate depends on what `NEEDS` says, and on no other of the workspace, and
  CONTRIBUTING.md shows them so;
- the files that docs/architecture.md names exist;
- every dependency has a licence that deny.toml allows, comes from the registry, and is named
  in docs/dependencies.md;
- files of a crate use each other in no larger circles than now, and some names stay apart from
  some places: see circles.py;
- what the byte stream knows of SDP, and its largest types, do not grow: see gauges.py;
- the prose is plain where it has been gone through: see prose.py.

Prints what is wrong, one line each; the exit status says whether anything is. First it tries
itself on `SAMPLES`, as prose.py does.
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

import circles
import gauges
import prose
import rust

# What each crate of the workspace may use of the others, from the bottom up. Nobody uses the last.
NEEDS = {
    "rddp-mpa": [],
    "rddp-ddp": [],
    "rddp-rdmap": ["rddp-mpa", "rddp-ddp"],
    "rddp-iwarp": ["rddp-mpa", "rddp-ddp", "rddp-rdmap"],
    "rddp-octets": ["rddp-mpa", "rddp-ddp", "rddp-rdmap", "rddp-iwarp"],
    "rddp-rdma": ["rddp-mpa", "rddp-ddp", "rddp-rdmap"],
    "rddp-fault-guard": [],
    "rddp-capture": [],
    "rddp-log": [],
    "rddp-stat": [],
    "rddp-kernel-patch": ["rddp-mpa", "rddp-ddp"],
    "rddp-verbs-layout": [],
    "rddp-verbs-device": ["rddp-rdma", "rddp-verbs-layout"],
    "rddp-rnic": ["rddp-kernel-patch", "rddp-mpa", "rddp-ddp", "rddp-rdmap", "rddp-iwarp", "rddp-rdma",
                  "rddp-fault-guard", "rddp-capture", "rddp-stat", "rddp-verbs-device"],
    "rddp-load": ["rddp-rnic"],
    "rddp-examples": ["rddp-rnic"],
    "rddp-sdp": [],
    "rddp-sdp-rnic": ["rddp-sdp", "rddp-rnic"],
    "rddp-decode": ["rddp-mpa", "rddp-ddp", "rddp-rdmap", "rddp-sdp"],
    # Of ext-sockets, only the switch knows `rnic`.
    "rddp-policy": [],
    "rddp-stream": ["rddp-mpa", "rddp-ddp", "rddp-rdmap", "rddp-iwarp", "rddp-octets", "rddp-sdp",
                    "rddp-fault-guard"],
    "rddp-real": ["rddp-fault-guard", "rddp-capture", "rddp-stream"],
    "rddp-es-api": ["rddp-real"],
    "rddp-switch": ["rddp-mpa", "rddp-capture", "rddp-log", "rddp-rnic", "rddp-sdp", "rddp-sdp-rnic", "rddp-policy",
                    "rddp-stream", "rddp-real", "rddp-es-api"],
    "rddp-preload": ["rddp-fault-guard", "rddp-stream", "rddp-real", "rddp-es-api", "rddp-switch"],
    "rddp-roce": ["rddp-policy"],
    "rddp-gateway": ["rddp-mpa", "rddp-ddp", "rddp-rdmap", "rddp-iwarp", "rddp-rdma", "rddp-verbs-device"],
    "rddp-verbs-abi": ["rddp-rnic", "rddp-log", "rddp-fault-guard", "rddp-policy", "rddp-roce", "rddp-verbs-layout"],
    "rddp-paths": ["rddp-policy"],
    "rddp-block": [],
    "rddp-command": ["rddp-rnic"],
    "rddp-block": [],
    "rddp-files": ["rddp-rnic", "rddp-command", "rddp-stat"],
    "rddp-cli": ["rddp-block", "rddp-command", "rddp-files", "rddp-stat", "rddp-iwarp", "rddp-rnic", "rddp-log", "rddp-load", "rddp-sdp",
                 "rddp-decode", "rddp-policy", "rddp-roce", "rddp-stream", "rddp-switch", "rddp-verbs-device", "rddp-gateway"],
    # What tests and measures.
    "rddp-test-support": ["rddp-mpa", "rddp-ddp", "rddp-rdmap"],
    "rddp-tests": ["rddp-block", "rddp-mpa", "rddp-rnic", "rddp-sdp", "rddp-sdp-rnic", "rddp-stream", "rddp-gateway"],
    "rddp-benches": ["rddp-mpa", "rddp-ddp", "rddp-rdmap", "rddp-octets", "rddp-rnic", "rddp-stream", "rddp-verbs-device"],
    "rddp-compare": ["rddp-rnic", "rddp-load", "rddp-switch"],
    "rddp-fake-verbs": ["rddp-verbs-layout"],
}
# Tests may use what is below their crate, this,
FOR_TESTS = "rddp-test-support"
# and what they load, or start programs under, which must have been built.
LOADED_BY_TESTS = {"rddp-cli": ["rddp-preload", "rddp-paths", "rddp-fake-verbs"], "rddp-compare": ["rddp-preload"],
                   "rddp-preload": ["rddp-fake-verbs"],
                   "rddp-rnic": ["rddp-fake-verbs"], "rddp-sdp-rnic": ["rddp-fake-verbs"],
                   "rddp-tests": ["rddp-fake-verbs"], "rddp-verbs-device": ["rddp-fake-verbs"]}

PURE = {
    "rddp-mpa": "mpa", "rddp-ddp": "ddp", "rddp-rdmap": "rdmap", "rddp-iwarp": "iwarp",
    "rddp-octets": "octets", "rddp-rdma": "rdma", "rddp-policy": "ext-sockets/policy", "rddp-sdp": "sdp-over-rddp",
    "rddp-decode": "decode", "rddp-stat": "stat", "rddp-block": "block",
}
# Crates outside the workspace on which a pure crate may depend.
PURE_NEEDS = {"bitflags", "crc-fast", "etherparse", "smallvec", "thiserror"}
# What a pure crate may name of the standard library. `core` knows addresses and lengths of time,
# but neither sockets nor clocks.
PURE_STD = {
    "array", "borrow", "cmp", "collections", "convert", "error", "fmt", "hash", "iter", "marker",
    "mem", "num", "ops", "option", "result", "slice", "str", "string", "vec",
}
PURE_MODULES = {"std": PURE_STD, "alloc": PURE_STD, "core": PURE_STD | {"net", "time"}}
# What it must not name besides: modules of tests are cut before, so that one left is no test.
IMPURE = re.compile(
    r"\b(?:unsafe|libc|socket2|nix|mio|extern\s+crate|mod\s+tests)\b"
    r"|\b(?:e?print(?:ln)?|dbg|thread_local|include)\s*!|#\s*!?\s*\[\s*path\b")
# A path into the standard library, or the library itself, which could get another name.
STANDARD = re.compile(r"\b(std|core|alloc)\s*::\s*(\w+|\*|\{)"
                      r"|\buse\s+(?:::\s*)?(?:std|core|alloc)\b(?!\s*::)"
                      r"|[{,]\s*(?:::\s*)?(?:std|core|alloc)\s+as\b")

# Places where unsafe code is allowed: a module, or one file of a few lines.
MOST_ROOMS = 16
ROOMS = [
    "fault-guard/src",  # signal handlers, and the page that fork clears
    "kernel-patch/src/kernel/sys.rs",  # mappings of eBPF maps
    "rnic/src/mem",
    "rnic/src/sys.rs",  # four system calls
    "rnic/src/pd.rs",  # ProtectionDomain::register passes its caller's promise on to mem,
    "benches/compare/src/register.rs",  # and the comparison is such a caller
    "ext-sockets/real/src",  # the C library's functions, by name
    "ext-sockets/stream/src/sys",  # system calls, and memory that processes share
    "ext-sockets/es-api/src/sys",  # socket calls on a program's memory, and what C programs pass
    "ext-sockets/switch/src/sys",  # memory that processes share, and what C programs pass
    "ext-sockets/preload",  # C signatures, and calls by them
    "verbs-layout/src",  # types of C functions, and octets of 0 as values of structures
    "verbs-device/src/sys",  # functions of libibverbs and librdmacm, and memory that devices use
    "verbs-abi/src/c",  # C structures, handles, and functions that take pointers
    "paths/src/calls.rs",  # the C library's functions, by name, and their signatures
    "sdp-over-rddp/rnic/src/sys",  # memory that a program lends to a socket, and userfaultfd
]

root = pathlib.Path(__file__).resolve().parents[2]


def line_of(code, offset):
    return code.count("\n", 0, offset) + 1


def group(code, start):
    """Yields the first word of each part of a group of imports, from behind its brace on."""
    depth, is_first = 1, True
    for token in re.compile(r"[{},]|[\w*]+").finditer(code, start):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth == 0:
            return
        if token[0] == ",":
            is_first = is_first or depth == 1
        elif is_first and token[0] not in "{}":
            is_first = False
            yield token[0]


def impure(text):
    """Yields what a pure crate must not have in its code: line, name."""
    code = rust.without_tests(rust.bare(text))
    for found in IMPURE.finditer(code):
        yield line_of(code, found.start()), found[0]
    for found in STANDARD.finditer(code):
        library, module = found[1], found[2]
        if library is None:
            yield line_of(code, found.start()), found[0]
            continue
        for module in group(code, found.end()) if module == "{" else [module]:
            if module not in PURE_MODULES[library]:
                yield line_of(code, found.start()), f"{library}::{module}"


def unsafe(text):
    """Yields the lines with unsafe code, outside of modules of tests."""
    code = rust.without_tests(rust.bare(text))
    for found in re.finditer(r"\bunsafe\b", code):
        yield line_of(code, found.start())


def may_be_unsafe(path):
    """Tells whether a file may have unsafe code: a test of a crate, or in one of the rooms."""
    if "tests" in path.parts and not {"src", "benches"} & set(path.parts):
        return True
    return prose.is_below(path, ROOMS) or path.parts[0] == "fuzz"


def sources():
    """Yields the Rust files of the tree, new ones too, but none that git is told to ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.rs"]
    listed = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout
    for name in sorted(filter(None, listed.decode().split("\0"))):
        if (root / name).is_file():
            yield pathlib.PurePosixPath(name), (root / name).read_text()


def purity(files):
    for name, folder in PURE.items():
        if "#![forbid(unsafe_code)]" not in (root / folder / "src/lib.rs").read_text():
            yield f"{folder}/src/lib.rs does not forbid unsafe code"
        for path, text in files:
            is_test = "tests" in path.with_suffix("").parts
            if prose.is_below(path, [f"{folder}/src"]) and not is_test:
                for line, what in impure(text):
                    yield f"{path}:{line}: {what} in a pure crate ({name})"


def unsafe_rooms(files):
    if len(ROOMS) > MOST_ROOMS:
        yield f"unsafe code may stand in {len(ROOMS)} places, {MOST_ROOMS} are enough"
    for path, text in files:
        if not may_be_unsafe(path):
            for line in unsafe(text):
                yield f"{path}:{line}: unsafe code outside of the ROOMS of check.py"


def below(name):
    """Returns all crates of the workspace that a crate is built on."""
    found, left = set(), [name]
    while left:
        new = set(NEEDS.get(left.pop(), [])) - found
        found |= new
        left += new
    return found


def table():
    """Yields what is wrong with `NEEDS`: each crate may need only crates above its own line."""
    names = list(NEEDS)
    for name, needs in NEEDS.items():
        for need in needs:
            if need not in names[:names.index(name)]:
                yield f"NEEDS: {need} does not stand before {name}, which needs it"


def arrow(name, kind, need):
    """Returns what is wrong with a crate's dependency on another, or None."""
    if kind == "dev":
        allowed = below(name) | {FOR_TESTS, *LOADED_BY_TESTS.get(name, [])}
        if need in NEEDS and need not in allowed:
            return f"tests of {name} depend on {need}, which is not below it"
    elif name in PURE and need not in (PURE if need in NEEDS else PURE_NEEDS):
        return f"{name}, a pure crate, depends on {need}"
    elif need in NEEDS and need not in NEEDS[name]:
        return f"{name} depends on {need}, which is not among its NEEDS"
    return None


def shown():
    """Returns the arrows as CONTRIBUTING.md has them: a line for each crate that needs others."""
    short = {name: name.removeprefix("rddp-") for name in NEEDS}
    lines = [f"{short[name]:<13}-> {' '.join(short[need] for need in needs)}"
             for name, needs in NEEDS.items() if needs]
    return "\n".join(["```text", *lines, "```"])


def arrows(packages):
    yield from table()
    if shown() not in (root / "CONTRIBUTING.md").read_text():
        yield f"CONTRIBUTING.md does not have the arrows of NEEDS, which are\n{shown()}"
    ours = {package["name"]: package for package in packages if package["source"] is None}
    for name in NEEDS.keys() ^ ours.keys():
        yield f"{name} has no line in NEEDS" if name in ours else f"NEEDS: there is no {name}"
    for name in NEEDS.keys() & ours.keys():
        for need in ours[name]["dependencies"]:
            if fault := arrow(name, need["kind"], need["name"]):
                yield fault


def map_of_files(text):
    """Yields the files and folders that a page names and that are not there."""
    for name in sorted(set(re.findall(r"`([\w.-]+/[\w./-]*)`", text))):
        if not (root / name).exists():
            yield f"docs/architecture.md: there is no {name}"


def is_allowed(licence, policy):
    """Tells whether of an expression such as "MIT OR Apache-2.0" one choice is allowed whole."""
    text = (licence or "").replace("/", " OR ").replace("(", "").replace(")", "")
    return any(all(part.strip() in policy for part in choice.split(" AND "))
               for choice in text.split(" OR "))


def licences(packages):
    policy = tomllib.loads((root / "deny.toml").read_text())["licenses"]["allow"]
    named = (root / "docs/dependencies.md").read_text()
    ours = {package["name"]: package for package in packages if package["source"] is None}
    for name, package in ours.items():
        for need in sorted({need["name"] for need in package["dependencies"]} - ours.keys()):
            if f"`{need}`" not in named:
                yield f"docs/dependencies.md does not name {need}, which {name} uses"
    for package in packages:
        if package["source"] is None:
            continue
        if not package["source"].startswith("registry+"):
            yield f"{package['name']} comes from {package['source']}"
        if not is_allowed(package["license"], policy):
            yield f"{package['name']} {package['version']}: licence {package['license']}"


# Code, and how many names in it a pure crate must not have, and how many times it is unsafe.
SAMPLES = [
    ("use std::{io, net::TcpStream};\n", 2, 0),
    ("use std::{fmt, collections::{BTreeMap, VecDeque}, ops::Range};\n", 0, 0),
    ("use {core::fmt, std::{fmt::{self, Write}, time::Instant}};\n", 1, 0),
    ("use std::*;\nuse std::{self as s};\nuse std as t;\nuse {std as u};\n", 4, 0),
    ("fn a() -> ::std::net::TcpStream { std :: env::args() }\n", 2, 0),
    ("use core::{net::IpAddr, time::Duration};\nfn a(core: u8) {}\n", 0, 0),
    ("fn a() { println!(); eprintln!(); print!(\"\"); dbg !(1); format!(\"\"); }\n", 4, 0),
    ("extern crate libc;\ninclude!(\"a.rs\");\n#[path = \"b.rs\"]\nmod b;\n", 4, 0),
    ("// std::net\n/* std::io /* dbg!() */ unsafe */\nconst A: &str = \"std::fs unsafe\";\n", 0, 0),
    ("#[cfg(test)]\nmod tests;\n", 0, 0),
    ("mod tests;\n", 1, 0),
    ("#[cfg(test)]\nmod a {\n    use std::io;\n    unsafe { b() }\n}\nunsafe { c() }\n", 1, 1),
    ("#[cfg(test)] // a\n#[cfg(unix)]\npub(crate) mod b { let c = '}'; unsafe {} }\n", 0, 0),
    ("let a = \"http://a\"; unsafe { b() }\n", 1, 1),
    ("let a = ['\"', unsafe { b() }, '\"', b'\\'', '\\u{22}'];\n", 1, 1),
    ("let a = r#\"\" unsafe \"#; let b = \"\\\" unsafe\"; fn c<'a, 'b>(d: &'a u8) {}\n", 0, 0),
    ("pub unsafe fn a() {}\nunsafe extern \"C\" {}\n#[unsafe(no_mangle)]\nfn b() {}\n", 3, 3),
    ("#![forbid(unsafe_code)]\n", 0, 0),
]
# Files, and whether they may have unsafe code.
PLACES = {
    "rnic/src/mem/octets.rs": True, "rnic/src/qp/core.rs": False, "rnic/tests/fork.rs": True,
    "mpa/examples/a.rs": False, "mpa/build.rs": False, "mpa/src/tests/a.rs": False,
    "benches/compare/tests/a.rs": False, "tests/support/src/lib.rs": False,
}
# Dependencies, and whether they pass.
ARROWS = [
    ("rddp-rdmap", None, "rddp-ddp", True), ("rddp-policy", None, "rddp-rnic", False),
    ("rddp-policy", "build", "rddp-rnic", False), ("rddp-mpa", "build", "libc", False),
    ("rddp-mpa", "dev", "serde_json", True), ("rddp-ddp", "dev", "rddp-rnic", False),
    ("rddp-stream", None, "rddp-rnic", False), ("rddp-stream", "dev", "rddp-rnic", False),
    ("rddp-switch", None, "rddp-rnic", True), ("rddp-rnic", "build", "rddp-load", False),
    ("rddp-rnic", "dev", "rddp-test-support", True), ("rddp-rnic", None, "libc", True),
    ("rddp-rnic", None, "rddp-test-support", False), ("rddp-preload", "dev", "rddp-ddp", True),
    ("rddp-test-support", None, "rddp-rnic", False), ("rddp-load", "dev", "rddp-stream", False),
]


def self_test():
    """Yields where the rules do not find what is wrong in the samples, or find what is right."""
    for text, names, blocks in SAMPLES:
        found = [what for _, what in impure(text)]
        if len(found) != names:
            yield f"check.py: a pure crate must not have {found}, not {names} names, in {text!r}"
        if len(list(unsafe(text))) != blocks:
            yield f"check.py: unsafe on lines {list(unsafe(text))}, not {blocks} times, in {text!r}"
    for path, wanted in PLACES.items():
        if may_be_unsafe(pathlib.PurePosixPath(path)) != wanted:
            yield f"check.py: may {path} have unsafe code? {wanted} is right"
    for name, kind, need, passes in ARROWS:
        if (arrow(name, kind, need) is None) != passes:
            yield f"check.py: {name} on {need} ({kind}): does it pass? {passes} is right"
    if len(list(map_of_files("`mpa/src/rx.rs` `mpa/src/` `mpa/src/no.rs` `mpa/no/`"))) != 2:
        yield "check.py: files that are not there are not told from those that are"
    if is_allowed("A OR MIT AND B", ["MIT"]) or not is_allowed("A/(MIT AND B)", ["MIT", "B"]):
        yield "check.py: choices of licences are not understood"


def main():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"]
    said = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout
    packages = json.loads(said)["packages"]
    files = list(sources())
    faults = [*self_test(), *purity(files), *unsafe_rooms(files), *arrows(packages),
              *map_of_files((root / "docs/architecture.md").read_text()),
              *licences(packages), *circles.check(), *gauges.check(), *prose.check()]
    for fault in faults:
        print(fault)
    print(f"policy: {len(packages)} packages, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
