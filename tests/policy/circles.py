#!/usr/bin/env python3
"""Finds circles between the files of a crate: files each of which uses, directly or by way of
others, each of the rest. None may be larger than `LARGEST` says. And holds some names apart from
some places: `APART`.

A file uses another when it names something that is defined there, in a path that begins with
`crate`, `self` or `super`. Where a module only hands on what others define (`pub use`), that is no
use, and the file that defines it counts. That a module has submodules does not count, nor do
modules of tests.

    tests/policy/circles.py [CRATE...]      prints the circles of crates, which are named by folders

check.py has the faults from here. First this tries itself on `SAMPLE`.
"""

import pathlib
import re
import sys
import tempfile

import rust

sys.setrecursionlimit(10_000)
ROOT = pathlib.Path(__file__).resolve().parents[2]

# The most files that may be in one circle of a crate, by its folder. Other crates have none.
LARGEST = {
    "command": 2, "decode": 3, "ext-sockets/es-api": 2, "ext-sockets/policy": 3, "ext-sockets/preload": 2,
    "ext-sockets/stream": 4, "ext-sockets/switch": 8, "fault-guard": 7, "files": 4, "kernel-patch": 3,
    "rdmap": 3, "rnic": 13, "sdp-over-rddp/rnic": 3, "tests/support": 2, "verbs-abi": 20,
}

# Places (a folder, or a file), what must not be named there, and why.
APART = [
    ("rnic/src/conn", r"\brddp_mpa\s*::(?!\s*(?:Negotiated|Revision|\{Negotiated, Revision\});)",
     "frames of MPA are the wire's: rnic/src/wire/iwarp/opening.rs"),
    ("rnic/src/wire", r"\b(?:QpInner|DeviceInner|QueuePair|CompletionQueue|SharedReceiveQueue|Rnic)\b",
     "a wire knows what is below it alone"),
    ("rnic/src/queues", r"\b(?:QpInner|DeviceInner|QueuePair|CompletionQueue|SharedReceiveQueue|Rnic|Link|"
     r"Connection)\b", "queues know what is below them alone"),
    ("rnic/src/qp", r"\b(?:Link|Plain|Wire)\b", "a wire is called by way of its Connection"),
    ("rnic/src/conn", r"\b(?:Link|Plain|Wire)\b", "a wire is called by way of its Connection"),
]

# A crate by its files, and the circles in it.
SAMPLE = {
    "lib.rs": "mod a; mod b; mod c; #[cfg(test)] mod tests { use crate::a::A; }",
    "a.rs": "use crate::b::{self, Handed}; pub struct A; // crate::c::C",
    "b/mod.rs": "mod d; pub use self::d::D as Handed;",
    "b/d.rs": "pub struct D; fn d(_: super::super::a::A) {}",
    "c.rs": "use crate::a::A;",
}
IN_SAMPLE = [["a.rs", "b/d.rs"]]

USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+((?:crate|self|super)\b[^;]*);")
PATH = re.compile(r"\b(?:crate|self|super)(?:\s*::\s*\w+)+")
MODULE = re.compile(r"\bmod\s+(\w+)\s*;")


def leaves(tree, prefix=()):
    """Yields the paths of a `use` tree, and the name that each gets."""
    tree = tree.strip()
    depth, start, parts = 0, 0, []
    if tree.startswith("{"):
        inner = tree[1:-1]
        for at, c in enumerate(inner + ","):
            depth += {"{": 1, "}": -1}.get(c, 0)
            if c == "," and depth == 0:
                parts.append(inner[start:at])
                start = at + 1
        for part in parts:
            if part.strip():
                yield from leaves(part, prefix)
        return
    head, _, rest = tree.partition("::")
    if rest:
        yield from leaves(rest, prefix + (head.strip(),))
        return
    name, _, alias = head.partition(" as ")
    yield prefix + (name.strip(),), (alias or name).strip()


