#!/usr/bin/env python3
"""Checks what the tree promises of itself, from a checkout's root:

- the protocol crates are pure: no unsafe, libc, sockets, clocks or threads, in their code or by
what they depend on;
- unsafe code stands in the rooms made for it alone;
- arrows point down: a crate depends on the layers below it only, and none on what measures or tests
them;
- every package of the workspace has its place in this script: a layer, or a tool beside them;
- every dependency has a licence that deny.toml allows, comes from the registry, and is named
in docs/dependencies.md;
- the prose is plain where it has been gone through: see prose.py.

Prints what is wrong, one line each; the exit status says whether anything is.
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

import prose

PURE = {"rddp-mpa": "mpa", "rddp-ddp": "ddp", "rddp-rdmap": "rdmap", "rddp-iwarp": "iwarp", "rddp-rdma": "rdma", "rddp-policy": "ext-sockets/policy"}
# Names that must not occur in a pure crate's code.
IMPURE = re.compile(
    r"\b(unsafe|libc|std::net|std::thread|std::time|std::fs|std::io|std::os|std::process|std::sync|socket2|nix|mio)\b")
# Crates outside the workspace on which a pure crate may depend.
PURE_NEEDS = {"bitflags", "crc-fast", "smallvec", "thiserror"}
# Crates that measure and test the layers: none of the layers may depend on them.
OUTSIDE = {"rddp-benches", "rddp-compare", "rddp-tests", "rddp-test-support"}
# The layers, from the bottom up.
LAYERS = [
    "rddp-mpa", "rddp-ddp", "rddp-rdmap", "rddp-iwarp", "rddp-rdma", "rddp-fault-guard", "rddp-rnic", "rddp-sdp",
    "rddp-policy", "rddp-stream", "rddp-real", "rddp-es-api", "rddp-switch", "rddp-preload", "rddp-load", "rddp-cli",
]
# Places where unsafe code is allowed: a module, or one file of a few lines.
MOST_ROOMS = 11
ROOMS = [
    "fault-guard/src",  # signal handlers, and the page that fork clears
    "rnic/src/mem",
    "rnic/src/conn/sys.rs",  # two system calls on TCP sockets
    "rnic/src/pd.rs",  # ProtectionDomain::register passes its caller's promise on to mem,
    "benches/compare/src/register.rs",  # and the comparison is such a caller
    "ext-sockets/real/src",  # the C library's functions, by name
    "ext-sockets/stream/src/sys",  # system calls, and memory that processes share
    "ext-sockets/es-api/src/sys",  # socket calls on a program's memory, and what C programs pass
    "ext-sockets/switch/src/sys",  # memory that processes share, and what C programs pass
    "ext-sockets/preload",  # C signatures, and calls by them
]

root = pathlib.Path(__file__).resolve().parents[2]
faults = []


def code(path):
    """Returns a source file without comments, strings and its tests at the bottom."""
    text = re.split(r"#\[cfg\(test\)\]\n(?:pub\(\w+\) )?mod \w+ {", path.read_text())[0]
    text = re.sub(r"//.*", "", text)
    return re.sub(r'"(\\.|[^"\\])*"', '""', text)


def pure_crates():
    for name, folder in PURE.items():
        if "#![forbid(unsafe_code)]" not in (root / folder / "src/lib.rs").read_text():
            faults.append(f"{folder}/src/lib.rs does not forbid unsafe code")
        for path in (root / folder / "src").rglob("*.rs"):
            if path.name == "tests.rs" or "tests" in path.relative_to(root / folder / "src").parts:
                continue
            for number, line in enumerate(code(path).splitlines(), 1):
                found = IMPURE.search(line.replace("forbid(unsafe_code)", ""))
                if found:
                    faults.append(f"{path.relative_to(root)}:{number}: {found[0]} in a pure crate ({name})")


def unsafe_rooms():
    if len(ROOMS) > MOST_ROOMS:
        faults.append(f"unsafe code may stand in {len(ROOMS)} places, {MOST_ROOMS} are enough")
    rooms = [root / room for room in ROOMS]
    for path in {*root.glob("**/src/**/*.rs"), *root.glob("**/benches/**/*.rs")}:
        if {"fuzz", "target"} & set(path.relative_to(root).parts) or any(
                room == path or room in path.parents for room in rooms):
            continue
        body = code(path).replace("allow(unsafe_code)", "").replace("deny(unsafe_code)", "")
        for block in re.finditer(r"\bunsafe\b(?! fn)", body.replace("forbid(unsafe_code)", "")):
            line = body.count("\n", 0, block.start()) + 1
            faults.append(f"{path.relative_to(root)}:{line}: unsafe outside {', '.join(ROOMS)}")


def arrows(packages):
    for package in packages:
        name = package["name"]
        if package["source"] is None and name not in LAYERS and name not in OUTSIDE:
            faults.append(f"{name} is neither a layer nor outside of them: say so in {pathlib.Path(__file__).name}")
        if name not in LAYERS:
            continue
        for need in package["dependencies"]:
            if need["kind"] is not None:
                continue
            if need["name"] in OUTSIDE:
                faults.append(f"{name} depends on {need['name']}")
            elif need["name"] not in LAYERS:
                if name in PURE and need["name"] not in PURE_NEEDS:
                    faults.append(f"{name}, a pure crate, depends on {need['name']}")
            elif LAYERS.index(need["name"]) >= LAYERS.index(name):
                faults.append(f"{name} depends on {need['name']}, which is not below it")


def licences(metadata):
    policy = tomllib.loads((root / "deny.toml").read_text())["licenses"]["allow"]
    named = (root / "docs/dependencies.md").read_text()
    ours = {package["name"] for package in metadata["packages"] if package["source"] is None}
    for package in metadata["packages"]:
        if package["source"] is None:
            for need in package["dependencies"]:
                if need["name"] not in ours and f"`{need['name']}`" not in named:
                    faults.append(f"docs/dependencies.md does not name {need['name']}, which {package['name']} uses")
            continue
        if not package["source"].startswith("registry+"):
            faults.append(f"{package['name']} comes from {package['source']}")
        # An expression such as "MIT OR Apache-2.0": one alternative, all of its parts allowed.
        text = (package["license"] or "").replace("/", " OR ").replace("(", "").replace(")", "")
        if not any(all(part.strip() in policy for part in choice.split(" AND ")) for choice in text.split(" OR ")):
            faults.append(f"{package['name']} {package['version']}: licence {package['license']}")


def main():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"]
    metadata = json.loads(subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout)
    pure_crates()
    unsafe_rooms()
    arrows(metadata["packages"])
    licences(metadata)
    faults.extend(prose.check())
    for fault in faults:
        print(fault)
    print(f"policy: {len(metadata['packages'])} packages, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
