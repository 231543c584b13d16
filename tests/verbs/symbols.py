#!/usr/bin/env python3
"""Checks that librddp_verbs.so has every symbol that programs of libibverbs and librdmacm need.

    symbols.py LIBRARY [FILE]...
    symbols.py LIBRARY --archive

No relocation of the library names one of its own symbols, which a program may have too. Asked for
are the symbols, with their versions, that the files need (without files: the programs and
libraries of the Debian packages in `PACKAGES`; with `--archive`, of each package of the archive
that depends on either library), and those that libibverbs and librdmacm define. Besides, each name
in verbs-abi/symbols/ must be there.

Packages that are not installed are fetched with `apt-get download` and unpacked below
target/packages, where they stay for the next time. Exit status: 0 all are there, 1 some are not, 2
nothing is missing, but a package could not be had.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

PACKAGES = ["ibverbs-utils", "rdmacm-utils", "perftest", "ibverbs-providers", "librdmacm1",
            "libibverbs1", "libfabric1", "python3-pyverbs", "fio", "qperf", "libopenmpi3",
            "librados2", "libiscsi7", "tgt", "qemu-system-x86"]
LIBRARIES = ["libibverbs1", "librdmacm1"]
OURS = re.compile(r"(IBVERBS|RDMACM|RDDP)_")
# Functions of the first releases, of which a later version is the one that programs link to.
OLD = "IBVERBS_1.0"
ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLES = ROOT / "verbs-abi/symbols"
FETCHED = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "packages"
# How a package may name another in a list of dependencies, of which "|" marks one of a choice.
DEPENDENT = re.compile(r"^ +\|?(\S+)$", re.MULTILINE)


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
        return path.is_file() and not path.is_symlink() and path.open("rb").read(4) == b"\x7fELF"
    except OSError:
        return False


def dependents():
    """Returns the packages of the archive that depend on either library, and these."""
    said = subprocess.run(["apt-cache", "--important", "rdepends", *LIBRARIES],
                          capture_output=True, text=True).stdout
    return sorted({*DEPENDENT.findall(said), *LIBRARIES})


def files_of(package):
    """Returns the ELF files of a package, installed or fetched, or None if it cannot be had."""
    said = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True)
    if said.returncode == 0:
        paths = [pathlib.Path(name) for name in said.stdout.splitlines()]
    elif folder := fetched(package):
        paths = sorted(folder.rglob("*"))
    else:
        return None
    return [path for path in paths if is_elf(path)]


def fetched(package):
    """Returns the folder in which a package of the archive is unpacked, or None."""
    if (FETCHED / package).exists():
        return FETCHED / package
    FETCHED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FETCHED) as name:
        got = subprocess.run(["apt-get", "-qq", "download", package], cwd=name,
                             capture_output=True, text=True)
        files = list(pathlib.Path(name).glob("*.deb"))
        if got.returncode or not files:
            print(f"symbols: {package}: {got.stderr.strip()}")
            return None
        folder = pathlib.Path(name) / "unpacked"
        subprocess.run(["dpkg-deb", "-x", files[0], folder], check=True)
        return folder.rename(FETCHED / package)


def files_of_packages(packages):
    """Returns the files of all packages that need a symbol or are one of the libraries, and how
    many packages could not be had."""
    files, missing = [], 0
    for package in packages:
        found = files_of(package)
        if found is None:
            missing += 1
            print(f"symbols: NOT CHECKED: {package}")
            continue
        needy = [path for path in found if package in LIBRARIES or any(symbols(path, False))]
        if not needy:
            print(f"symbols: {package} needs none ({len(found)} programs and libraries)")
        files += needy
    return files, missing


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
    library, files, not_had = sys.argv[1], [pathlib.Path(name) for name in sys.argv[2:]], 0
    if sys.argv[2:] in ([], ["--archive"]):
        packages = dependents() if sys.argv[2:] else PACKAGES
        files, not_had = files_of_packages(packages)
        print(f"symbols: {len(packages) - not_had} of {len(packages)} packages looked at")
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
    bound = set(relocated(library)) & {name for name, _ in have}
    for name in sorted(bound):
        print(f"symbols: {name} is bound by its name within the library")
    print(f"symbols: {len(asked)} asked for by {len(files)} files and the tables, {missing} missing")
    if missing or unversioned or bound or not have:
        return 1
    return 2 if not_had else 0


def relocated(path):
    """Yields the names of the symbols that relocations name, without their versions."""
    said = subprocess.run(["readelf", "-W", "--relocs", path], capture_output=True, text=True)
    for line in said.stdout.splitlines():
        words = line.split()
        if len(words) >= 5 and words[2].startswith("R_"):
            yield words[4].split("@")[0]


def exported(path):
    """Yields all names that a library defines, with their versions."""
    said = subprocess.run(["readelf", "-W", "--dyn-syms", path], capture_output=True, text=True)
    for line in said.stdout.splitlines():
        words = line.split()
        if len(words) >= 8 and words[0][:-1].isdigit() and words[6] not in ("UND", "ABS"):
            yield words[7]


if __name__ == "__main__":
    sys.exit(main())
