#!/usr/bin/env python3
"""Checks that librddp_verbs.so has every symbol that programs of libibverbs and librdmacm need.

    symbols.py LIBRARY [FILE]...

Asked for are the symbols, with their versions, that the files need (without files: the programs and
libraries of the Debian packages in `PACKAGES`, as far as they are installed), and those that the
installed libibverbs and librdmacm define. Besides, each name in verbs-abi/symbols/ must be there.
"""

import pathlib
import re
import subprocess
import sys

PACKAGES = ["ibverbs-utils", "rdmacm-utils", "perftest", "ibverbs-providers", "librdmacm1",
            "libibverbs1", "libfabric1", "python3-pyverbs", "fio", "qperf"]
OURS = re.compile(r"(IBVERBS|RDMACM)_")
# Functions of the first releases, of which a later version is the one that programs link to.
OLD = "IBVERBS_1.0"
TABLES = pathlib.Path(__file__).resolve().parents[2] / "verbs-abi/symbols"


def symbols(path, is_defined):
    """Yields the symbols with versions of ours that an ELF file defines, or needs."""
    said = subprocess.run(["readelf", "-W", "--dyn-syms", path], capture_output=True, text=True)
    for line in said.stdout.splitlines():
        words = line.split()
        if len(words) < 8 or "@" not in words[7] or (words[6] != "UND") != is_defined:
            continue
        name, version = re.split("@+", words[7])[:2]
        if OURS.match(version):
            yield name, version


def is_elf(path):
    try:
        return path.is_file() and path.open("rb").read(4) == b"\x7fELF"
    except OSError:
        return False


def installed():
    """Yields the ELF files of the packages, and says which packages are missing."""
    for package in PACKAGES:
        said = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True)
        if said.returncode:
            print(f"symbols: {package} is not installed, and so not checked")
        for name in said.stdout.splitlines():
            if is_elf(pathlib.Path(name)):
                yield pathlib.Path(name)


def table():
    """Yields the symbols that the tables promise."""
    node = None
    for line in (TABLES / "public.txt").read_text().splitlines():
        if line.startswith(" "):
            yield line.split()[0], node
        elif line and not line.startswith("#"):
            node = line.strip()
    numbers, names = [], []
    for line in (TABLES / "private.txt").read_text().splitlines():
        words = line.split()
        if words[:1] == ["nodes"]:
            numbers = words[1:]
        elif words and not line.startswith("#"):
            names.append(words[0])
    for number in numbers:
        for name in names:
            yield name.replace("*", number), f"IBVERBS_PRIVATE_{number}"


def main():
    library, files = sys.argv[1], [pathlib.Path(name) for name in sys.argv[2:]] or list(installed())
    have, missing, asked = set(symbols(library, True)), 0, set()
    wanted = [("the table", wanted) for wanted in table()]
    for path in files:
        wanted += [(path.name, wanted) for wanted in symbols(path, False)]
        if re.match(r"lib(ibverbs|rdmacm)\.so\.1", path.name):
            wanted += [(path.name, symbol) for symbol in symbols(path, True) if symbol[1] != OLD]
    for who, symbol in wanted:
        asked.add(symbol)
        if symbol not in have:
            missing += 1
            print(f"symbols: {who} needs {'@'.join(symbol)}")
    unversioned = [name for name in exported(library) if "@" not in name]
    for name in unversioned:
        print(f"symbols: {name} is exported without a version")
    print(f"symbols: {len(asked)} asked for by {len(files)} files and the tables, {missing} missing")
    return 1 if missing or unversioned or not have else 0


def exported(path):
    """Yields all names that a library defines, with their versions."""
    said = subprocess.run(["readelf", "-W", "--dyn-syms", path], capture_output=True, text=True)
    for line in said.stdout.splitlines():
        words = line.split()
        if len(words) >= 8 and words[0][:-1].isdigit() and words[6] not in ("UND", "ABS"):
            yield words[7]


if __name__ == "__main__":
    sys.exit(main())