class Crate:
    """The modules of a crate: the file of each, and what each hands on."""

    def __init__(self, source):
        self.modules, self.handed_on, self.used = {}, {}, {}
        self.add((), source / "lib.rs")
        for module, (path, code) in list(self.modules.items()):
            self.scan(module, code)

    def add(self, module, path):
        code = rust.without_tests(rust.bare(path.read_text()))
        self.modules[module] = path, code
        inside = path.parent if path.name in ("lib.rs", "mod.rs") else path.with_suffix("")
        for name in MODULE.findall(code):
            for below in (inside / f"{name}.rs", inside / name / "mod.rs"):
                if below.exists():
                    self.add(module + (name,), below)

    def absolute(self, module, path):
        """Returns a path as it is from the crate's root on."""
        if path[0] == "crate":
            return path[1:]
        at = module
        for word in path:
            if word == "super":
                at = at[:-1]
            elif word != "self":
                break
        return at + tuple(word for word in path if word not in ("super", "self"))

    def scan(self, module, code):
        paths = set()
        for hands_on, tree in USE.findall(code):
            for path, name in leaves(tree):
                path = self.absolute(module, path)
                if hands_on:
                    self.handed_on[module + (name,)] = path
                else:
                    paths.add(path)
        for found in PATH.findall(USE.sub(" ", code)):
            paths.add(self.absolute(module, tuple(re.split(r"\s*::\s*", found))))
        self.used[module] = paths

    def defining(self, path, depth=0):
        """Returns the module that defines what a path names."""
        for end in range(len(path), -1, -1):
            head = path[:end]
            if head in self.handed_on and depth < 9:
                return self.defining(self.handed_on[head] + path[end:], depth + 1)
            if head in self.modules:
                return head
        return ()

    def edges(self):
        found = {}
        for module, paths in self.used.items():
            targets = {self.defining(path) for path in paths} - {module, ()}
            found[module] = targets
        return found

    def circles(self):
        """Returns the sets of modules that reach each other, the largest first (Tarjan)."""
        edges, index, low, stack, found = self.edges(), {}, {}, [], []

        def visit(at):
            index[at] = low[at] = len(index)
            stack.append(at)
            for to in edges.get(at, ()):
                if to not in index:
                    visit(to)
                    low[at] = min(low[at], low[to])
                elif to in stack:
                    low[at] = min(low[at], index[to])
            if low[at] == index[at]:
                begin = stack.index(at)
                found.append(stack[begin:])
                del stack[begin:]

        for module in edges:
            if module not in index:
                visit(module)
        return sorted((group for group in found if len(group) > 1), key=len, reverse=True)

    def name(self, module, root=ROOT):
        return str(self.modules[module][0].relative_to(root))


def crates():
    """Returns the folders of all crates of the tree that have a library."""
    return sorted(str(lib.parents[1].relative_to(ROOT)) for lib in ROOT.glob("**/src/lib.rs")
                  if "target" not in lib.parts)


def too_large():
    """Yields what is wrong with the circles of all crates."""
    for folder in crates():
        crate = Crate(ROOT / folder / "src")
        largest, limit = (crate.circles() or [[]])[0], LARGEST.get(folder, 0)
        if len(largest) > limit:
            files = ", ".join(sorted(map(crate.name, largest)))
            yield f"{folder}: a circle of {len(largest)} files, at most {limit} are allowed: {files}"


def broken():
    """Yields the names that stand where they must not."""
    for place, names, why in APART:
        where = ROOT / place
        for path in sorted(where.rglob("*.rs")):
            if "tests" in path.relative_to(ROOT).parts or path.name == "tests.rs":
                continue
            code = rust.without_tests(rust.bare(path.read_text()))
            for found in re.finditer(names, code):
                line = code.count("\n", 0, found.start()) + 1
                yield f"{path.relative_to(ROOT)}:{line}: {found[0]}: {why}"


def self_test():
    """Yields what this finds amiss with itself."""
    with tempfile.TemporaryDirectory() as temporary:
        source = pathlib.Path(temporary)
        for name, text in SAMPLE.items():
            (source / name).parent.mkdir(exist_ok=True)
            (source / name).write_text(text)
        crate = Crate(source)
        found = [sorted(crate.name(module, source) for module in circle) for circle in crate.circles()]
    if found != IN_SAMPLE:
        yield f"tests/policy/circles.py: found {found} in its sample, not {IN_SAMPLE}"


def check():
    return [*self_test(), *too_large(), *broken()]


def main():
    for folder in sys.argv[1:] or crates():
        crate = Crate(ROOT / folder / "src")
        for circle in crate.circles():
            print(f"{folder}: {len(circle)}", *sorted(map(crate.name, circle)), sep="\n    ")


if __name__ == "__main__":
    main()
